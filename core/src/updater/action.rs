//! What is to be done to a pod, or to its workload, and what came of it.

use std::sync::Arc;

use super::{skip_reason::SkipReason, update_reason::UpdateReason};
use crate::sizing::SizedContainer;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The pod is evicted, by its uid.
    Evict {
        /// Why it is worth it.
        reason: UpdateReason,
    },
    /// The pod gets these sizes in place.
    Resize {
        /// Why it is worth it.
        reason: UpdateReason,
        /// What is written.
        sized_containers: Vec<SizedContainer>,
        /// Containers whose boost is over with it, by their names.
        boosts_ended: Vec<Arc<str>>,
        /// Whether a container is restarted for it.
        restarts_containers: bool,
    },
    /// These containers lose what they were given to start with.
    RemoveBoost {
        /// Their names.
        containers: Vec<Arc<str>>,
        /// What is written.
        sized_containers: Vec<SizedContainer>,
    },
    /// The workload of the pod gets a second replica, to take its place.
    Surge,
    /// The workload gets back to one replica.
    EndSurge,
}

impl Action {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Evict { .. } => "evict",
            Self::Resize { .. } => "resize",
            Self::RemoveBoost { .. } => "unboost",
            Self::Surge => "surge",
            Self::EndSurge => "end_surge",
        }
    }
}

/// One thing to do. It is booked before it is done: whoever cannot write that down leaves it.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateStep {
    /// The pod, by its place among those of the pass.
    pub pod: usize,
    /// What is done.
    pub action: Action,
    /// Whether the memory of the workload, or the ledger of the cluster, has to be written first.
    pub needs_persisting: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// It was done.
    Done,
    /// The server refused an eviction for the disruption it would be (429).
    BlockedByBudget,
    /// The API server did not take a resize, because the node has no such room.
    InsufficientCapacity,
    /// The pod changed since it was looked at: what was decided about it does not hold any more, and nothing was done.
    PodChanged,
    /// It failed for another reason.
    Failed,
    /// Nobody knows whether it was done, or the pod is gone already: it costs what it would have cost.
    Indeterminate,
    /// It could not be booked, and was not tried.
    PersistFailed,
}

/// What became of a pod in a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum PodOutcome {
    /// It was changed.
    Changed(&'static str),
    /// It was left as it is.
    Skipped(SkipReason),
}
