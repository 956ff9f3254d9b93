//! Reviews earlier changes: whether pods regressed, whether new pods got the recommended resources, and whether another
//! writer overwrote them.

use std::{collections::BTreeSet, time::Duration};

use super::{
    PersistedState,
    workload::{PassWorkload, PodView, differs_from_resize},
};
use crate::{
    api::vpa::{ContainerRecommendation, Recommendation, UpdateMode},
    sizing::{boost, pod_annotations},
    types::compat::Fix,
    updater::{
        guard::{
            ChangeKind, Health, Regression,
            infeasible::RecommendedTarget,
            regression::ObservedPod,
            rollout::{Rollout, RolloutProgress, find_regression, open_breaker},
            workload_state::ExternalOverwrite,
        },
        in_place,
        priority::Priority,
    },
};

/// How long a second replica may take to become ready.
const SURGE_READY_TIMEOUT: Duration = Duration::from_mins(15);

/// How long a second replica may exist, even if the first one could not be evicted.
const SURGE_MAX_DURATION: Duration = Duration::from_hours(1);

/// What a pass finds about earlier changes.
#[derive(Default)]
pub(super) struct Review {
    pub progress: RolloutProgress,
    pub regression: Option<Regression>,
    pub externally_overwritten: bool,
}

impl Review {
    /// Reviews earlier changes: opens the circuit breaker after a regression, and detects external overwrites.
    pub fn new(workload: &PassWorkload<'_>, state: &mut PersistedState) -> Self {
        let mut review = Self::default();
        prune_state(workload, state);
        let (guards, now) = (&workload.settings.guards, workload.context.now);
        if !guards.needs_state() {
            return review;
        }
        review.regression = give_up_surge(workload, state);
        let Some(rollout) = state.workload.rollout.clone() else { return review };
        review.progress = progress_of(workload, &rollout);
        if let Some(settings) = guards.breaker {
            let not_applied = check_effect(workload, state, &rollout);
            let found = find_regression(&state.workload, review.progress, &settings, now);
            if let Some(regression) = found.or(not_applied) {
                open_breaker(&mut state.workload, regression, &settings, now);
                state.budget.trip(workload.subject.vpa, &settings, now);
                review.regression = Some(regression);
            }
        }
        if guards.external_overwrite_pause.is_some() {
            review.externally_overwritten = detect_external_overwrite(workload, state, &rollout);
        }
        review
    }
}

fn prune_state(workload: &PassWorkload<'_>, state: &mut PersistedState) {
    let (live, now) = (workload.subject.pods, workload.context.now);
    state.backoff.prune(now);
    let names: BTreeSet<&str> = live.iter().map(|pod| &*pod.spec.name).collect();
    in_place::prune(&mut state.resizes_first_seen, |name| names.contains(name), now);
    let pods: BTreeSet<&str> = live.iter().map(|pod| &*pod.spec.uid).collect();
    let expiry = workload.settings.infeasible_expiry;
    if !workload.settings.fixes.has(Fix::InfeasibleResizesExpire) {
        state.workload.refusals.retain(|uid| pods.contains(uid));
        return;
    }
    state.workload.prune(|uid| pods.contains(uid), expiry, now);
}

/// Whether a surge is over: the old pod was evicted, or the second replica did not become ready or is not needed.
pub(super) fn surge_is_over(workload: &PassWorkload<'_>, state: &PersistedState) -> bool {
    let Some(surge) = state.workload.surge else { return false };
    let is_due = surge.at.later(SURGE_MAX_DURATION) <= workload.context.now;
    let never_evicts = matches!(workload.mode(), UpdateMode::Off | UpdateMode::Initial);
    surge.evicted || is_due || never_evicts || surge_has_failed(workload, state)
}

fn surge_has_failed(workload: &PassWorkload<'_>, state: &PersistedState) -> bool {
    let waiting = state.workload.surge.filter(|surge| !surge.evicted);
    let is_late =
        waiting.is_some_and(|surge| surge.at.later(SURGE_READY_TIMEOUT) <= workload.context.now);
    is_late && !workload.groups.iter().any(|(_, group)| group.budget.running >= 2)
}

/// Opens the circuit breaker if the second replica did not become ready, because other new pods would not either.
fn give_up_surge(workload: &PassWorkload<'_>, state: &mut PersistedState) -> Option<Regression> {
    let settings = workload.settings.guards.breaker?;
    let now = workload.context.now;
    if !surge_has_failed(workload, state) || state.workload.breaker_open_until(now).is_some() {
        return None;
    }
    open_breaker(&mut state.workload, Regression::Unready, &settings, now);
    Some(Regression::Unready)
}

/// Returns the pods that were created or resized by the current wave.
fn changed_pods<'v>(
    workload: &'v PassWorkload<'v>,
    rollout: &'v Rollout,
) -> impl Iterator<Item = &'v PodView<'v>> {
    workload.views.iter().filter(move |view| match &view.last_change {
        Some(change) if change.what == ChangeKind::Resized => rollout.is_in_wave(change.at),
        Some(_) => false,
        None => rollout.evicted > 0 && rollout.is_in_wave(view.pod.status.created),
    })
}

