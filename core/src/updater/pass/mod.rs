//! One pass over the pods of one VPA, step by step: the cost of each step counts for the next one.
//!
//! ```text
//! UpdatePass::new ─▶ next ─▶ UpdateStep ─▶ (persist, execute) ─▶ record_result ─▶ next … ─▶ finish ─▶ Decision
//! ```

mod candidates;
mod review;
mod shared_requests;
mod step_decider;
mod targets;
mod update_pass;
mod workload;

pub use self::{
    update_pass::{NextStep, UpdatePass},
    workload::{Pod, PodExplanation},
};
use super::{
    action::{PodOutcome, StepResult, UpdateStep},
    guard::{
        DisruptionBudget, RecommenderHeartbeat, Regression, WindowState, WorkloadState,
        disruption_budget::PodCounts,
    },
    in_place::ResizesFirstSeen,
    pod_sizing::PodSizing,
    pod_status::PodOwner,
    refusal_backoff::RefusalBackoff,
    replica_group::DesiredReplicas,
    settings::Settings,
};
use crate::types::{ObjectKey, Time};

#[derive(Clone, Copy, Debug)]
pub struct VpaWithPods<'a> {
    pub vpa: &'a ObjectKey,
    /// `metadata.generation` of the VPA.
    pub generation: Option<i64>,
    pub sizing: PodSizing<'a>,
    /// State of its maintenance windows at the time of the pass.
    pub maintenance_window: WindowState,
    /// Whether its requests are planned, by the condition of its recommender.
    pub is_planned: bool,
    /// Whether its workload can be scaled to a second replica temporarily.
    pub surges: bool,
    /// Its live pods, without those that are being deleted.
    pub pods: &'a [Pod],
}

#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// Returns the desired replicas of a controller.
    pub desired_replicas: &'a (dyn Fn(&PodOwner) -> DesiredReplicas + Sync),
    /// Number of pods in the cluster and the namespace.
    pub pod_counts: PodCounts,
    pub heartbeat: RecommenderHeartbeat,
    /// Whether the admission controller is ready to size new pods.
    pub is_admission_ready: bool,
    /// Whether the API server supports in-place resize.
    pub can_resize: bool,
    pub now: Time,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistedState {
    /// State of the workload, persisted in an annotation of the VPA.
    pub workload: WorkloadState,
    /// State of the cluster, persisted in an annotation of the Lease.
    pub budget: DisruptionBudget,
    /// Start of upstream's resize timeouts, in memory only.
    pub resizes_first_seen: ResizesFirstSeen,
    /// Backoff of refused requests, in memory only.
    pub backoff: RefusalBackoff,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The executed steps with their results, in order.
    pub steps: Vec<(UpdateStep, StepResult)>,
    /// The outcome of each pod, in the order of the pods.
    pub pod_outcomes: Vec<PodOutcome>,
    /// Number of pods that needed an update and could have been updated.
    pub candidates: usize,
    /// Number of pods that were skipped because a resize is known to be infeasible and eviction is not allowed.
    pub known_infeasible: usize,
    /// The regression that was found in this pass, if any.
    pub regression: Option<Regression>,
    /// Whether an external overwrite was detected in this pass.
    pub externally_overwritten: bool,
    /// The state after the pass.
    pub state: PersistedState,
}

/// Runs a whole pass as if every step succeeded, for `explain`.
pub fn decide(
    subject: VpaWithPods<'_>,
    context: PassContext<'_>,
    settings: &Settings,
    state: PersistedState,
) -> Decision {
    let mut pass = UpdatePass::new(subject, context, settings, state);
    while pass.next().is_some() {
        pass.record_result(StepResult::Done);
    }
    pass.finish()
}
