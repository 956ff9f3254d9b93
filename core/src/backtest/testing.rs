//! Recordings for tests.

use super::{
    policy::PolicyLabel,
    recording::{
        ContainerRecording, Evaluation, PodContainer, PodRecording, RecordedStep, WorkloadRecording,
    },
    replica_model::ReplicaRule,
    report::ReportInputs,
};
use crate::{
    rightsizing::survey::Amounts,
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};

/// A midnight.
pub const START: Time = Time::from_secs(20_700 * 86_400);
pub const MIB: i64 = 1 << 20;
pub const MINUTES_PER_DAY: u32 = 1_440;
pub const WINDOWS_PER_DAY: u32 = 288;

pub fn days_later(days: u32) -> Time {
    minutes_later(days * MINUTES_PER_DAY)
}

pub fn minutes_later(minutes: u32) -> Time {
    Time::from_secs(START.as_secs() + i64::from(minutes) * 60)
}

pub fn evaluation(warm_up_days: u32, days: u32) -> Evaluation {
    Evaluation {
        warm_up_from: START,
        from: days_later(warm_up_days),
        until: days_later(warm_up_days + days),
    }
}

pub fn amounts(milli: Option<i64>, mebibytes: Option<i64>) -> Amounts {
    Amounts { cpu: milli.map(MilliCpu), memory: mebibytes.map(|amount| Bytes(amount * MIB)) }
}

pub fn container(name: &str, requests: Amounts, limits: Amounts) -> ContainerRecording {
    ContainerRecording {
        name: name.into(),
        requests: vec![RecordedStep { at: START, amounts: requests }],
        limits: vec![RecordedStep { at: START, amounts: limits }],
        ..ContainerRecording::default()
    }
}

/// The usage of a container from the first minute on: cores by minute, and mebibytes by window.
pub fn usage(
    minutes: std::ops::Range<u32>,
    cores: impl Fn(u32) -> f64,
    mebibytes: impl Fn(u32) -> f64,
) -> PodContainer {
    let windows = minutes.start / 5..minutes.end.div_ceil(5);
    PodContainer {
        first_minute: minutes.start,
        first_window: windows.start,
        cpu: minutes.map(|minute| cores(minute) as f32).collect(),
        memory: windows.map(|window| (mebibytes(window) * MIB as f64) as f32).collect(),
        ..PodContainer::default()
    }
}

pub fn pod(
    name: &str,
    minutes: std::ops::Range<u32>,
    containers: Vec<PodContainer>,
) -> PodRecording {
    PodRecording {
        name: name.into(),
        born: minutes_later(minutes.start),
        gone: minutes_later(minutes.end.saturating_sub(1)),
        containers,
    }
}

pub fn workload(
    name: &str,
    containers: Vec<ContainerRecording>,
    pods: Vec<PodRecording>,
) -> WorkloadRecording {
    WorkloadRecording {
        cluster: None,
        kind: "Deployment".into(),
        key: ObjectKey::new("shop", name),
        from: START,
        containers,
        pods,
    }
}

pub fn inputs(policies: Vec<PolicyLabel>, evaluation: &Evaluation) -> ReportInputs {
    ReportInputs {
        version: "1.0.0".to_owned(),
        scope: "shop".to_owned(),
        warm_up_from: evaluation.warm_up_from,
        from: evaluation.from,
        until: evaluation.until,
        policies,
        currency: Some("EUR".to_owned()),
        cpu_core_hour: Some(0.03),
        memory_gib_hour: Some(0.004),
        replicas: ReplicaRule::Recorded,
        remarks: Vec::new(),
    }
}
