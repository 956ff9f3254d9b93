//! The step machine of a pass: the cost of each step counts for the next one.

use std::collections::{BTreeSet, VecDeque};

use super::{
    Decision, PassContext, PersistedState, Pod, PodExplanation, VpaWithPods,
    candidates::Selection,
    review::Review,
    step_decider::{StepDecider, StepDecision},
    targets,
    workload::PassWorkload,
};
use crate::{
    api::vpa::UpdateMode,
    coordination::TargetChange,
    sizing::{Resources, SizedContainer},
    types::{
        Time,
        compat::{Compat, Fix},
    },
    updater::{
        action::{Action, PodOutcome, StepResult, UpdateStep},
        guard::{
            BudgetKind, ChangeKind, PodChange,
            infeasible::{RejectedBy, recommended_targets},
            rollout::{RolloutChange, RolloutEntry, record_change},
            workload_state::{Surge, spec_hash},
        },
        refusal_backoff::{RefusedRequest, eviction_requests},
        settings::Settings,
        skip_reason::SkipReason,
    },
};

/// How a pass continues.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    Step(UpdateStep),
    /// The maximum number of pods was skipped. Call again for the next one.
    More,
    /// The pass has no more steps.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuedAction {
    EndSurge,
    RemoveBoost(usize),
    InPlace(usize),
    Evict(usize),
}

/// The current step, with the state before it.
struct PendingStep {
    step: UpdateStep,
    state_before: PersistedState,
    /// Whether the pod is evicted if the resize fails.
    evicts_on_failure: bool,
}

pub struct UpdatePass<'a> {
    decider: StepDecider<'a>,
    queue: VecDeque<QueuedAction>,
    pending_step: Option<PendingStep>,
    /// The result so far, but for the state, which the decider has.
    decision: Decision,
}

impl<'a> UpdatePass<'a> {
    /// Starts a pass: reviews earlier changes, and selects candidates.
    pub fn new(
        subject: VpaWithPods<'a>,
        context: PassContext<'a>,
        settings: &'a Settings,
        mut state: PersistedState,
    ) -> Self {
        let workload = PassWorkload::new(subject, context, settings, &state.workload);
        let review = Review::new(&workload, &mut state);
        let selection = Selection::new(&workload, &mut state);
        let outcome = |candidate: &Result<_, SkipReason>| {
            let reason = candidate.as_ref().err().cloned();
            PodOutcome::Skipped(reason.unwrap_or(SkipReason::PassEnded))
        };
        let decision = Decision {
            steps: Vec::new(),
            pod_outcomes: selection.pods.iter().map(outcome).collect(),
            candidates: selection.candidates,
            known_infeasible: selection.known_infeasible,
            regression: review.regression,
            externally_overwritten: review.externally_overwritten,
            state: PersistedState::default(),
        };
        let decider = StepDecider {
            workload,
            state,
            candidates: selection.pods.into_iter().map(Result::ok).collect(),
            progress: review.progress,
            blocked_owners: BTreeSet::new(),
            is_ending_surge: selection.is_ending_surge,
        };
        Self { decider, queue: selection.queue, pending_step: None, decision }
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
        &self.decider.state
    }

