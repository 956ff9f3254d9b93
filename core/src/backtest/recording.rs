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
    /// Its name.
    pub name: Box<str>,
    /// What was requested, as steps in order of time; empty if unknown.
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

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRecording {
    /// Its name.
    pub name: Box<str>,
    /// When it was born: its start if known, else its first sample.
    pub born: Time,
    /// Its last sample.
    pub gone: Time,
    /// Its containers, in the order of [`WorkloadRecording::containers`]; a container that it does not have is empty.
    pub containers: Vec<PodContainer>,
}

/// The usage of one container of one pod. Values are on the grid of [`WorkloadRecording::from`], beginning at the first
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
}
