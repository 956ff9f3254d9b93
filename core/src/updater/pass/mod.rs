//! One pass over the pods of one VPA, step by step: the cost of each step counts for the next one.
//!
//! ```text
//! UpdatePass::new ─▶ next ─▶ UpdateStep ─▶ (persist, execute) ─▶ record_result ─▶ next … ─▶ finish ─▶ Decision
//! ```

mod candidates;
mod guard_checks;
mod pod_explanation;
mod pod_view;
mod resizing;
mod rollout_progress;
mod steps;

use std::collections::{BTreeSet, VecDeque};

use crate::types::{ObjectKey, Time};

use self::pod_view::PodView;
pub use self::{pod_explanation::PodExplanation, pod_view::Pod, steps::NextStep};
use super::{
    action::{PodOutcome, StepResult, UpdateStep},
    guard::{
        DisruptionBudget, RecommenderHeartbeat, Regression, WindowState, WorkloadState,
        disruption_budget::PodCounts, rollout::RolloutProgress,
    },
    in_place::ResizesFirstSeen,
    pod_sizing::PodSizing,
    pod_status::PodOwner,
    priority::Priority,
    refusal_backoff::RefusalBackoff,
    replica_group::{DesiredReplicas, ReplicaGroups},
    settings::Settings,
    skip_reason::SkipReason,
    update_reason::UpdateReason,
};
use crate::api::vpa::Recommendation;

/// A VPA with its pods.
#[derive(Clone, Copy, Debug)]
pub struct VpaWithPods<'a> {
    /// Key of the VPA.
    pub vpa: &'a ObjectKey,
    /// `metadata.generation` of the VPA.
    pub generation: Option<i64>,
    /// How its pods are sized.
    pub sizing: PodSizing<'a>,
    /// State of its maintenance windows at the time of the pass.
    pub maintenance_window: WindowState,
    /// Whether its workload can be scaled to a second replica temporarily.
    pub surges: bool,
    /// Its live pods, without those that are being deleted.
    pub pods: &'a [Pod],
}

/// The inputs that are the same for all VPAs.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// Returns the desired replicas of a controller.
    pub desired_replicas: &'a (dyn Fn(&PodOwner) -> DesiredReplicas + Sync),
    /// Number of pods in the cluster and the namespace.
    pub pod_counts: PodCounts,
    /// The recommender's heartbeat.
    pub heartbeat: RecommenderHeartbeat,
    /// Whether the admission controller is ready to size new pods.
    pub is_admission_ready: bool,
    /// Whether the API server supports in-place resize.
    pub can_resize: bool,
    /// The current time.
    pub now: Time,
}

/// The state that is kept from pass to pass.
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

/// A pass in progress.
pub struct UpdatePass<'a> {
    subject: VpaWithPods<'a>,
    context: PassContext<'a>,
    settings: &'a Settings,
    state: PersistedState,
    views: Vec<PodView<'a>>,
    groups: ReplicaGroups,
    progress: RolloutProgress,
    queue: VecDeque<QueuedAction>,
    /// The candidates, indexed by pod.
    update_candidates: Vec<Option<UpdateCandidate>>,
    pod_outcomes: Vec<Option<PodOutcome>>,
    candidates: usize,
    known_infeasible: usize,
    /// Owners whose pods a PodDisruptionBudget blocks.
    blocked_owners: BTreeSet<PodOwner>,
    /// Whether a surge is ended without an eviction. Then no pod is evicted, or the workload might lose both.
    is_ending_surge: bool,
    pending_step: Option<PendingStep>,
    steps: Vec<(UpdateStep, StepResult)>,
    regression: Option<Regression>,
    externally_overwritten: bool,
}

/// A queued action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuedAction {
    EndSurge,
    RemoveBoost(usize),
    InPlace(usize),
    Evict(usize),
}

/// A pod that needs an update.
#[derive(Clone, Debug)]
struct UpdateCandidate {
    reason: UpdateReason,
    priority: Priority,
    recommendation: Recommendation,
}

/// The current step, with the state before it.
struct PendingStep {
    step: UpdateStep,
    state_before: PersistedState,
    /// Whether the pod is evicted if the resize fails.
    evicts_on_failure: bool,
}

impl<'a> UpdatePass<'a> {
    /// Starts a pass: reviews earlier changes, and selects candidates.
    pub fn new(
        subject: VpaWithPods<'a>,
        context: PassContext<'a>,
        settings: &'a Settings,
        state: PersistedState,
    ) -> Self {
        let views = pod_view::pod_views(&subject, &state.workload, settings, context.now);
        let groups = pod_view::replica_groups(&subject, &views, &context, settings);
        let mut pass = Self {
            update_candidates: subject.pods.iter().map(|_| None).collect(),
            pod_outcomes: vec![None; subject.pods.len()],
            subject,
            context,
            settings,
            state,
            views,
            groups,
            progress: RolloutProgress::default(),
            queue: VecDeque::new(),
            candidates: 0,
            known_infeasible: 0,
            blocked_owners: BTreeSet::new(),
            is_ending_surge: false,
            pending_step: None,
            steps: Vec::new(),
            regression: None,
            externally_overwritten: false,
        };
        pass.review_changes();
        pass.select_candidates();
        pass
    }

    /// Skips boost removals, which another loop handles.
    #[must_use]
    pub fn without_boost_removal(mut self) -> Self {
        self.queue.retain(|queued| !matches!(queued, QueuedAction::RemoveBoost(_)));
        self
    }

    /// Only removes expired boosts.
    #[must_use]
    pub fn only_boost_removal(mut self) -> Self {
        self.queue.retain(|queued| matches!(queued, QueuedAction::RemoveBoost(_)));
        self
    }

    /// Returns the state including the current step. It must be persisted before a step with `needs_persisting`.
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// Ends the pass. Pods that were not processed are skipped.
    pub fn finish(self) -> Decision {
        let or_skipped = |outcome: Option<PodOutcome>| {
            outcome.unwrap_or(PodOutcome::Skipped(SkipReason::PassEnded))
        };
        Decision {
            steps: self.steps,
            pod_outcomes: self.pod_outcomes.into_iter().map(or_skipped).collect(),
            candidates: self.candidates,
            known_infeasible: self.known_infeasible,
            regression: self.regression,
            externally_overwritten: self.externally_overwritten,
            state: self.state,
        }
    }

    fn skip(&mut self, pod: usize, reason: SkipReason) {
        if let Some(outcome) = self.pod_outcomes.get_mut(pod) {
            *outcome = Some(PodOutcome::Skipped(reason));
        }
    }
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