    /// Returns the next step. [`UpdatePass::state`] includes it already.
    #[expect(
        clippy::should_implement_trait,
        reason = "the result of a step must be recorded first"
    )]
    pub fn next(&mut self) -> Option<UpdateStep> {
        match self.next_within(usize::MAX) {
            NextStep::Step(step) => Some(step),
            NextStep::More | NextStep::End => None,
        }
    }

    /// Like [`Self::next`], but returns after this number of skipped pods, so that the caller can yield its thread.
    pub fn next_within(&mut self, max_skipped: usize) -> NextStep {
        if self.pending_step.is_some() {
            self.record_result(StepResult::Failed);
        }
        for _ in 0..max_skipped {
            let Some(queued) = self.queue.pop_front() else { return NextStep::End };
            let (pod, decision) = match queued {
                QueuedAction::EndSurge if self.decider.is_end_surge_backed_off() => continue,
                QueuedAction::EndSurge => (0, Ok(StepDecision::Act(Action::EndSurge))),
                QueuedAction::RemoveBoost(pod) => match self.decider.decide_boost_removal(pod) {
                    Some(action) => (pod, Ok(StepDecision::Act(action))),
                    // Keep the outcome of its recommendation. Do not report that boost removal has to wait.
                    None => continue,
                },
                QueuedAction::InPlace(pod) => (pod, self.decider.decide_resize(pod)),
                QueuedAction::Evict(pod) => (pod, self.decider.decide_eviction(pod)),
            };
            match decision {
                Ok(StepDecision::Act(action)) => {
                    return NextStep::Step(self.start_step(pod, action));
                }
                Ok(StepDecision::Evict) => self.queue.push_back(QueuedAction::Evict(pod)),
                Err(skip) => self.skip(pod, skip),
            }
        }
        NextStep::More
    }

    /// The targets of autoscalers that have to be written before a step, or the step must be skipped: it changes requests that
    /// they are relative to.
    pub fn targets_before(&self, step: &UpdateStep) -> Vec<TargetChange> {
        targets::before_step(&self.decider.workload, &self.decision.steps, step)
    }

    /// The targets of autoscalers that no longer belong to the requests of the pods. There are none while pods change.
    pub fn outdated_targets(&self) -> Vec<TargetChange> {
        let is_idle = self.decision.steps.is_empty() && self.pending_step.is_none();
        if is_idle { targets::of_settled_pods(&self.decider.workload) } else { Vec::new() }
    }

    pub fn record_result(&mut self, result: StepResult) {
        let Some(PendingStep { step, state_before, evicts_on_failure }) = self.pending_step.take()
        else {
            return;
        };
        let pod = step.pod;
        if result == StepResult::Done {
            match &step.action {
                // The pod itself has not changed.
                Action::Surge => self.skip(pod, SkipReason::Surging),
                Action::EndSurge | Action::RemoveBoost { .. } => {}
                action => self.decision.pod_outcomes[pod] = PodOutcome::Changed(action.into_str()),
            }
            let StepDecider { workload, state, .. } = &mut self.decider;
            let forgets = workload.settings.fixes.has(Fix::InfeasibleResizesExpire);
            if forgets && matches!(step.action, Action::Resize { .. }) {
                // The resize was accepted, so the node evaluates it again.
                state.workload.refusals.remove(&workload.views[pod].pod.spec.uid);
            }
            if matches!(step.action, Action::Evict { .. }) && state.workload.surge.is_some() {
                self.queue.push_front(QueuedAction::EndSurge);
            }
        } else {
            // If the result is unknown, the budget stays charged.
            if result != StepResult::Indeterminate {
                self.decider.workload.uncount_in_group(pod, &step.action);
                self.decider.state = state_before;
            }
            let skip = match result {
                StepResult::BlockedByBudget => SkipReason::DisruptionBudget,
                StepResult::PersistFailed => SkipReason::PersistFailed,
                StepResult::InsufficientCapacity => SkipReason::Infeasible,
                StepResult::Done
                | StepResult::PodChanged
                | StepResult::Failed
                | StepResult::Indeterminate => SkipReason::Failed,
            };
            if !matches!(step.action, Action::EndSurge | Action::RemoveBoost { .. }) {
                self.skip(pod, skip);
            }
            self.learn_from_result(pod, &step.action, result);
            let is_undecided = matches!(
                result,
                StepResult::PersistFailed | StepResult::Indeterminate | StepResult::PodChanged
            );
            if evicts_on_failure && !is_undecided {
                self.queue.push_back(QueuedAction::Evict(pod));
            }
        }
        self.update_backoff(pod, &step.action, result);
        self.decision.steps.push((step, result));
    }

    fn learn_from_result(&mut self, pod: usize, action: &Action, result: StepResult) {
        let StepDecider { workload, state, blocked_owners, .. } = &mut self.decider;
        let (view, now) = (&workload.views[pod], workload.context.now);
        match (action, result) {
            (Action::Resize { .. }, StepResult::InsufficientCapacity) => {
                let only_in_place = workload.mode() == UpdateMode::InPlace;
                if only_in_place || workload.settings.fixes.has(Fix::InfeasibleResizesExpire) {
                    let targets = workload.uncapped_targets().unwrap_or_default();
                    let (uid, by) = (&view.pod.spec.uid, RejectedBy::Server);
                    state.workload.refusals.record(uid, by, targets, now);
                }
            }
            // A PodDisruptionBudget that blocks one pod blocks the others of its group. Upstream tries each of them.
            (Action::Evict { .. }, StepResult::BlockedByBudget)
                if workload.settings.compat == Compat::Plimsoll =>
            {
                blocked_owners.extend(view.pod.status.owner.clone());
            }
            _ => {}
        }
    }

    /// Updates the backoff of the request by its result.
    fn update_backoff(&mut self, pod: usize, action: &Action, result: StepResult) {
        let StepDecider { workload, state, .. } = &mut self.decider;
        let (Pod { spec, status }, now) = (workload.views[pod].pod, workload.context.now);
        let backoff = &mut state.backoff;
        let request = match (action, &status.owner, result) {
            (Action::Evict { .. }, owner, StepResult::Done) => {
                for request in eviction_requests(&spec.uid, owner.as_ref()) {
                    backoff.reset(&request);
                }
                return;
            }
            (Action::Evict { .. }, Some(owner), StepResult::BlockedByBudget) => {
                RefusedRequest::EvictAnyOf(owner.clone())
            }
            (Action::Evict { .. }, ..) => RefusedRequest::Evict(spec.uid.as_ref().into()),
            (Action::Resize { .. }, ..) => RefusedRequest::Resize(spec.uid.as_ref().into()),
            (Action::Surge | Action::EndSurge, Some(owner), _) => {
                RefusedRequest::Surge(owner.clone())
            }
            _ => return,
        };
        match result {
            StepResult::Done => backoff.reset(&request),
            StepResult::BlockedByBudget => {
                backoff.record_refusal(request, SkipReason::DisruptionBudget, now);
            }
            StepResult::Failed => backoff.record_refusal(request, SkipReason::Failed, now),
            // Infeasible resizes are stored separately. The other results are not refusals.
            StepResult::InsufficientCapacity
            | StepResult::Indeterminate
            | StepResult::PersistFailed
            | StepResult::PodChanged => {}
        }
    }

    /// Starts a step: records it in the state, and returns it.
    fn start_step(&mut self, pod: usize, action: Action) -> UpdateStep {
        let StepDecider { workload, state, .. } = &mut self.decider;
        let state_before = state.clone();
        let evicts_on_failure = matches!(action, Action::Resize { .. })
            && workload.mode() == UpdateMode::InPlaceOrRecreate;
        let (subject, now) = (workload.subject, workload.context.now);
        workload.count_in_group(pod, &action);
        match &action {
            Action::Surge => {
                state.workload.surge = Some(Surge { at: now, evicted: false });
                let deployment = &subject.sizing.spec.spec.target_ref.name;
                state.budget.record_surge(subject.vpa, deployment);
            }
            Action::EndSurge => {
                state.workload.surge = None;
                state.budget.remove_surge(subject.vpa);
            }
            Action::RemoveBoost { .. } => {}
            Action::Evict { .. } => {
                self.record_change(pod, ChangeKind::Evicted, None, BudgetKind::Disruption, now);
                if let Some(surge) = &mut self.decider.state.workload.surge {
                    surge.evicted = true;
                }
            }
            Action::Resize { sized_containers, restarts_containers, .. } => {
                let wrote = spec_hash_with(workload, pod, sized_containers);
                let kind =
                    if *restarts_containers { BudgetKind::Disruption } else { BudgetKind::Resize };
                self.record_change(pod, ChangeKind::Resized, Some(wrote), kind, now);
            }
        }
        let needs_persisting = self.decider.state != state_before;
        let step = UpdateStep { pod, action, needs_persisting };
        self.pending_step =
            Some(PendingStep { step: step.clone(), state_before, evicts_on_failure });
        step
    }

    fn record_change(
        &mut self,
        pod: usize,
        change: ChangeKind,
        wrote: Option<u64>,
        kind: BudgetKind,
        now: Time,
    ) {
        let is_eviction = change == ChangeKind::Evicted;
        let state = &mut self.decider.state.workload;
        for resource in self.decider.workload.shared_requests[pod].begins(is_eviction) {
            state.record_request_change(resource, now);
        }
        let StepDecider { workload: pods, .. } = &self.decider;
        let guards = &pods.settings.guards;
        if !guards.needs_state() {
            return;
        }
        let entry = self.decider.rollout_entry(pod).unwrap_or(RolloutEntry::Continue);
        let health = pods.health_of_all();
        let target = self.decider.candidates[pod]
            .as_ref()
            .map(|candidate| recommended_targets(&candidate.recommendation));
        let Pod { spec, status } = pods.views[pod].pod;
        let (restarts, generation) = (status.restarts(), status.generation);
        let (vpa, uid, is_planned) = (pods.subject.vpa, spec.uid.clone(), pods.subject.is_planned);
        let PersistedState { workload, budget, .. } = &mut self.decider.state;
        let target = target.unwrap_or_default();
        let rollout_change = match (change, kind) {
            (ChangeKind::Evicted, _) => RolloutChange::Eviction,
            (ChangeKind::Resized, BudgetKind::Resize) if is_planned => RolloutChange::PlannedResize,
            (ChangeKind::Resized, _) => RolloutChange::Resize,
        };
        record_change(workload, entry, rollout_change, health, target, guards, now);
        workload.record(PodChange { uid, at: now, what: change, wrote, generation, restarts });
        if is_eviction {
            budget.record_trial(vpa, guards, now);
        }
        budget.record(&vpa.namespace, kind, is_eviction, now);
    }

    /// Ends the pass. Pods that were not processed are skipped.
    pub fn finish(self) -> Decision {
        Decision { state: self.decider.state, ..self.decision }
    }

    /// Explains a pod; `None` if the index is out of range. Call it before the first step.
    pub fn explain_pod(&self, pod: usize) -> Option<PodExplanation> {
        let order = self.queue.iter().filter_map(|queued| match queued {
            QueuedAction::InPlace(pod) | QueuedAction::Evict(pod) => Some(*pod),
            QueuedAction::EndSurge | QueuedAction::RemoveBoost(_) => None,
        });
        PodExplanation::new(&self.decider.workload, pod, order.collect())
    }

    fn skip(&mut self, pod: usize, reason: SkipReason) {
        if let Some(outcome) = self.decision.pod_outcomes.get_mut(pod) {
            *outcome = PodOutcome::Skipped(reason);
        }
    }
}

/// Returns the hash of a pod's spec with these sizes.
fn spec_hash_with(workload: &PassWorkload<'_>, pod: usize, sizes: &[SizedContainer]) -> u64 {
    let pod_spec = &workload.views[pod].pod.spec;
    let specs: Vec<(&str, Resources)> = pod_spec
        .sized_containers(workload.subject.sizing.rules.sidecars)
        .map(|(container_ref, container)| {
            let size = sizes.iter().find(|size| size.container == container_ref);
            let spec = &container.spec;
            (&*container.name, size.map_or_else(|| spec.clone(), |size| size.apply_to(spec)))
        })
        .collect();
    spec_hash(specs.iter().map(|(name, spec)| (*name, spec)))
}
