//! Selects the pods that need an update, and their order.

use std::collections::VecDeque;

use super::{
    PersistedState, review::surge_is_over, update_pass::QueuedAction, workload::PassWorkload,
};
use crate::{
    api::vpa::{Recommendation, UpdateMode},
    sizing::boost,
    types::compat::{Compat, Fix},
    updater::{
        guard::infeasible::{InfeasibleResize, asks_for_less, recommended_targets},
        in_place::InPlaceDecision,
        pod_status::Phase,
        priority::Priority,
        skip_reason::SkipReason,
        update_reason::UpdateReason,
    },
    vpa_match,
};

/// A pod that needs an update.
#[derive(Clone, Debug)]
pub(super) struct UpdateCandidate {
    pub reason: UpdateReason,
    pub priority: Priority,
    pub recommendation: Recommendation,
}

/// The pods that need an update, and what is done first.
#[derive(Default)]
pub(super) struct Selection {
    pub pods: Vec<Result<UpdateCandidate, SkipReason>>,
    pub queue: VecDeque<QueuedAction>,
    pub candidates: usize,
    pub known_infeasible: usize,
    /// Whether a surge is ended without an eviction.
    pub is_ending_surge: bool,
}

impl Selection {
    /// Selects the pods that need an update, and queues them in order.
    pub fn new(workload: &PassWorkload<'_>, state: &mut PersistedState) -> Self {
        let mut selection = Self::default();
        if surge_is_over(workload, state) && !workload.views.is_empty() {
            selection.queue.push_back(QueuedAction::EndSurge);
            selection.is_ending_surge = state.workload.surge.is_some_and(|surge| !surge.evicted);
        }
        let (spec, settings) = (&workload.subject.sizing.spec, workload.settings);
        let keeps_boosts = settings.startup_boost && vpa_match::has_startup_boost(spec.spec);
        let skip_all = skip_all_reason(workload);
        for (pod, view) in workload.views.iter().enumerate() {
            if settings.startup_boost && view.is_boosted {
                let boosts = boost::status(&view.pod.spec, spec, workload.context.now);
                if !boosts.expired.is_empty() {
                    selection.queue.push_back(QueuedAction::RemoveBoost(pod));
                }
            }
            let candidate = match &skip_all {
                Some(skip) => Err(skip.clone()),
                None if keeps_boosts && view.is_boosted => Err(SkipReason::Boosted),
                None => selection.evaluate_pod(workload, state, pod),
            };
            selection.pods.push(candidate);
        }
        selection.queue_candidates(workload);
        selection
    }

    fn evaluate_pod(
        &mut self,
        workload: &PassWorkload<'_>,
        state: &mut PersistedState,
        pod: usize,
    ) -> Result<UpdateCandidate, SkipReason> {
        let PassWorkload { settings, views, .. } = workload;
        let (view, sizing, mode) = (&views[pod], workload.sizing(pod), workload.mode());
        if view.is_evicted && settings.compat == Compat::Plimsoll {
            return Err(SkipReason::Terminating);
        }
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        if in_place {
            self.prefilter(workload, state, pod)?;
        } else {
            match workload.may_evict(pod, &mut state.resizes_first_seen) {
                Err(_) if state.workload.surge.is_some() && workload.may_surge(pod) => {}
                Err(SkipReason::BelowMinReplicas { .. }) if workload.may_surge(pod) => {}
                result => result?,
            }
        }
        let pod_spec = &view.pod.spec;
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
        let reason = workload.update_reason(pod, &priority)?;
        let evictions_only = settings.fixes.has(Fix::RequirementsHoldEvictionsOnly);
        if !in_place || !evictions_only {
            workload.ensure_requirements_met(pod, &recommendation)?;
        }
        Ok(UpdateCandidate { reason, priority, recommendation })
    }

    /// Filters pods before priorities are computed, as upstream does.
    fn prefilter(
        &mut self,
        workload: &PassWorkload<'_>,
        state: &mut PersistedState,
        pod: usize,
    ) -> Result<(), SkipReason> {
        let waits = workload.settings.fixes.has(Fix::DeferredResizesWait);
        let decision = workload.in_place_decision(pod, &mut state.resizes_first_seen);
        match (decision, workload.mode()) {
            (InPlaceDecision::Approved | InPlaceDecision::Infeasible, _)
            | (InPlaceDecision::Evict, UpdateMode::InPlaceOrRecreate) => Ok(()),
            (InPlaceDecision::Deferred(_), UpdateMode::InPlace) if !waits => Ok(()),
            (InPlaceDecision::Deferred(SkipReason::Starting), UpdateMode::InPlaceOrRecreate)
                if waits && workload.views[pod].is_dead =>
            {
                // A pod that is stuck before its start cannot be resized, but may be evicted.
                Ok(())
            }
            (
                InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { .. }),
                UpdateMode::InPlaceOrRecreate,
            ) if workload.may_surge(pod) => Ok(()),
            (InPlaceDecision::Deferred(skip), _) => Err(skip),
            (InPlaceDecision::InfeasibleCached | InPlaceDecision::Evict, _) => {
                self.known_infeasible += 1;
                Err(SkipReason::Infeasible)
            }
        }
    }

    fn queue_candidates(&mut self, workload: &PassWorkload<'_>) {
        let mut order: Vec<(usize, Priority)> = Vec::new();
        for (pod, candidate) in self.pods.iter().enumerate() {
            order.extend(candidate.as_ref().map(|candidate| (pod, candidate.priority)));
        }
        order.sort_by(|(_, left), (_, right)| left.compare(right));
        self.candidates = order.len();
        let mode = workload.mode();
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        let queued = order.into_iter().map(|(pod, _)| {
            let is_pending = workload.views[pod].pod.status.phase == Phase::Pending;
            let is_evicted = is_pending && mode == UpdateMode::InPlaceOrRecreate;
            if in_place && !is_evicted {
                QueuedAction::InPlace(pod)
            } else {
                QueuedAction::Evict(pod)
            }
        });
        self.queue.extend(queued);
    }
}

/// Returns why all pods are skipped, if they are.
fn skip_all_reason(workload: &PassWorkload<'_>) -> Option<SkipReason> {
    // Upstream does nothing at all if admission is not ready. Ours still resizes in place.
    let is_upstream = workload.settings.compat == Compat::Upstream;
    match workload.mode() {
        UpdateMode::Off | UpdateMode::Initial => Some(SkipReason::Mode),
        UpdateMode::InPlace if !workload.settings.in_place => Some(SkipReason::GateClosed),
        _ if is_upstream && !workload.context.is_admission_ready => {
            Some(SkipReason::AdmissionUnready)
        }
        _ => None,
    }
}
