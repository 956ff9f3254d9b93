//! One pass over the pods of one VPA, one step after another: what each step costs counts for the next one.
//!
//! ```text
//! Pass::begin ─▶ next ─▶ Step ─▶ (book, act) ─▶ note(Outcome) ─▶ next … ─▶ end ─▶ Decision
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
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// Its generation.
    pub generation: Option<i64>,
    /// How its pods are sized.
    pub sizing: PodSizing<'a>,
    /// Whether its change windows are open at the time of the pass.
    pub maintenance_window: WindowState,
    /// Whether it can be given a second replica for a while.
    pub surges: bool,
    /// Its live pods, those that are being deleted left out.
    pub pods: &'a [Pod],
}

/// What is the same for all VPAs.
#[derive(Clone, Copy)]
pub struct PassContext<'a> {
    /// How many pods a controller wants.
    pub desired_replicas: &'a (dyn Fn(&PodOwner) -> DesiredReplicas + Sync),
    /// How large cluster and namespace are.
    pub pod_counts: PodCounts,
    /// What was seen of the recommender.
    pub heartbeat: RecommenderHeartbeat,
    /// Whether new pods will be sized.
    pub is_admission_ready: bool,
    /// Whether the server can resize pods.
    pub can_resize: bool,
    /// The time.
    pub now: Time,
}

/// What is remembered from pass to pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistedState {
    /// Of the workload; on its VPA.
    pub workload: WorkloadState,
    /// Of the cluster; in the Lease.
    pub budget: DisruptionBudget,
    /// Upstream's clock of resizes; nowhere but here.
    pub resizes_first_seen: ResizesFirstSeen,
    /// What the server did not do when it was asked; nowhere but here.
    pub backoff: RefusalBackoff,
}

/// What came of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What was done, in order, with what came of it.
    pub steps: Vec<(UpdateStep, StepResult)>,
    /// What became of each pod, in the order of the pods.
    pub pod_outcomes: Vec<PodOutcome>,
    /// Pods that could have been changed: those that were worth it and might have been.
    pub candidates: usize,
    /// Pods that were left alone because a resize of them is known to be impossible, where nothing else may be tried.
    pub known_infeasible: usize,
    /// What got worse by the last changes, if that was found in this pass.
    pub regression: Option<Regression>,
    /// Whether it was found in this pass that somebody else writes other values.
    pub externally_overwritten: bool,
    /// What is to be remembered.
    pub state: PersistedState,
}

/// A pass that is being made.
pub struct UpdatePass<'a> {
    subject: VpaWithPods<'a>,
    context: PassContext<'a>,
    settings: &'a Settings,
    state: PersistedState,
    views: Vec<PodView<'a>>,
    groups: ReplicaGroups,
    progress: RolloutProgress,
    queue: VecDeque<QueuedAction>,
    /// What each candidate needs, by pod.
    update_candidates: Vec<Option<UpdateCandidate>>,
    pod_outcomes: Vec<Option<PodOutcome>>,
    candidates: usize,
    known_infeasible: usize,
    /// Owners whose pods the server does not let go.
    blocked_owners: BTreeSet<PodOwner>,
    /// Whether a second replica is taken back though no pod went: none goes then, or both might.
    is_ending_surge: bool,
    pending_step: Option<PendingStep>,
    steps: Vec<(UpdateStep, StepResult)>,
    regression: Option<Regression>,
    externally_overwritten: bool,
}

/// What is still to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuedAction {
    EndSurge,
    RemoveBoost(usize),
    InPlace(usize),
    Evict(usize),
}

/// Why a pod is worth a change.
#[derive(Clone, Debug)]
struct UpdateCandidate {
    reason: UpdateReason,
    priority: Priority,
    recommendation: Recommendation,
}

/// The step under way, with what was remembered before it was booked.
struct PendingStep {
    step: UpdateStep,
    state_before: PersistedState,
    /// Whether the pod is evicted where a resize fails.
    evicts_on_failure: bool,
}

impl<'a> UpdatePass<'a> {
    /// Looks at all pods.
    pub fn new(
        subject: VpaWithPods<'a>,
        world: PassContext<'a>,
        settings: &'a Settings,
        recall: PersistedState,
    ) -> Self {
        let views = pod_view::pod_views(&subject, &recall.workload, settings, world.now);
        let groups = pod_view::replica_groups(&subject, &views, &world, settings);
        let mut pass = Self {
            update_candidates: subject.pods.iter().map(|_| None).collect(),
            pod_outcomes: vec![None; subject.pods.len()],
            subject,
            context: world,
            settings,
            state: recall,
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

    /// Leaves boosts as they are: somebody else takes them back when they are over.
    #[must_use]
    pub fn without_boost_removal(mut self) -> Self {
        self.queue.retain(|queued| !matches!(queued, QueuedAction::RemoveBoost(_)));
        self
    }

    /// Takes back boosts that are over, and does nothing else.
    #[must_use]
    pub fn only_boost_removal(mut self) -> Self {
        self.queue.retain(|queued| matches!(queued, QueuedAction::RemoveBoost(_)));
        self
    }

    /// What is to be remembered when the step under way is made: to be written before it, where it is booked.
    pub fn state(&self) -> &PersistedState {
        &self.state
    }

    /// Ends the pass: what was not looked at stays as it is.
    pub fn finish(self) -> Decision {
        let left = |verdict: Option<PodOutcome>| {
            verdict.unwrap_or(PodOutcome::Skipped(SkipReason::PassEnded))
        };
        Decision {
            steps: self.steps,
            pod_outcomes: self.pod_outcomes.into_iter().map(left).collect(),
            candidates: self.candidates,
            known_infeasible: self.known_infeasible,
            regression: self.regression,
            externally_overwritten: self.externally_overwritten,
            state: self.state,
        }
    }

    fn skip(&mut self, pod: usize, why: SkipReason) {
        if let Some(verdict) = self.pod_outcomes.get_mut(pod) {
            *verdict = Some(PodOutcome::Skipped(why));
        }
    }
}

/// The whole pass, as if every step were done: what a dry run says, and `explain`.
pub fn decide(
    subject: VpaWithPods<'_>,
    world: PassContext<'_>,
    settings: &Settings,
    recall: PersistedState,
) -> Decision {
    let mut pass = UpdatePass::new(subject, world, settings, recall);
    while pass.next().is_some() {
        pass.record_result(StepResult::Done);
    }
    pass.finish()
}
