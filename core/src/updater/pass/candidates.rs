//! Which pods are worth a change, and in which order they are looked at.

use super::{QueuedAction, UpdateCandidate, UpdatePass};
use crate::vpa_match;
use crate::{
    api::vpa::{EvictionRequirement, UpdateMode},
    sizing::boost,
    types::compat::{Compat, Fix},
    updater::{
        guard::infeasible::{RecommendedTarget, asks_for_less, recommended_targets},
        in_place::{InPlaceContext, InPlaceDecision},
        pod_status::Phase,
        priority::Priority,
        requirement,
        skip_reason::SkipReason,
        update_reason::{had_quick_oom, update_reason},
    },
};

impl UpdatePass<'_> {
    /// The requirements that hold evictions, if the VPA has a policy at all.
    pub(super) fn requirements(&self) -> Option<&[EvictionRequirement]> {
        let policy = self.subject.sizing.spec.spec.update_policy.as_ref();
        policy.map(|policy| &*policy.eviction_requirements)
    }

    /// What is recommended for all containers, before it is held to anything.
    pub(super) fn uncapped_targets(&self) -> Option<Vec<RecommendedTarget>> {
        self.subject.sizing.spec.recommendation.map(recommended_targets)
    }

    pub(super) fn in_place_decision(&mut self, pod: usize) -> InPlaceDecision {
        let (raw, mut seen) =
            (self.uncapped_targets(), std::mem::take(&mut self.state.resizes_first_seen));
        let question = self.in_place_context(raw.as_deref());
        let answer = question.decide(self.views[pod].candidate(), &mut seen);
        self.state.resizes_first_seen = seen;
        answer
    }

    pub(super) fn may_evict(&mut self, pod: usize) -> Result<(), SkipReason> {
        let mut seen = std::mem::take(&mut self.state.resizes_first_seen);
        let answer = self.in_place_context(None).may_evict(self.views[pod].candidate(), &mut seen);
        self.state.resizes_first_seen = seen;
        answer
    }

    fn in_place_context<'q>(&'q self, raw: Option<&'q [RecommendedTarget]>) -> InPlaceContext<'q> {
        InPlaceContext {
            mode: self.subject.sizing.spec.update_mode(),
            targets: raw,
            groups: &self.groups,
            settings: self.settings,
            now: self.context.now,
        }
    }

    /// Finds the pods that are worth a change, in their order.
    pub(super) fn select_candidates(&mut self) {
        if self.surge_is_over() && !self.views.is_empty() {
            self.queue.push_back(QueuedAction::EndSurge);
            self.is_ending_surge = self.state.workload.surge.is_some_and(|surge| !surge.evicted);
        }
        let spec = self.subject.sizing.spec.spec;
        let keeps_boosts = self.settings.startup_boost && vpa_match::has_startup_boost(spec);
        let mode = spec.update_mode();
        let fits_all = self.skip_all_reason(mode);
        for pod in 0..self.views.len() {
            let view = &self.views[pod];
            if self.settings.startup_boost && view.is_boosted {
                let plan = &self.subject.sizing.spec;
                let standing = boost::status(&view.pod.spec, plan, self.context.now);
                if !standing.expired.is_empty() {
                    self.queue.push_back(QueuedAction::RemoveBoost(pod));
                }
            }
            let refused = match &fits_all {
                Some(skip) => Err(skip.clone()),
                None if keeps_boosts && self.views[pod].is_boosted => Err(SkipReason::Boosted),
                None => self.evaluate_pod(pod, mode),
            };
            match refused {
                Ok(worth) => self.update_candidates[pod] = Some(worth),
                Err(skip) => self.skip(pod, skip),
            }
        }
        self.queue_candidates(mode);
    }

    /// What holds for all pods alike.
    fn skip_all_reason(&self, mode: UpdateMode) -> Option<SkipReason> {
        // Upstream does nothing at all then. Ours does what needs no new pods.
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
                answer => answer?,
            }
        }
        let (view, sizing) = (&self.views[pod], &self.subject.sizing);
        let (size, life) = (&view.pod.spec, &view.pod.status);
        let recommendation = sizing.recommendation(size)?;
        if mode == UpdateMode::InPlace {
            let now = recommended_targets(&recommendation);
            if view.infeasible.as_ref().is_some_and(|refusal| !asks_for_less(&now, &refusal.wanted))
            {
                return Err(SkipReason::Infeasible);
            }
        }
        let sidecars = sizing.rules.sidecars;
        let priority = Priority::new(size, &recommendation, &view.observed, sidecars);
        let spec = sizing.spec.spec;
        let now = self.context.now;
        let quick = had_quick_oom(life, &view.observed, spec, self.settings, now);
        let need = update_reason(&priority, quick, life, view.resized_at(), self.settings, now)?;
        let held = !in_place || !self.settings.fixes.has(Fix::RequirementsHoldEvictionsOnly);
        if held {
            self.ensure_requirements_met(pod, &recommendation)?;
        }
        Ok(UpdateCandidate { reason: need, priority, recommendation })
    }

    /// Whether a pod meets the requirements of an eviction.
    pub(super) fn ensure_requirements_met(
        &self,
        pod: usize,
        recommendation: &crate::api::vpa::Recommendation,
    ) -> Result<(), SkipReason> {
        let Some(requirements) = self.requirements() else { return Ok(()) };
        let sidecars = self.subject.sizing.rules.sidecars;
        let size = &self.views[pod].pod.spec;
        if requirement::are_met(requirements, size, recommendation, sidecars) {
            Ok(())
        } else {
            Err(SkipReason::Requirements)
        }
    }

    /// What upstream sorts out before it looks at priorities.
    fn prefilter(&mut self, pod: usize, mode: UpdateMode) -> Result<(), SkipReason> {
        let waits = self.settings.fixes.has(Fix::DeferredResizesWait);
        match (self.in_place_decision(pod), mode) {
            (InPlaceDecision::Approved | InPlaceDecision::Infeasible, _)
            | (InPlaceDecision::Evict, UpdateMode::InPlaceOrRecreate) => Ok(()),
            (InPlaceDecision::Deferred(_), UpdateMode::InPlace) if !waits => Ok(()),
            (InPlaceDecision::Deferred(SkipReason::Starting), UpdateMode::InPlaceOrRecreate)
                if waits && self.views[pod].is_dead =>
            {
                // What hangs before its start is not resized, but may be evicted.
                Ok(())
            }
            (
                InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { .. }),
                UpdateMode::InPlaceOrRecreate,
            ) if self.may_surge(pod) => Ok(()),
            (InPlaceDecision::Deferred(why), _) => Err(why),
            (InPlaceDecision::InfeasibleCached | InPlaceDecision::Evict, _) => {
                self.known_infeasible += 1;
                Err(SkipReason::Infeasible)
            }
        }
    }

    fn queue_candidates(&mut self, mode: UpdateMode) {
        let mut order: Vec<(usize, Priority)> = Vec::new();
        for (pod, worth) in self.update_candidates.iter().enumerate() {
            order.extend(worth.as_ref().map(|worth| (pod, worth.priority)));
        }
        order.sort_by(|(_, one), (_, other)| one.compare(other));
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
