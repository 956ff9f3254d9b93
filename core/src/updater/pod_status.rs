//! The status of a pod, without its resources: owner, readiness, resize conditions, terminations of containers.

use std::sync::Arc;

use crate::types::Time;

/// The direct controller of a pod. Pods of one owner form a replica group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodOwner {
    /// The kind. The API group is ignored, as upstream does.
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// A container has not started yet.
    Pending,
    /// All containers have started.
    #[default]
    Running,
    /// `Succeeded`, `Failed` or `Unknown`.
    Other,
}

/// The `Ready` condition of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    Ready(Time),
    /// Not ready since this time.
    Unready(Time),
    /// The condition, or its time, is missing.
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeCondition {
    pub reason: Box<str>,
    pub message: Box<str>,
    /// `lastTransitionTime` of the condition.
    pub since: Option<Time>,
    /// `observedGeneration` of the condition.
    pub generation: Option<i64>,
}

/// The last termination of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termination {
    /// Whether it was OOM killed.
    pub out_of_memory: bool,
    /// When the container had started.
    pub started: Time,
    /// When the container terminated.
    pub finished: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    pub name: Arc<str>,
    /// `restartCount`.
    pub restarts: u32,
    /// Whether the container is in `CrashLoopBackOff`.
    pub backing_off: bool,
    /// The last termination, if any.
    pub last_termination: Option<Termination>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodStatus {
    /// The owner reference with `controller: true`, if any.
    pub owner: Option<PodOwner>,
    pub phase: Phase,
    /// `creationTimestamp`.
    pub created: Time,
    pub started: Option<Time>,
    /// The `Ready` condition.
    pub readiness: Readiness,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `PodResizePending`, while it is True.
    pub resize_pending: Option<ResizeCondition>,
    /// `PodResizeInProgress`, while it is True.
    pub resize_in_progress: Option<ResizeCondition>,
    pub containers: Vec<ContainerStatus>,
}

impl PodStatus {
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready(_))
    }

    /// Whether a requested resize is not complete, whatever its state.
    pub fn is_resizing(&self) -> bool {
        self.resize_pending.is_some() || self.resize_in_progress.is_some()
    }

    /// Returns the number of restarts of all containers.
    pub fn restarts(&self) -> u32 {
        self.containers.iter().fold(0, |sum, container| sum.saturating_add(container.restarts))
    }

    /// Whether a container was OOM killed since this time.
    pub fn ran_out_of_memory_since(&self, since: Time) -> bool {
        self.containers
            .iter()
            .filter_map(|container| container.last_termination)
            .any(|termination| termination.out_of_memory && termination.finished >= since)
    }

    /// Returns since when the pod is not ready; `None` if it is ready.
    pub fn unready_since(&self) -> Option<Time> {
        match self.readiness {
            Readiness::Ready(_) => None,
            Readiness::Unready(since) => Some(since),
            Readiness::Unknown => Some(self.started.unwrap_or(self.created)),
        }
    }
}
