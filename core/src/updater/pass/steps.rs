//! The steps of a pass, and what each step costs the next.

use crate::types::Time;

use super::{PendingStep, PersistedState, Pod, QueuedAction, UpdatePass};
use crate::{
    api::vpa::UpdateMode,
    sizing::{self, boost},
    types::compat::{Compat, Fix},
    updater::{
        action::{Action, PodOutcome, StepResult, UpdateStep},
        guard::{
            BudgetKind, ChangeKind, PodChange,
            infeasible::{RejectedBy, recommended_targets},
            rollout::RolloutEntry,
            workload_state::{Surge, spec_hash},
        },
        pod_sizing::Replacement,
        pod_status::{Phase, PodOwner},
        refusal_backoff::RefusedRequest,
        replica_group::GroupBudget,
        skip_reason::SkipReason,
        update_reason::UpdateReason,
    },
};

/// The decision about the next queued pod.
pub(super) enum StepDecision {
    Act(Action),
    /// Queue the pod again for eviction.
    Evict,
}

/// How a pass continues.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// Execute this step.
    Step(UpdateStep),
    /// The maximum number of pods was skipped. Call again for the next one.
    More,
    /// The pass has no more steps.
    End,
}

impl UpdatePass<'_> {
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
                QueuedAction::EndSurge if self.is_end_surge_backed_off() => continue,
                QueuedAction::EndSurge => (0, Ok(StepDecision::Act(Action::EndSurge))),
                QueuedAction::RemoveBoost(pod) => match self.decide_boost_removal(pod) {
                    Some(action) => (pod, Ok(StepDecision::Act(action))),
                    // Keep the outcome of its recommendation. Do not report that boost removal has to wait.
                    None => continue,
                },
                QueuedAction::InPlace(pod) => (pod, self.decide_resize(pod)),
                QueuedAction::Evict(pod) => (pod, self.decide_eviction(pod)),
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

    /// Records the result of the current step.
    pub fn record_result(&mut self, result: StepResult) {
        let Some(PendingStep { step, state_before, evicts_on_failure }) = self.pending_step.take()
        else {
            return;
        };
        let pod = step.pod;
        if result == StepResult::Done {
            self.pod_outcomes[pod] = match &step.action {
                // The pod itself has not changed.
                Action::Surge => Some(PodOutcome::Skipped(SkipReason::Surging)),
                Action::EndSurge | Action::RemoveBoost { .. } => self.pod_outcomes[pod].take(),
                action => Some(PodOutcome::Changed(action.as_str())),
            };
            let forgets = self.settings.fixes.has(Fix::InfeasibleResizesExpire);
            if forgets && matches!(step.action, Action::Resize { .. }) {
                // The resize was accepted, so the node evaluates it again.
                self.state.workload.refusals.remove(&self.views[pod].pod.spec.uid);
            }
            if matches!(step.action, Action::Evict { .. }) && self.state.workload.surge.is_some() {
                self.queue.push_front(QueuedAction::EndSurge);
            }
        } else {
            // If the result is unknown, the budget stays charged.
            if result != StepResult::Indeterminate {
                self.revert_step(&step, state_before);
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
        self.steps.push((step, result));
    }

    fn learn_from_result(&mut self, pod: usize, action: &Action, result: StepResult) {
        let view = &self.views[pod];
        match (action, result) {
            (Action::Resize { .. }, StepResult::InsufficientCapacity) => {
                let only_in_place = self.subject.sizing.spec.update_mode() == UpdateMode::InPlace;
                if only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
                    let targets = self.uncapped_targets().unwrap_or_default();
                    let (uid, by) = (&view.pod.spec.uid, RejectedBy::Server);
                    self.state.workload.refusals.record(uid, by, targets, self.context.now);
                }
            }
            // A PodDisruptionBudget that blocks one pod blocks the others of its group. Upstream tries each of them.
            (Action::Evict { .. }, StepResult::BlockedByBudget)
                if self.settings.compat == Compat::Plimsoll =>
            {
                self.blocked_owners.extend(view.pod.status.owner.clone());
            }
            _ => {}
        }
    }

    fn revert_step(&mut self, step: &UpdateStep, before: PersistedState) {
        if let Some(group) = self.groups.get_mut(&self.views[step.pod].pod.status) {
            let budget = &mut group.budget;
            match step.action {
                Action::Evict { .. } => budget.evicted = budget.evicted.saturating_sub(1),
                Action::Resize { .. } => budget.resized = budget.resized.saturating_sub(1),
                _ => {}
            }
        }
        self.state = before;
    }

    fn decide_boost_removal(&self, pod: usize) -> Option<Action> {
        let view = &self.views[pod];
        let (status, sizing) = (&view.pod.status, &self.subject.sizing);
        let group = self.groups.get(status).ok()?;
        if status.phase == Phase::Pending || status.is_resizing() || !self.context.can_resize {
            return None;
        }
        // Check each removal on its own, as upstream does: lowering CPU does not disrupt the pod.
        let budget = GroupBudget { evicted: 0, resized: 0, ..group.budget };
        let boosts = boost::status(&view.pod.spec, &sizing.spec, self.context.now);
        let containers = boosts.expired.iter().map(|&name| name.into()).collect();
        let sizes = sizing.desired_resources(&view.pod.spec, &boosts).ok()?;
        let allowed = budget.allows_one_more() || view.is_dead;
        allowed.then_some(Action::RemoveBoost { containers, sized_containers: sizes })
    }

    fn decide_eviction(&mut self, pod: usize) -> Result<StepDecision, SkipReason> {
        let fixes = self.settings.fixes;
        let is_plimsoll = self.settings.compat == Compat::Plimsoll;
        let candidate = self.update_candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        let reason = candidate.reason;
        if fixes.has(Fix::RequirementsHoldEvictionsOnly) {
            self.ensure_requirements_met(pod, &candidate.recommendation)?;
        }
        if !self.context.is_admission_ready {
            return Err(SkipReason::AdmissionUnready);
        }
        let view = &self.views[pod];
        if is_plimsoll && view.is_starting() && reason != UpdateReason::QuickOom {
            return Err(SkipReason::Starting);
        }
        if view.pod.status.owner.as_ref().is_some_and(|owner| self.blocked_owners.contains(owner)) {
            return Err(SkipReason::DisruptionBudget);
        }
        for request in eviction_requests(&view.pod.spec.uid, view.pod.status.owner.as_ref()) {
            self.check_backoff(&request)?;
        }
        if self.is_ending_surge {
            return Err(SkipReason::Surging);
        }
        let surge = self.decide_surge(pod)?;
        if surge.is_none() {
            self.may_evict(pod)?;
        }
        if is_plimsoll {
            let replacement = self.replacement(pod);
            self.subject.sizing.ensure_replacement_sized(&self.views[pod].pod.spec, replacement)?;
        }
        if let Some(action) = surge {
            return Ok(StepDecision::Act(action));
        }
        self.check_guards(pod, BudgetKind::Disruption, true)?;
        Ok(StepDecision::Act(Action::Evict { reason }))
    }

    /// Returns when the replacement of a pod is created. A StatefulSet reuses the name of the old pod; after a surge, the
    /// replacement exists already.
    fn replacement(&self, pod: usize) -> Replacement {
        let owner = self.views[pod].pod.status.owner.as_ref();
        let is_stateful = owner.is_some_and(|owner| &*owner.kind == "StatefulSet");
        let is_there = self.state.workload.surge.is_some() && self.may_surge(pod);
        if is_stateful || is_there {
            Replacement::AfterTermination
        } else {
            Replacement::WhileTerminating
        }
    }

    /// Whether a second replica may be started before this pod is evicted.
    pub(super) fn may_surge(&self, pod: usize) -> bool {
        let view = &self.views[pod];
        let owner = view.pod.status.owner.as_ref();
        let is_replica = owner.is_some_and(|owner| &*owner.kind == "ReplicaSet");
        self.settings.guards.surge && self.subject.surges && is_replica && !view.is_dead
    }

    /// Decides whether a second replica is started first, if the pod is the only one and surges are enabled.
    fn decide_surge(&self, pod: usize) -> Result<Option<Action>, SkipReason> {
        let group = self.groups.get(&self.views[pod].pod.status)?;
        let is_single = group.live == 1 && group.budget.configured <= 1;
        match self.state.workload.surge {
            _ if !self.may_surge(pod) => Ok(None),
            Some(_) if group.budget.running < 2 => Err(SkipReason::Surging),
            None if is_single => {
                if let Some(owner) = &self.views[pod].pod.status.owner {
                    self.check_backoff(&RefusedRequest::Surge(owner.clone()))?;
                }
                self.check_guards(pod, BudgetKind::Disruption, true)?;
                Ok(Some(Action::Surge))
            }
            _ => Ok(None),
        }
    }

    /// Returns an error if the request was refused recently. Upstream retries in every pass.
    pub(super) fn check_backoff(&self, request: &RefusedRequest) -> Result<(), SkipReason> {
        if self.settings.compat == Compat::Upstream {
            return Ok(());
        }
        self.state
            .backoff
            .reason_for(request, self.context.now)
            .map_or(Ok(()), |skip| Err(skip.clone()))
    }

    fn is_end_surge_backed_off(&self) -> bool {
        let owner = self.views.first().and_then(|view| view.pod.status.owner.clone());
        owner.is_some_and(|owner| self.check_backoff(&RefusedRequest::Surge(owner)).is_err())
    }

    /// Updates the backoff of the request by its result.
    fn update_backoff(&mut self, pod: usize, action: &Action, result: StepResult) {
        let Pod { spec, status } = self.views[pod].pod;
        let request = match (action, &status.owner, result) {
            (Action::Evict { .. }, owner, StepResult::Done) => {
                for request in eviction_requests(&spec.uid, owner.as_ref()) {
                    self.state.backoff.reset(&request);
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
        let backoff = &mut self.state.backoff;
        match result {
            StepResult::Done => backoff.reset(&request),
            StepResult::BlockedByBudget => {
                backoff.record_refusal(request, SkipReason::DisruptionBudget, self.context.now);
            }
            StepResult::Failed => {
                backoff.record_refusal(request, SkipReason::Failed, self.context.now);
            }
            // Infeasible resizes are stored separately. The other results are not refusals.
            StepResult::InsufficientCapacity
            | StepResult::Indeterminate
            | StepResult::PersistFailed
            | StepResult::PodChanged => {}
        }
    }

    /// Starts a step: records it in the state, and returns it.
    fn start_step(&mut self, pod: usize, action: Action) -> UpdateStep {
        let state_before = self.state.clone();
        let mode = self.subject.sizing.spec.update_mode();
        let evicts_on_failure =
            matches!(action, Action::Resize { .. }) && mode == UpdateMode::InPlaceOrRecreate;
        let now = self.context.now;
        self.count_in_group(pod, &action);
        match &action {
            Action::Surge => {
                self.state.workload.surge = Some(Surge { at: now, evicted: false });
                let deployment = &self.subject.sizing.spec.spec.target_ref.name;
                self.state.budget.record_surge(self.subject.vpa, deployment);
            }
            Action::EndSurge => {
                self.state.workload.surge = None;
                self.state.budget.remove_surge(self.subject.vpa);
            }
            Action::RemoveBoost { .. } => {}
            Action::Evict { .. } => {
                self.record_change(pod, ChangeKind::Evicted, None, BudgetKind::Disruption, now);
                if let Some(surge) = &mut self.state.workload.surge {
                    surge.evicted = true;
                }
            }
            Action::Resize { sized_containers, restarts_containers, .. } => {
                let wrote = self.spec_hash_with(pod, sized_containers);
                let kind =
                    if *restarts_containers { BudgetKind::Disruption } else { BudgetKind::Resize };
                self.record_change(pod, ChangeKind::Resized, Some(wrote), kind, now);
            }
        }
        let needs_persisting = self.state != state_before;
        let step = UpdateStep { pod, action, needs_persisting };
        self.pending_step =
            Some(PendingStep { step: step.clone(), state_before, evicts_on_failure });
        step
    }

    fn count_in_group(&mut self, pod: usize, action: &Action) {
        let status = &self.views[pod].pod.status;
        let is_down = self.views[pod].candidate().is_down
            && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let Some(group) = self.groups.get_mut(status) else { return };
        match action {
            // A pod that is unavailable already does not reduce the availability of its group.
            Action::Evict { .. } if status.phase != Phase::Pending && !is_down => {
                group.budget.evicted += 1;
            }
            Action::Resize { .. } if !is_down => group.budget.resized += 1,
            _ => {}
        }
    }

    fn record_change(
        &mut self,
        pod: usize,
        change: ChangeKind,
        wrote: Option<u64>,
        kind: BudgetKind,
        now: Time,
    ) {
        if !self.settings.guards.needs_state() {
            return;
        }
        let entry = self.rollout_entry(pod).unwrap_or(RolloutEntry::Continue);
        let health = self.health_of_all();
        let target = self.update_candidates[pod]
            .as_ref()
            .map(|candidate| recommended_targets(&candidate.recommendation));
        let status = &self.views[pod].pod.status;
        let (restarts, generation) = (status.restarts(), status.generation);
        let uid = self.views[pod].pod.spec.uid.clone();
        let is_eviction = change == ChangeKind::Evicted;
        let PersistedState { workload, budget, .. } = &mut self.state;
        let guards = &self.settings.guards;
        workload.record_change(entry, is_eviction, health, target.unwrap_or_default(), guards, now);
        workload.record(PodChange { uid, at: now, what: change, wrote, generation, restarts });
        if is_eviction {
            budget.record_trial(self.subject.vpa, guards, now);
        }
        budget.record(&self.subject.vpa.namespace, kind, is_eviction, now);
    }

    /// Returns the hash of a pod's spec with these sizes.
    fn spec_hash_with(&self, pod: usize, sizes: &[sizing::SizedContainer]) -> u64 {
        let pod_spec = &self.views[pod].pod.spec;
        let specs: Vec<(&str, sizing::Resources)> = pod_spec
            .sized_containers(self.subject.sizing.rules.sidecars)
            .map(|(container_ref, container)| {
                let size = sizes.iter().find(|size| size.container == container_ref);
                let spec = &container.spec;
                (&*container.name, size.map_or_else(|| spec.clone(), |size| size.apply_to(spec)))
            })
            .collect();
        spec_hash(specs.iter().map(|(name, spec)| (*name, spec)))
    }
}

/// Returns the requests that make up an eviction of this pod.
fn eviction_requests(
    uid: &str,
    owner: Option<&PodOwner>,
) -> impl Iterator<Item = RefusedRequest> + use<> {
    let any_of_owner = owner.map(|owner| RefusedRequest::EvictAnyOf(owner.clone()));
    any_of_owner.into_iter().chain([RefusedRequest::Evict(uid.into())])
}
