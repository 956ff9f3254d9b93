//! What became of a pod, beside its sizes: its owner, whether it serves, how it was resized, how its containers ended.

use std::sync::Arc;

use crate::types::Time;

/// The direct controller of a pod. Pods of one owner are one group of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodOwner {
    /// Its kind. Upstream compares nothing else of its type.
    pub kind: Arc<str>,
    /// Its name, in the namespace of the pod.
    pub name: Arc<str>,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Some container was not started yet.
    #[default]
    Pending,
    /// All were started.
    Running,
    /// It ended, or nobody knows.
    Other,
}

/// Whether a pod serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Since then.
    Ready(Time),
    /// Not, since then.
    Unready(Time),
    /// The pod says nothing, or no time.
    #[default]
    Unknown,
}

/// A condition of a pod that tells of a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeCondition {
    /// Why, in one word.
    pub reason: Box<str>,
    /// Why, in a sentence.
    pub message: Box<str>,
    /// Since when it holds.
    pub since: Option<Time>,
    /// The generation of the pod that it is about.
    pub generation: Option<i64>,
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termination {
    /// Whether it was killed for its memory.
    pub out_of_memory: bool,
    /// When it had begun.
    pub started: Time,
    /// When it ended.
    pub finished: Time,
}

/// What became of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// How often it was started again.
    pub restarts: u32,
    /// Whether the kubelet waits before it starts the container once more.
    pub backing_off: bool,
    /// How it ended last.
    pub last_termination: Option<Termination>,
}

/// What became of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStatus {
    /// Its controller, if it has one: the reference with `controller: true`, wherever it stands.
    pub owner: Option<PodOwner>,
    /// How far it is.
    pub phase: Phase,
    /// When it was made.
    pub created: Time,
    /// When its node accepted it.
    pub started: Option<Time>,
    /// Whether it serves.
    pub readiness: Readiness,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// `PodResizePending`, while it is True.
    pub resize_pending: Option<ResizeCondition>,
    /// `PodResizeInProgress`, while it is True.
    pub resize_in_progress: Option<ResizeCondition>,
    /// Its containers.
    pub containers: Vec<ContainerStatus>,
}

impl Default for PodStatus {
    fn default() -> Self {
        Self {
            owner: None,
            phase: Phase::Running,
            created: Time::EPOCH,
            started: None,
            readiness: Readiness::Unknown,
            generation: None,
            resize_pending: None,
            resize_in_progress: None,
            containers: Vec::new(),
        }
    }
}

impl PodStatus {
    /// Whether it serves.
    pub fn is_ready(&self) -> bool {
        matches!(self.readiness, Readiness::Ready(_))
    }

    /// Whether a resize was asked for that is not done, whatever became of it.
    pub fn is_resizing(&self) -> bool {
        self.resize_pending.is_some() || self.resize_in_progress.is_some()
    }

    /// What became of one of its containers.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|one| *one.name == *name)
    }

    /// All restarts of all containers.
    pub fn restarts(&self) -> u32 {
        self.containers.iter().fold(0, |sum, one| sum.saturating_add(one.restarts))
    }

    /// Whether a container was killed for its memory after that time.
    pub fn ran_out_of_memory_since(&self, since: Time) -> bool {
        self.containers
            .iter()
            .filter_map(|one| one.last_termination)
            .any(|ending| ending.out_of_memory && ending.finished >= since)
    }

    /// Since when it does not serve, if it does not.
    pub fn unready_since(&self) -> Option<Time> {
        match self.readiness {
            Readiness::Ready(_) => None,
            Readiness::Unready(since) => Some(since),
            Readiness::Unknown => Some(self.started.unwrap_or(self.created)),
        }
    }
}
