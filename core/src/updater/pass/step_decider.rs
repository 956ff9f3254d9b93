//! Decides what is done about one pod, and whether guards allow it.

use std::{collections::BTreeSet, sync::Arc};

use super::{PersistedState, candidates::UpdateCandidate, workload::PassWorkload};
use crate::{
    api::vpa::UpdateMode,
    sizing::{
        self,
        boost::{self, BoostStatus},
    },
    types::compat::{Compat, Fix},
    updater::{
        action::Action,
        guard::{
            BudgetKind, WindowState,
            freshness::ensure_fresh,
            infeasible::{RecommendedTarget, RejectedBy, asks_for_less, recommended_targets},
            rollout::{RolloutEntry, RolloutProgress, admit_change},
        },
        in_place::InPlaceDecision,
        pod_sizing::{PodSizing, Replacement},
        pod_status::{Phase, PodOwner},
        refusal_backoff::{RefusedRequest, eviction_requests},
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

/// Decides about pods, with the state so far.
pub(super) struct StepDecider<'a> {
    pub workload: PassWorkload<'a>,
    pub state: PersistedState,
    /// The candidates, indexed by pod.
    pub candidates: Vec<Option<UpdateCandidate>>,
    pub progress: RolloutProgress,
    /// Owners whose pods a PodDisruptionBudget blocks.
    pub blocked_owners: BTreeSet<PodOwner>,
    /// Whether a surge is ended without an eviction. Then no pod is evicted, or the workload might lose both.
    pub is_ending_surge: bool,
}

impl StepDecider<'_> {
    /// Decides what is done about a pod that may be resized.
    pub fn decide_resize(&mut self, pod: usize) -> Result<StepDecision, SkipReason> {
        let mode = self.workload.mode();
        let only_in_place = mode == UpdateMode::InPlace;
        let fixes = self.workload.settings.fixes;
        match self.workload.in_place_decision(pod, &mut self.state.resizes_first_seen) {
            InPlaceDecision::Approved => {}
            InPlaceDecision::Deferred(_)
                if only_in_place && !fixes.has(Fix::DeferredResizesWait) =>
            {
                self.workload.groups.get(&self.workload.views[pod].pod.status)?;
            }
            InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { .. })
                if !only_in_place && self.workload.may_surge(pod) =>
            {
                return Ok(StepDecision::Evict);
            }
            InPlaceDecision::Deferred(skip) => return Err(skip),
            InPlaceDecision::Evict => return Ok(StepDecision::Evict),
            InPlaceDecision::InfeasibleCached => return Err(SkipReason::Infeasible),
            InPlaceDecision::Infeasible => self.record_infeasible(pod)?,
        }
        if !self.workload.context.can_resize && fixes.has(Fix::OnlyPossibleResizes) {
            return if only_in_place { Err(SkipReason::NoResize) } else { Ok(StepDecision::Evict) };
        }
        let (pod_spec, sizing) = (&self.workload.views[pod].pod.spec, self.workload.sizing(pod));
        let boosts = boost::status(pod_spec, &sizing.spec, self.workload.context.now);
        let sizes = match sizing.resized(pod_spec, &boosts) {
            Ok(sizes) => sizes,
            Err(SkipReason::QosWouldChange) if !only_in_place => return Ok(StepDecision::Evict),
            // Upstream treats it as a failed resize.
            Err(_) if !only_in_place && !fixes.has(Fix::OnlyPossibleResizes) => {
                return Ok(StepDecision::Evict);
            }
            Err(skip) => return Err(skip),
        };
        let boosts_ended = boosts_ended(pod_spec, &sizes, &boosts, self.workload.settings.compat);
        let restarts_containers = PodSizing::restarts_containers(pod_spec, &sizes);
        let candidate = self.candidates[pod].as_ref();
        let reason = candidate.ok_or(SkipReason::NoRecommendation)?.reason;
        let kind = if restarts_containers { BudgetKind::Disruption } else { BudgetKind::Resize };
        self.check_backoff(&RefusedRequest::Resize(pod_spec.uid.as_ref().into()))?;
        self.check_guards(pod, kind, false)?;
        Ok(StepDecision::Act(Action::Resize {
            reason,
            sized_containers: sizes,
            boosts_ended,
            restarts_containers,
        }))
    }

    /// Records that a node rejected a resize. Ours does not retry unless a resource is lower than in the rejected resize;
    /// upstream always retries once.
    fn record_infeasible(&mut self, pod: usize) -> Result<(), SkipReason> {
        let now = self.workload.context.now;
        let pod_spec = &self.workload.views[pod].pod.spec;
        if !self.workload.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            let targets = self.workload.uncapped_targets().unwrap_or_default();
            self.state.workload.refusals.record(&pod_spec.uid, RejectedBy::Node, targets, now);
            return Ok(());
        }
        // The rejected resources are those of the spec.
        let refused: Vec<RecommendedTarget> = pod_spec
            .sized_containers(self.workload.subject.sizing.rules.sidecars)
            .map(|(_, container)| RecommendedTarget {
                container: container.name.clone(),
                target: container.spec.requests().clone(),
            })
            .collect();
        let candidate = self.candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        if asks_for_less(&recommended_targets(&candidate.recommendation), &refused) {
            return Ok(());
        }
        self.state.workload.refusals.record(&pod_spec.uid, RejectedBy::Node, refused, now);
        Err(SkipReason::Infeasible)
    }

    pub fn decide_boost_removal(&self, pod: usize) -> Option<Action> {
        let PassWorkload { subject, context, views, groups, .. } = &self.workload;
        let (view, sizing) = (&views[pod], &subject.sizing);
        let status = &view.pod.status;
        let group = groups.get(status).ok()?;
        if status.phase == Phase::Pending || status.is_resizing() || !context.can_resize {
            return None;
        }
        // Check each removal on its own, as upstream does: lowering CPU does not disrupt the pod.
        let budget = GroupBudget { evicted: 0, resized: 0, ..group.budget };
        let boosts = boost::status(&view.pod.spec, &sizing.spec, context.now);
        let containers = boosts.expired.iter().map(|&name| name.into()).collect();
        let sizes = sizing.desired_resources(&view.pod.spec, &boosts).ok()?;
        let allowed = budget.allows_one_more() || view.is_dead;
        allowed.then_some(Action::RemoveBoost { containers, sized_containers: sizes })
    }

    pub fn decide_eviction(&mut self, pod: usize) -> Result<StepDecision, SkipReason> {
        let fixes = self.workload.settings.fixes;
        let is_plimsoll = self.workload.settings.compat == Compat::Plimsoll;
        let candidate = self.candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        let reason = candidate.reason;
        if fixes.has(Fix::RequirementsHoldEvictionsOnly) {
            self.workload.ensure_requirements_met(pod, &candidate.recommendation)?;
        }
        self.workload.ensure_needs_eviction(pod)?;
        if !self.workload.context.is_admission_ready {
            return Err(SkipReason::AdmissionUnready);
        }
        let view = &self.workload.views[pod];
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
            self.workload.may_evict(pod, &mut self.state.resizes_first_seen)?;
        }
        if is_plimsoll {
            let PassWorkload { subject, views, .. } = &self.workload;
            let (pod_spec, replacement) = (&views[pod].pod.spec, self.replacement(pod));
            subject.sizing.ensure_replacement_sized(pod_spec, replacement)?;
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
        let owner = self.workload.views[pod].pod.status.owner.as_ref();
        let is_stateful = owner.is_some_and(|owner| &*owner.kind == "StatefulSet");
        let is_there = self.state.workload.surge.is_some() && self.workload.may_surge(pod);
        if is_stateful || is_there {
            Replacement::AfterTermination
        } else {
            Replacement::WhileTerminating
        }
    }

    /// Decides whether a second replica is started first, if the pod is the only one and surges are enabled.
    fn decide_surge(&self, pod: usize) -> Result<Option<Action>, SkipReason> {
        let group = self.workload.groups.get(&self.workload.views[pod].pod.status)?;
        let is_single = group.live == 1 && group.budget.configured <= 1;
        match self.state.workload.surge {
            _ if !self.workload.may_surge(pod) => Ok(None),
            Some(_) if group.budget.running < 2 => Err(SkipReason::Surging),
            None if is_single => {
                if let Some(owner) = &self.workload.views[pod].pod.status.owner {
                    self.check_backoff(&RefusedRequest::Surge(owner.clone()))?;
                }
                self.check_guards(pod, BudgetKind::Disruption, true)?;
                Ok(Some(Action::Surge))
            }
            _ => Ok(None),
        }
    }

    /// Returns an error if the request was refused recently. Upstream retries in every pass.
    fn check_backoff(&self, request: &RefusedRequest) -> Result<(), SkipReason> {
        if self.workload.settings.compat == Compat::Upstream {
            return Ok(());
        }
        let reason = self.state.backoff.reason_for(request, self.workload.context.now);
        reason.map_or(Ok(()), |skip| Err(skip.clone()))
    }

    pub fn is_end_surge_backed_off(&self) -> bool {
        let owner = self.workload.views.first().and_then(|view| view.pod.status.owner.clone());
        owner.is_some_and(|owner| self.check_backoff(&RefusedRequest::Surge(owner)).is_err())
    }

    /// Whether a pod needs an update urgently, so that it has a shorter cool-down.
    fn is_urgent(&self, pod: usize) -> bool {
        let quick_oom = self.candidates[pod]
            .as_ref()
            .is_some_and(|candidate| candidate.reason == UpdateReason::QuickOom);
        quick_oom || self.workload.views[pod].is_dead
    }

    /// Returns the role of a change of this pod in the rollout of its workload.
    pub fn rollout_entry(&self, pod: usize) -> Result<RolloutEntry, SkipReason> {
        let PassWorkload { settings, context, views, .. } = &self.workload;
        let (changed_at, urgent) = (views[pod].created_or_resized, self.is_urgent(pod));
        let (state, guards) = (&self.state.workload, &settings.guards);
        admit_change(state, changed_at, urgent, self.progress, guards, context.now)
    }

    /// Returns an error if a guard blocks a change of the pod.
    pub fn check_guards(
        &self,
        pod: usize,
        kind: BudgetKind,
        is_eviction: bool,
    ) -> Result<(), SkipReason> {
        let PassWorkload { subject, context, settings, .. } = &self.workload;
        let (guards, now, state) = (&settings.guards, context.now, &self.state.workload);
        if !guards.needs_state() {
            return Ok(());
        }
        ensure_fresh(context.heartbeat, guards.heartbeat)?;
        if let Some(pause) = guards.external_overwrite_pause {
            let overwrite =
                state.rewritten.filter(|overwrite| overwrite.generation == subject.generation);
            if overwrite.is_some_and(|overwrite| overwrite.at.later(pause) > now) {
                return Err(SkipReason::ExternallyOverwritten);
            }
        }
        if guards.breaker.is_some()
            && let Some(until) = state.breaker_open_until(now)
            && !self.fixes_oom(pod)
        {
            return Err(SkipReason::BreakerOpen { until });
        }
        if let WindowState::Closed { next: until } = subject.maintenance_window {
            return Err(SkipReason::OutsideWindow { until });
        }
        self.rollout_entry(pod)?;
        let namespace = &subject.vpa.namespace;
        self.state.budget.allows(namespace, kind, context.pod_counts, guards, now)?;
        if is_eviction {
            self.state.budget.ensure_effective(guards, now)?;
        }
        Ok(())
    }

    /// Whether the change raises requests of a pod after a quick OOM kill. It is allowed even if the breaker is open.
    fn fixes_oom(&self, pod: usize) -> bool {
        let grows = |candidate: &UpdateCandidate| {
            candidate.reason == UpdateReason::QuickOom && candidate.priority.scale_up
        };
        self.candidates[pod].as_ref().is_some_and(grows)
    }
}

/// Returns the containers whose boost ends with a resize: those that get a recommended CPU, and those that the pod does
/// not have. Upstream reports all containers whose boost has expired.
fn boosts_ended(
    pod: &sizing::Pod,
    sizes: &[sizing::SizedContainer],
    boosts: &BoostStatus<'_>,
    compat: Compat,
) -> Vec<Arc<str>> {
    let gets_cpu = |name: &str| {
        let mut sizes = sizes.iter().filter(|size| size.requests.cpu().is_some());
        sizes.any(|size| {
            pod.container(size.container).is_some_and(|container| *container.name == *name)
        })
    };
    let is_there = |name: &str| {
        let mut containers = pod.containers.iter().chain(&pod.init_containers);
        containers.any(|container| *container.name == *name)
    };
    let is_upstream = compat == Compat::Upstream;
    let ended =
        boosts.expired.iter().filter(|name| is_upstream || gets_cpu(name) || !is_there(name));
    ended.map(|&name| name.into()).collect()
}
