//! Selects the pods that need an update, and their order.

use super::{QueuedAction, UpdateCandidate, UpdatePass};
use crate::vpa_match;
use crate::{
    api::vpa::{EvictionRequirement, UpdateMode},
    sizing::boost,
    types::compat::{Compat, Fix},
    updater::{
        guard::infeasible::{
            InfeasibleResize, RecommendedTarget, asks_for_less, recommended_targets,
        },
        in_place::{InPlaceContext, InPlaceDecision},
        pod_status::Phase,
        priority::Priority,
        requirement,
        skip_reason::SkipReason,
        update_reason::{had_quick_oom, update_reason},
    },
};

impl UpdatePass<'_> {
    /// Returns the eviction requirements, if the VPA has an update policy.
    pub(super) fn requirements(&self) -> Option<&[EvictionRequirement]> {
        let policy = self.subject.sizing.spec.spec.update_policy.as_ref();
        policy.map(|policy| &*policy.eviction_requirements)
    }

    /// Returns the recommended targets of all containers, before capping.
    pub(super) fn uncapped_targets(&self) -> Option<Vec<RecommendedTarget>> {
        self.subject.sizing.spec.recommendation.map(recommended_targets)
    }

    pub(super) fn in_place_decision(&mut self, pod: usize) -> InPlaceDecision {
        let targets = self.uncapped_targets();
        let mut first_seen = std::mem::take(&mut self.state.resizes_first_seen);
        let context = self.in_place_context(targets.as_deref());
        let decision = context.decide(self.views[pod].candidate(), &mut first_seen);
        self.state.resizes_first_seen = first_seen;
        decision
    }

    pub(super) fn may_evict(&mut self, pod: usize) -> Result<(), SkipReason> {
        let mut first_seen = std::mem::take(&mut self.state.resizes_first_seen);
        let context = self.in_place_context(None);
        let result = context.may_evict(self.views[pod].candidate(), &mut first_seen);
        self.state.resizes_first_seen = first_seen;
        result
    }

    fn in_place_context<'q>(
        &'q self,
        targets: Option<&'q [RecommendedTarget]>,
    ) -> InPlaceContext<'q> {
        InPlaceContext {
            mode: self.subject.sizing.spec.update_mode(),
            targets,
            groups: &self.groups,
            settings: self.settings,
            now: self.context.now,
        }
    }

    /// Selects the pods that need an update, and queues them in order.
    pub(super) fn select_candidates(&mut self) {
        if self.surge_is_over() && !self.views.is_empty() {
            self.queue.push_back(QueuedAction::EndSurge);
            self.is_ending_surge = self.state.workload.surge.is_some_and(|surge| !surge.evicted);
        }
        let spec = self.subject.sizing.spec.spec;
        let keeps_boosts = self.settings.startup_boost && vpa_match::has_startup_boost(spec);
        let mode = spec.update_mode();
        let skip_all = self.skip_all_reason(mode);
        for pod in 0..self.views.len() {
            let view = &self.views[pod];
            if self.settings.startup_boost && view.is_boosted {
                let sizing_spec = &self.subject.sizing.spec;
                let boosts = boost::status(&view.pod.spec, sizing_spec, self.context.now);
                if !boosts.expired.is_empty() {
                    self.queue.push_back(QueuedAction::RemoveBoost(pod));
                }
            }
            let candidate = match &skip_all {
                Some(skip) => Err(skip.clone()),
                None if keeps_boosts && self.views[pod].is_boosted => Err(SkipReason::Boosted),
                None => self.evaluate_pod(pod, mode),
            };
            match candidate {
                Ok(candidate) => self.update_candidates[pod] = Some(candidate),
                Err(skip) => self.skip(pod, skip),
            }
        }
        self.queue_candidates(mode);
    }

    /// Returns why all pods are skipped, if they are.
    fn skip_all_reason(&self, mode: UpdateMode) -> Option<SkipReason> {
        // Upstream does nothing at all if admission is not ready. Ours still resizes in place.
        let is_upstream = self.settings.compat == Compat::Upstream;
        match mode {
            UpdateMode::Off | UpdateMode::Initial => Some(SkipReason::Mode),
            UpdateMode::InPlace if !self.settings.in_place => Some(SkipReason::GateClosed),
            _ if is_upstream && !self.context.is_admission_ready => {
                Some(SkipReason::AdmissionUnready)
            }
            _ => None,
        }
    }

    fn evaluate_pod(
        &mut self,
        pod: usize,
        mode: UpdateMode,
    ) -> Result<UpdateCandidate, SkipReason> {
        let view = &self.views[pod];
        if view.is_evicted && self.settings.compat == Compat::Plimsoll {
            return Err(SkipReason::Terminating);
        }
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        if in_place {
            self.prefilter(pod, mode)?;
        } else {
            match self.may_evict(pod) {
                Err(_) if self.state.workload.surge.is_some() && self.may_surge(pod) => {}
                Err(SkipReason::BelowMinReplicas { .. }) if self.may_surge(pod) => {}
                result => result?,
            }
        }
        let (view, sizing) = (&self.views[pod], &self.subject.sizing);
        let (pod_spec, status) = (&view.pod.spec, &view.pod.status);
        let recommendation = sizing.recommendation(pod_spec)?;
        if mode == UpdateMode::InPlace {
            let targets = recommended_targets(&recommendation);
            let is_no_less = |refusal: &InfeasibleResize| !asks_for_less(&targets, &refusal.wanted);
            if view.infeasible.as_ref().is_some_and(is_no_less) {
                return Err(SkipReason::Infeasible);
            }
        }
        let sidecars = sizing.rules.sidecars;
        let priority = Priority::new(pod_spec, &recommendation, &view.observed, sidecars);
        let spec = sizing.spec.spec;
        let now = self.context.now;
        let quick_oom = had_quick_oom(status, &view.observed, spec, self.settings, now);
        let resized_at = view.resized_at();
        let reason = update_reason(&priority, quick_oom, status, resized_at, self.settings, now)?;
        let evictions_only = self.settings.fixes.has(Fix::RequirementsHoldEvictionsOnly);
        if !in_place || !evictions_only {
            self.ensure_requirements_met(pod, &recommendation)?;
        }
        Ok(UpdateCandidate { reason, priority, recommendation })
    }

    /// Returns an error if a pod does not meet the eviction requirements.
    pub(super) fn ensure_requirements_met(
        &self,
        pod: usize,
        recommendation: &crate::api::vpa::Recommendation,
    ) -> Result<(), SkipReason> {
        let Some(requirements) = self.requirements() else { return Ok(()) };
        let sidecars = self.subject.sizing.rules.sidecars;
        let pod_spec = &self.views[pod].pod.spec;
        if requirement::are_met(requirements, pod_spec, recommendation, sidecars) {
            Ok(())
        } else {
            Err(SkipReason::Requirements)
        }
    }

    /// Filters pods before priorities are computed, as upstream does.
    fn prefilter(&mut self, pod: usize, mode: UpdateMode) -> Result<(), SkipReason> {
        let waits = self.settings.fixes.has(Fix::DeferredResizesWait);
        match (self.in_place_decision(pod), mode) {
            (InPlaceDecision::Approved | InPlaceDecision::Infeasible, _)
            | (InPlaceDecision::Evict, UpdateMode::InPlaceOrRecreate) => Ok(()),
            (InPlaceDecision::Deferred(_), UpdateMode::InPlace) if !waits => Ok(()),
            (InPlaceDecision::Deferred(SkipReason::Starting), UpdateMode::InPlaceOrRecreate)
                if waits && self.views[pod].is_dead =>
            {
                // A pod that is stuck before its start cannot be resized, but may be evicted.
                Ok(())
            }
            (
                InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { .. }),
                UpdateMode::InPlaceOrRecreate,
            ) if self.may_surge(pod) => Ok(()),
            (InPlaceDecision::Deferred(skip), _) => Err(skip),
            (InPlaceDecision::InfeasibleCached | InPlaceDecision::Evict, _) => {
                self.known_infeasible += 1;
                Err(SkipReason::Infeasible)
            }
        }
    }

    fn queue_candidates(&mut self, mode: UpdateMode) {
        let mut order: Vec<(usize, Priority)> = Vec::new();
        for (pod, candidate) in self.update_candidates.iter().enumerate() {
            order.extend(candidate.as_ref().map(|candidate| (pod, candidate.priority)));
        }
        order.sort_by(|(_, left), (_, right)| left.compare(right));
        self.candidates = order.len();
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        let queued = order.into_iter().map(|(pod, _)| {
            let is_pending = self.views[pod].pod.status.phase == Phase::Pending;
            let is_evicted = is_pending && mode == UpdateMode::InPlaceOrRecreate;
            if in_place && !is_evicted {
                QueuedAction::InPlace(pod)
            } else {
                QueuedAction::Evict(pod)
            }
        });
        let queued: Vec<QueuedAction> = queued.collect();
        self.queue.extend(queued);
    }
}
