//! What was recorded of a workload: usage by pod and container on a fixed grid of minutes.

use crate::{
    rightsizing::survey::Amounts,
    types::{ObjectKey, Time},
};

/// Seconds between two values of CPU.
pub const CPU_STEP_SECONDS: i64 = 60;
/// Seconds between two peaks of memory.
pub const MEMORY_STEP_SECONDS: i64 = 300;

/// The time that is replayed. Both parts are the same for all policies and workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The beginning of the warm-up, which only feeds the policies. A multiple of [`MEMORY_STEP_SECONDS`].
    pub warm_up_from: Time,
    /// The beginning of the evaluation.
    pub from: Time,
    /// The end, exclusive.
    pub until: Time,
}

/// A workload with the pods that existed within the time of the backtest.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadRecording {
    /// The cluster, if the backtest covers several.
    pub cluster: Option<Box<str>>,
    /// Its kind, such as `Deployment`.
    pub kind: Box<str>,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// The time of the first column of all values.
    pub from: Time,
    /// Its containers by name, sorted.
    pub containers: Vec<ContainerRecording>,
    /// Its pods, sorted by time of birth and name.
    pub pods: Vec<PodRecording>,
}

/// What is the same for all pods of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerRecording {
    pub name: Box<str>,
    /// What new pods requested, as steps in order of time; empty if unknown. Pods that are updated one after the other
    /// have amounts of their own meanwhile.
    pub requests: Vec<RecordedStep>,
    /// What the limits were, as steps in order of time; empty if unknown.
    pub limits: Vec<RecordedStep>,
    /// Whether the requests are those of today because those of the past are unknown.
    pub assumes_current_requests: bool,
    /// Whether the memory of the container follows its limit (Java heaps, page cache), so that use under a smaller limit
    /// cannot be derived from use. Such containers are left out of the figures of memory, and counted.
    pub is_memory_elastic: bool,
}

/// Amounts from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedStep {
    /// From when they hold.
    pub at: Time,
    /// The amounts; a missing one is not set.
    pub amounts: Amounts,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PodRecording {
    pub name: Box<str>,
    /// When it was born: its start if known, else its first sample.
    pub born: Time,
    /// Its last sample.
    pub gone: Time,
    /// Its containers, in the order of [`WorkloadRecording::containers`]; a container that it does not have is empty.
    pub containers: Vec<PodContainer>,
}

/// The usage and the amounts of one container of one pod. Values are on the grid of [`WorkloadRecording::from`], beginning at the first
/// column of the pod; NaN is a missing value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodContainer {
    /// The index of the first minute.
    pub first_minute: u32,
    /// CPU in cores by minute.
    pub cpu: Vec<f32>,
    /// The index of the first window of five minutes.
    pub first_window: u32,
    /// The peak of memory in bytes by window of five minutes.
    pub memory: Vec<f32>,
    /// Indices of minutes (on the grid of the workload) in which it was throttled in fact, ascending.
    pub throttled_minutes: Vec<u32>,
    /// Times of OOM kills, ascending.
    pub oom_kills: Vec<Time>,
    /// What it requested, as steps in order of time; empty if [`ContainerRecording::requests`] hold for this pod.
    pub requests: Vec<RecordedStep>,
    /// What its limits were, as steps in order of time; empty if [`ContainerRecording::limits`] hold for this pod.
    pub limits: Vec<RecordedStep>,
}

impl PodContainer {
    /// The requests and the limits of the container of this pod, as steps.
    pub fn steps<'a>(&'a self, container: &'a ContainerRecording) -> [&'a [RecordedStep]; 2] {
        let own = |own: &'a [RecordedStep], of_all: &'a [RecordedStep]| {
            if own.is_empty() { of_all } else { own }
        };
        [own(&self.requests, &container.requests), own(&self.limits, &container.limits)]
    }

    /// Sets amounts of this pod, but for those that are the same as those of the workload while the pod exists.
    pub fn set_steps(
        &mut self,
        [requests, limits]: [Vec<RecordedStep>; 2],
        container: &ContainerRecording,
        (born, gone): (Time, Time),
    ) {
        let differs = |own: &[RecordedStep], of_all: &[RecordedStep]| {
            let times = own.iter().chain(of_all).map(|step| step.at.max(born));
            let mut times = times.chain([born]).filter(|at| *at <= gone);
            !own.is_empty() && times.any(|at| amounts_at(own, at) != amounts_at(of_all, at))
        };
        if differs(&requests, &container.requests) {
            self.requests = requests;
        }
        if differs(&limits, &container.limits) {
            self.limits = limits;
        }
    }
}

/// The amounts that hold at a time. Before the first step they are those of the first.
pub fn amounts_at(steps: &[RecordedStep], at: Time) -> Amounts {
    let after = steps.partition_point(|step| step.at <= at);
    let step = steps.get(after.saturating_sub(1));
    step.map_or_else(Amounts::default, |step| step.amounts)
}