fn progress_of(workload: &PassWorkload<'_>, rollout: &Rollout) -> RolloutProgress {
    let now = workload.context.now;
    let observed = changed_pods(workload, rollout).map(|view| {
        // A resize may restart each container once.
        let expected = view.last_change.as_ref().map_or(0, |change| {
            let containers = view.pod.spec.containers.len() as u32;
            change.restarts.saturating_add(containers)
        });
        ObservedPod { status: &view.pod.status, since: view.created_or_resized, restarts: expected }
    });
    let mut health = Health::count(observed, workload.ready_within(), now);
    if rollout.last.later(workload.ready_within()) <= now {
        // A scale-up lacks pods for a moment, so count at most as many as were evicted and not replaced.
        let in_wave = |view: &&PodView<'_>| rollout.is_in_wave(view.pod.status.created);
        let created = workload.views.iter().filter(in_wave);
        let not_replaced = rollout.evicted.saturating_sub(created.count() as u32);
        health.missing = workload.missing_pods().min(not_replaced);
    }
    // A deferred resize says nothing about the health of the pod, so do not wait for it.
    let ready =
        |view: &&PodView<'_>| view.pod.status.is_ready() && !view.resize_phase.is_kubelet_busy();
    let settled = changed_pods(workload, rollout).filter(ready).count() as u32;
    let before = &rollout.before;
    let was_unready = before.unready + before.pending > 0;
    let none_expected = health.pods == 0 && workload.missing_pods() == 0 && rollout.evicted > 0;
    let all_ready = health.pods > 0 && (settled == health.pods || was_unready);
    RolloutProgress { health, settled: all_ready || none_expected }
}

/// Checks whether replacements got the recommended resources, and records the effect.
fn check_effect(
    workload: &PassWorkload<'_>,
    state: &mut PersistedState,
    rollout: &Rollout,
) -> Option<Regression> {
    if rollout.evicted == 0 || !rollout.is_watched(workload.context.now) {
        return None;
    }
    let mut proven = None;
    let mut failed = false;
    for view in changed_pods(workload, rollout).filter(|view| view.last_change.is_none()) {
        let is_sized = view.pod.spec.annotation(pod_annotations::UPDATES).is_some();
        if is_sized || !is_far_from_target(workload, view, None) {
            proven = proven.max(Some(view.pod.status.created));
        } else {
            failed = true;
        }
    }
    if let Some(made) = proven {
        state.budget.record_effect_of(workload.subject.vpa, made);
    }
    let breaker = state.workload.breaker;
    let is_reported = breaker.is_some_and(|breaker| breaker.since >= rollout.wave);
    (failed && !is_reported).then_some(Regression::NotApplied)
}

/// Whether a pod is far from its current recommendation, or from `target` if given.
fn is_far_from_target(
    workload: &PassWorkload<'_>,
    view: &PodView<'_>,
    target: Option<&Recommendation>,
) -> bool {
    let sizing = &workload.subject.sizing;
    let pod_spec = &view.pod.spec;
    let current = if target.is_none() { sizing.recommendation(pod_spec).ok() } else { None };
    let Some(recommendation) = target.or(current.as_ref()) else { return false };
    let observed = &view.observed;
    let priority = Priority::new(pod_spec, recommendation, observed, sizing.rules.sidecars);
    priority.outside_recommended_range
        || priority.resource_diff >= workload.settings.update_threshold
}

/// Records that another writer overwrote the resources of pods. Returns whether that is new.
fn detect_external_overwrite(
    workload: &PassWorkload<'_>,
    state: &mut PersistedState,
    rollout: &Rollout,
) -> bool {
    let wave_recommendation = recommendation_of(&rollout.target);
    let sidecars = workload.subject.sizing.rules.sidecars;
    let mut overwritten = Vec::new();
    for view in &workload.views {
        let pod_spec = &view.pod.spec;
        let is_overwritten = match &view.last_change {
            Some(change) => differs_from_resize(view.pod, change, true, sidecars),
            None => {
                rollout.evicted > 0
                    && rollout.is_watched(workload.context.now)
                    && rollout.is_in_wave(view.pod.status.created)
                    && pod_spec.annotation(pod_annotations::UPDATES).is_some()
                    && boost::boosted_containers(pod_spec).next().is_none()
                    && is_far_from_target(workload, view, None)
                    && is_far_from_target(workload, view, Some(&wave_recommendation))
            }
        };
        if is_overwritten {
            overwritten.push(pod_spec.uid.clone());
        }
    }
    if overwritten.is_empty() {
        return false;
    }
    let state = &mut state.workload;
    // Report each pod once: without its hash, it is not compared until its next change.
    let mut is_new = state.rewritten.is_none_or(|overwrite| overwrite.at < rollout.wave);
    for change in state.touches.iter_mut().filter(|change| overwritten.contains(&change.uid)) {
        is_new |= change.wrote.take().is_some();
    }
    if is_new {
        let generation = workload.subject.generation;
        state.rewritten = Some(ExternalOverwrite { at: workload.context.now, generation });
    }
    is_new
}

fn recommendation_of(target: &[RecommendedTarget]) -> Recommendation {
    let container_recommendations = target
        .iter()
        .map(|container| ContainerRecommendation {
            container_name: container.container.to_string(),
            target: container.target.clone(),
            ..ContainerRecommendation::default()
        })
        .collect();
    Recommendation { container_recommendations }
}
