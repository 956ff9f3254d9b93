//! Actions on a pod or its workload, and their results.

use std::sync::Arc;

use super::{skip_reason::SkipReason, update_reason::UpdateReason};
use crate::sizing::SizedContainer;

#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Action {
    /// Evicts the pod, with its uid as a precondition.
    Evict { reason: UpdateReason },
    /// Resizes the pod in place.
    Resize {
        /// Why the pod needs an update.
        reason: UpdateReason,
        /// The new resources.
        sized_containers: Vec<SizedContainer>,
        /// Names of containers whose startup boost ends with the resize.
        boosts_ended: Vec<Arc<str>>,
        /// Whether the resize restarts a container.
        restarts_containers: bool,
    },
    /// Removes the startup boost of containers.
    #[strum(serialize = "unboost")]
    RemoveBoost { containers: Vec<Arc<str>>, sized_containers: Vec<SizedContainer> },
    /// Scales the workload to a second replica before its only pod is evicted.
    Surge,
    /// Scales the workload back to one replica.
    EndSurge,
}

/// One step of a pass. The state must be persisted before the step is executed, or the step must be skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateStep {
    /// Index of the pod in the pass.
    pub pod: usize,
    pub action: Action,
    /// Whether the workload state or the disruption budget must be persisted first.
    pub needs_persisting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    Done,
    /// The eviction was blocked by a PodDisruptionBudget (429).
    BlockedByBudget,
    /// The API server rejected the resize because it exceeds the capacity of the node.
    InsufficientCapacity,
    /// The pod changed after it was read, so the decision is outdated and nothing was done.
    PodChanged,
    /// The step failed for another reason.
    Failed,
    /// The result is unknown, or the pod is gone already. The budget is charged.
    Indeterminate,
    /// The state could not be persisted, so the step was not executed.
    PersistFailed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PodOutcome {
    Changed(&'static str),
    /// The pod was not changed.
    Skipped(SkipReason),
}
