//! The steps of a pass, and what each of them costs the next.

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

/// What is decided about a pod whose turn it is.
pub(super) enum StepDecision {
    Act(Action),
    /// It is looked at once more, among those that are evicted.
    Evict,
}

/// How a pass goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// With this step.
    Step(UpdateStep),
    /// With more pods: as many were skipped as the caller wanted to wait for.
    More,
    /// It does not.
    End,
}

impl UpdatePass<'_> {
    /// The next step. It counts as booked: what is to be remembered is in [`Pass::recall`] already.
    #[expect(clippy::should_implement_trait, reason = "what came of a step has to be noted first")]
    pub fn next(&mut self) -> Option<UpdateStep> {
        match self.next_within(usize::MAX) {
            NextStep::Step(step) => Some(step),
            NextStep::More | NextStep::End => None,
        }
    }

    /// The same, for a caller whose thread has other work to do: returns after so many pods that were skipped.
    pub fn next_within(&mut self, most: usize) -> NextStep {
        if self.pending_step.is_some() {
            self.record_result(StepResult::Failed);
        }
        for _ in 0..most {
            let Some(queued) = self.queue.pop_front() else { return NextStep::End };
            let (pod, turn) = match queued {
                QueuedAction::EndSurge if self.is_end_surge_backed_off() => continue,
                QueuedAction::EndSurge => (0, Ok(StepDecision::Act(Action::EndSurge))),
                QueuedAction::RemoveBoost(pod) => match self.decide_boost_removal(pod) {
                    Some(action) => (pod, Ok(StepDecision::Act(action))),
                    // What was decided about its recommendation is told, not that its boost has to wait.
                    None => continue,
                },
                QueuedAction::InPlace(pod) => (pod, self.decide_resize(pod)),
                QueuedAction::Evict(pod) => (pod, self.decide_eviction(pod)),
            };
            match turn {
                Ok(StepDecision::Act(action)) => {
                    return NextStep::Step(self.start_step(pod, action));
                }
                Ok(StepDecision::Evict) => self.queue.push_back(QueuedAction::Evict(pod)),
                Err(skip) => self.skip(pod, skip),
            }
        }
        NextStep::More
    }

    /// Notes what came of the step under way.
    pub fn record_result(&mut self, outcome: StepResult) {
        let Some(PendingStep { step, state_before: before, evicts_on_failure: falls_back }) =
            self.pending_step.take()
        else {
            return;
        };
        let pod = step.pod;
        if outcome == StepResult::Done {
            self.pod_outcomes[pod] = match &step.action {
                // The pod itself is still as it was.
                Action::Surge => Some(PodOutcome::Skipped(SkipReason::Surging)),
                Action::EndSurge | Action::RemoveBoost { .. } => self.pod_outcomes[pod].take(),
                action => Some(PodOutcome::Changed(action.as_str())),
            };
            let forgets = self.settings.fixes.has(Fix::InfeasibleResizesExpire);
            if forgets && matches!(step.action, Action::Resize { .. }) {
                // The node is asked anew, and will answer anew.
                self.state.workload.refusals.remove(&self.views[pod].pod.spec.uid);
            }
            if matches!(step.action, Action::Evict { .. }) && self.state.workload.surge.is_some() {
                self.queue.push_front(QueuedAction::EndSurge);
            }
        } else {
            // What may have been done is not given back.
            if outcome != StepResult::Indeterminate {
                self.revert_step(&step, before);
            }
            let skip = match outcome {
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
            self.learn_from_result(pod, &step.action, outcome);
            let is_open = matches!(
                outcome,
                StepResult::PersistFailed | StepResult::Indeterminate | StepResult::PodChanged
            );
            if falls_back && !is_open {
                self.queue.push_back(QueuedAction::Evict(pod));
            }
        }
        self.update_backoff(pod, &step.action, outcome);
        self.steps.push((step, outcome));
    }

    fn learn_from_result(&mut self, pod: usize, action: &Action, outcome: StepResult) {
        let view = &self.views[pod];
        match (action, outcome) {
            (Action::Resize { .. }, StepResult::InsufficientCapacity) => {
                let only_in_place = self.subject.sizing.spec.update_mode() == UpdateMode::InPlace;
                if only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
                    let wanted = self.uncapped_targets().unwrap_or_default();
                    let (uid, by) = (&view.pod.spec.uid, RejectedBy::Server);
                    self.state.workload.refusals.record(uid, by, wanted, self.context.now);
                }
            }
            // What one pod's budget answers it answers to the others of its group. Upstream asks for each.
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
        let (life, sizing) = (&view.pod.status, &self.subject.sizing);
        let group = self.groups.get(life).ok()?;
        if life.phase == Phase::Pending || life.is_resizing() || !self.context.can_resize {
            return None;
        }
        // Each is counted by itself, as upstream's queue does it: less CPU takes nothing down.
        let alone = GroupBudget { evicted: 0, resized: 0, ..group.budget };
        let standing = boost::status(&view.pod.spec, &sizing.spec, self.context.now);
        let containers = standing.expired.iter().map(|&name| name.into()).collect();
        let sizes = sizing.without_boost(&view.pod.spec, &standing).ok()?;
        let allowed = alone.allows_one_more() || view.is_dead;
        allowed.then_some(Action::RemoveBoost { containers, sized_containers: sizes })
    }

    fn decide_eviction(&mut self, pod: usize) -> Result<StepDecision, SkipReason> {
        let fixes = self.settings.fixes;
        let ours = self.settings.compat == Compat::Plimsoll;
        let worth = self.update_candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        let need = worth.reason;
        if fixes.has(Fix::RequirementsHoldEvictionsOnly) {
            self.ensure_requirements_met(pod, &worth.recommendation)?;
        }
        if !self.context.is_admission_ready {
            return Err(SkipReason::AdmissionUnready);
        }
        let view = &self.views[pod];
        if ours && view.is_starting() && need != UpdateReason::QuickOom {
            return Err(SkipReason::Starting);
        }
        if view.pod.status.owner.as_ref().is_some_and(|owner| self.blocked_owners.contains(owner)) {
            return Err(SkipReason::DisruptionBudget);
        }
        for asked in eviction_requests(&view.pod.spec.uid, view.pod.status.owner.as_ref()) {
            self.check_backoff(&asked)?;
        }
        if self.is_ending_surge {
            return Err(SkipReason::Surging);
        }
        let surge = self.decide_surge(pod)?;
        if surge.is_none() {
            self.may_evict(pod)?;
        }
        if ours {
            let replacement = self.replacement(pod);
            self.subject.sizing.ensure_replacement_sized(&self.views[pod].pod.spec, replacement)?;
        }
        if let Some(action) = surge {
            return Ok(StepDecision::Act(action));
        }
        self.check_guards(pod, BudgetKind::Disruption, true)?;
        Ok(StepDecision::Act(Action::Evict { reason: need }))
    }

    /// When the place of a pod is filled. A StatefulSet needs the name of the old one for the new one; after a surge the
    /// new one is there already.
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

    /// Whether a second pod may be started to take the place of this one.
    pub(super) fn may_surge(&self, pod: usize) -> bool {
        let view = &self.views[pod];
        let is_replica = view.pod.status.owner.as_ref().is_some_and(|it| &*it.kind == "ReplicaSet");
        self.settings.guards.surge && self.subject.surges && is_replica && !view.is_dead
    }

    /// A pod that is the only one gets a second one beside it first, where that is wanted.
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

    /// Whether the same was asked for a short while ago, and not done. Upstream asks in every pass.
    pub(super) fn check_backoff(&self, asked: &RefusedRequest) -> Result<(), SkipReason> {
        if self.settings.compat == Compat::Upstream {
            return Ok(());
        }
        self.state
            .backoff
            .reason_for(asked, self.context.now)
            .map_or(Ok(()), |why| Err(why.clone()))
    }

    fn is_end_surge_backed_off(&self) -> bool {
        let owner = self.views.first().and_then(|view| view.pod.status.owner.clone());
        owner.is_some_and(|owner| self.check_backoff(&RefusedRequest::Surge(owner)).is_err())
    }

    /// Remembers whether the server did what it was asked for.
    fn update_backoff(&mut self, pod: usize, action: &Action, outcome: StepResult) {
        let Pod { spec: size, status: life } = self.views[pod].pod;
        let asked = match (action, &life.owner, outcome) {
            (Action::Evict { .. }, owner, StepResult::Done) => {
                for asked in eviction_requests(&size.uid, owner.as_ref()) {
                    self.state.backoff.reset(&asked);
                }
                return;
            }
            (Action::Evict { .. }, Some(owner), StepResult::BlockedByBudget) => {
                RefusedRequest::EvictAnyOf(owner.clone())
            }
            (Action::Evict { .. }, ..) => RefusedRequest::Evict(size.uid.as_ref().into()),
            (Action::Resize { .. }, ..) => RefusedRequest::Resize(size.uid.as_ref().into()),
            (Action::Surge | Action::EndSurge, Some(owner), _) => {
                RefusedRequest::Surge(owner.clone())
            }
            _ => return,
        };
        let rests = &mut self.state.backoff;
        match outcome {
            StepResult::Done => rests.reset(&asked),
            StepResult::BlockedByBudget => {
                rests.record_refusal(asked, SkipReason::DisruptionBudget, self.context.now);
            }
            StepResult::Failed => rests.record_refusal(asked, SkipReason::Failed, self.context.now),
            // A node that has no room is remembered for longer; what was not tried, or may be done, is another matter.
            StepResult::InsufficientCapacity
            | StepResult::Indeterminate
            | StepResult::PersistFailed
            | StepResult::PodChanged => {}
        }
    }

    /// Books a step.
    fn start_step(&mut self, pod: usize, action: Action) -> UpdateStep {
        let before = self.state.clone();
        let mode = self.subject.sizing.spec.update_mode();
        let falls_back =
            matches!(action, Action::Resize { .. }) && mode == UpdateMode::InPlaceOrRecreate;
        let now = self.context.now;
        self.count_in_group(pod, &action);
        match &action {
            Action::Surge => {
                self.state.workload.surge = Some(Surge { at: now, evicted: false });
            }
            Action::EndSurge => self.state.workload.surge = None,
            Action::RemoveBoost { .. } => {}
            Action::Evict { .. } => {
                self.record_change(pod, ChangeKind::Evicted, None, BudgetKind::Disruption, now);
                if let Some(surge) = &mut self.state.workload.surge {
                    surge.evicted = true;
                }
            }
            Action::Resize { sized_containers: sizes, restarts_containers: restarts, .. } => {
                let wrote = self.spec_hash_with(pod, sizes);
                let charge = if *restarts { BudgetKind::Disruption } else { BudgetKind::Resize };
                self.record_change(pod, ChangeKind::Resized, Some(wrote), charge, now);
            }
        }
        let is_booked = self.state != before;
        let step = UpdateStep { pod, action, needs_persisting: is_booked };
        self.pending_step = Some(PendingStep {
            step: step.clone(),
            state_before: before,
            evicts_on_failure: falls_back,
        });
        step
    }

    fn count_in_group(&mut self, pod: usize, action: &Action) {
        let life = &self.views[pod].pod.status;
        let is_down = self.views[pod].candidate().is_down
            && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let Some(group) = self.groups.get_mut(life) else { return };
        match action {
            // A pod that is down already takes nothing from the others.
            Action::Evict { .. } if life.phase != Phase::Pending && !is_down => {
                group.budget.evicted += 1;
            }
            Action::Resize { .. } if !is_down => group.budget.resized += 1,
            _ => {}
        }
    }

    fn record_change(
        &mut self,
        pod: usize,
        what: ChangeKind,
        wrote: Option<u64>,
        charge: BudgetKind,
        now: Time,
    ) {
        if !self.settings.guards.needs_state() {
            return;
        }
        let entry = self.rollout_entry(pod).unwrap_or(RolloutEntry::Continue);
        let condition = self.health_of_all();
        let target = self.update_candidates[pod]
            .as_ref()
            .map(|worth| recommended_targets(&worth.recommendation));
        let life = &self.views[pod].pod.status;
        let (restarts, generation) = (life.restarts(), life.generation);
        let uid = self.views[pod].pod.spec.uid.clone();
        let is_eviction = what == ChangeKind::Evicted;
        let PersistedState { workload: memory, budget: ledger, .. } = &mut self.state;
        let guards = &self.settings.guards;
        memory.record_change(
            entry,
            is_eviction,
            condition,
            target.unwrap_or_default(),
            guards,
            now,
        );
        memory.record(PodChange { uid, at: now, what, wrote, generation, restarts });
        if is_eviction {
            ledger.record_trial(self.subject.vpa, guards, now);
        }
        ledger.record(&self.subject.vpa.namespace, charge, is_eviction, now);
    }

    /// A hash over the spec of a pod that was given these sizes.
    fn spec_hash_with(&self, pod: usize, sizes: &[sizing::SizedContainer]) -> u64 {
        let size = &self.views[pod].pod.spec;
        let specs: Vec<(&str, sizing::Resources)> = size
            .sized_containers(self.subject.sizing.rules.sidecars)
            .map(|(place, one)| {
                let new = sizes.iter().find(|size| size.container == place);
                (&*one.name, new.map_or_else(|| one.spec.clone(), |new| new.apply_to(&one.spec)))
            })
            .collect();
        spec_hash(specs.iter().map(|(name, spec)| (*name, spec)))
    }
}

/// What an eviction of this pod asks for.
fn eviction_requests(
    uid: &str,
    owner: Option<&PodOwner>,
) -> impl Iterator<Item = RefusedRequest> + use<> {
    let all_of_it = owner.map(|owner| RefusedRequest::EvictAnyOf(owner.clone()));
    all_of_it.into_iter().chain([RefusedRequest::Evict(uid.into())])
}
