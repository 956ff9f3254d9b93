//! Reviews earlier changes: whether pods regressed, whether new pods got the recommended resources, and whether another
//! writer overwrote them.

use std::time::Duration;

use super::{UpdatePass, pod_view::PodView};
use crate::{
    api::vpa::{ContainerRecommendation, Recommendation, UpdateMode},
    sizing::{boost, pod_annotations},
    types::compat::Fix,
    updater::{
        guard::{
            ChangeKind, Health, Regression,
            infeasible::RecommendedTarget,
            regression::ObservedPod,
            rollout::{Rollout, RolloutProgress},
            workload_state::{ExternalOverwrite, spec_hash},
        },
        in_place,
        priority::Priority,
    },
};

/// Problems of pods within this time before a change count as the baseline.
const BASELINE_PERIOD: Duration = Duration::from_hours(1);

/// How long a second replica may take to become ready.
const SURGE_READY_TIMEOUT: Duration = Duration::from_mins(15);

/// How long a second replica may exist, even if the first one could not be evicted.
const SURGE_MAX_DURATION: Duration = Duration::from_hours(1);

/// Used if the circuit breaker is disabled.
const NO_READY_TIMEOUT: Duration = Duration::ZERO;

impl UpdatePass<'_> {
    /// Reviews earlier changes: opens the circuit breaker after a regression, and detects external overwrites.
    pub(super) fn review_changes(&mut self) {
        self.prune_state();
        if !self.settings.guards.needs_state() {
            return;
        }
        self.give_up_surge();
        let Some(rollout) = self.state.workload.rollout.clone() else { return };
        self.progress = self.progress_of(&rollout);
        let now = self.context.now;
        let regression = self.settings.guards.breaker.and_then(|settings| {
            let not_applied = self.check_effect(&rollout);
            let regression = self
                .state
                .workload
                .find_regression(self.progress, &settings, now)
                .or(not_applied)?;
            Some((regression, settings))
        });
        if let Some((regression, settings)) = regression {
            self.state.workload.open_breaker(regression, &settings, now);
            self.state.budget.trip(self.subject.vpa, &settings, now);
            self.regression = Some(regression);
        }
        if self.settings.guards.external_overwrite_pause.is_some() {
            self.detect_external_overwrite(&rollout);
        }
    }

    fn prune_state(&mut self) {
        self.state.backoff.prune(self.context.now);
        let (live, now) = (self.subject.pods, self.context.now);
        let names: std::collections::BTreeSet<&str> =
            live.iter().map(|pod| &*pod.spec.name).collect();
        in_place::prune(&mut self.state.resizes_first_seen, |name| names.contains(name), now);
        let pods: std::collections::BTreeSet<&str> =
            self.subject.pods.iter().map(|pod| &*pod.spec.uid).collect();
        let (expiry, now) = (self.settings.infeasible_expiry, self.context.now);
        if !self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            self.state.workload.refusals.retain(|uid| pods.contains(uid));
            return;
        }
        self.state.workload.prune(|uid| pods.contains(uid), expiry, now);
    }

    /// Whether a surge is over: the old pod was evicted, or the second replica did not become ready or is not needed.
    pub(super) fn surge_is_over(&self) -> bool {
        let Some(surge) = self.state.workload.surge else { return false };
        let is_due = surge.at.later(SURGE_MAX_DURATION) <= self.context.now;
        let mode = self.subject.sizing.spec.update_mode();
        let never_evicts = matches!(mode, UpdateMode::Off | UpdateMode::Initial);
        surge.evicted || is_due || never_evicts || self.surge_has_failed()
    }

    fn surge_has_failed(&self) -> bool {
        let waiting = self.state.workload.surge.filter(|surge| !surge.evicted);
        let is_late =
            waiting.is_some_and(|surge| surge.at.later(SURGE_READY_TIMEOUT) <= self.context.now);
        is_late && !self.groups.iter().any(|(_, group)| group.budget.running >= 2)
    }

    /// Opens the circuit breaker if the second replica did not become ready, because other new pods would not either.
    fn give_up_surge(&mut self) {
        let Some(settings) = self.settings.guards.breaker else { return };
        if self.surge_has_failed()
            && self.state.workload.breaker_open_until(self.context.now).is_none()
        {
            self.state.workload.open_breaker(Regression::Unready, &settings, self.context.now);
            self.regression = Some(Regression::Unready);
        }
    }

    fn missing_pods(&self) -> u32 {
        let groups = self.groups.iter().map(|(_, group)| group);
        groups.map(|group| group.budget.configured.saturating_sub(group.live)).sum()
    }

    fn ready_within(&self) -> Duration {
        self.settings.guards.breaker.map_or(NO_READY_TIMEOUT, |settings| settings.ready_within)
    }

    /// Returns the health of all pods, as the baseline for later comparison.
    pub(super) fn health_of_all(&self) -> Health {
        let since = self.context.now.earlier(BASELINE_PERIOD);
        let observed = self.views.iter().map(|view| ObservedPod {
            status: &view.pod.status,
            since,
            restarts: 0,
        });
        let health = Health::count(observed, self.ready_within(), self.context.now);
        Health { missing: self.missing_pods(), ..health }
    }

    /// Returns the pods that were created or resized by the current wave.
    fn changed_pods<'v>(&'v self, rollout: &'v Rollout) -> impl Iterator<Item = &'v PodView<'v>> {
        self.views.iter().filter(move |view| match &view.last_change {
            Some(change) if change.what == ChangeKind::Resized => rollout.is_in_wave(change.at),
            Some(_) => false,
            None => rollout.evicted > 0 && rollout.is_in_wave(view.pod.status.created),
        })
    }

    fn progress_of(&self, rollout: &Rollout) -> RolloutProgress {
        let now = self.context.now;
        let observed = self.changed_pods(rollout).map(|view| {
            // A resize may restart each container once.
            let expected = view.last_change.as_ref().map_or(0, |change| {
                let containers = view.pod.spec.containers.len() as u32;
                change.restarts.saturating_add(containers)
            });
            ObservedPod {
                status: &view.pod.status,
                since: view.created_or_resized,
                restarts: expected,
            }
        });
        let mut health = Health::count(observed, self.ready_within(), now);
        if rollout.last.later(self.ready_within()) <= now {
            // A scale-up lacks pods for a moment, so count at most as many as were evicted and not replaced.
            let in_wave = |view: &&PodView<'_>| rollout.is_in_wave(view.pod.status.created);
            let created = self.views.iter().filter(in_wave);
            let not_replaced = rollout.evicted.saturating_sub(created.count() as u32);
            health.missing = self.missing_pods().min(not_replaced);
        }
        // A deferred resize says nothing about the health of the pod, so do not wait for it.
        let ready = |view: &&PodView<'_>| {
            view.pod.status.is_ready() && !view.resize_phase.is_kubelet_busy()
        };
        let settled = self.changed_pods(rollout).filter(ready).count() as u32;
        let before = &rollout.before;
        let was_unready = before.unready + before.pending > 0;
        let none_expected = health.pods == 0 && self.missing_pods() == 0 && rollout.evicted > 0;
        let all_ready = health.pods > 0 && (settled == health.pods || was_unready);
        RolloutProgress { health, settled: all_ready || none_expected }
    }

    /// Checks whether replacements got the recommended resources, and records the effect.
    fn check_effect(&mut self, rollout: &Rollout) -> Option<Regression> {
        if rollout.evicted == 0 || !rollout.is_watched(self.context.now) {
            return None;
        }
        let mut proven = None;
        let mut failed = false;
        for view in self.changed_pods(rollout).filter(|view| view.last_change.is_none()) {
            let is_sized = view.pod.spec.annotation(pod_annotations::UPDATES).is_some();
            if is_sized || !self.is_far_from_target(view, None) {
                proven = proven.max(Some(view.pod.status.created));
            } else {
                failed = true;
            }
        }
        if let Some(made) = proven {
            self.state.budget.record_effect_of(self.subject.vpa, made);
        }
        let breaker = self.state.workload.breaker;
        let is_reported = breaker.is_some_and(|breaker| breaker.since >= rollout.wave);
        (failed && !is_reported).then_some(Regression::NotApplied)
    }

    /// Whether a pod is far from its current recommendation, or from `target` if given.
    fn is_far_from_target(&self, view: &PodView<'_>, target: Option<&Recommendation>) -> bool {
        let sizing = &self.subject.sizing;
        let pod_spec = &view.pod.spec;
        let current = if target.is_none() { sizing.recommendation(pod_spec).ok() } else { None };
        let Some(recommendation) = target.or(current.as_ref()) else { return false };
        let observed = &view.observed;
        let priority = Priority::new(pod_spec, recommendation, observed, sizing.rules.sidecars);
        priority.outside_recommended_range
            || priority.resource_diff >= self.settings.update_threshold
    }

    fn detect_external_overwrite(&mut self, rollout: &Rollout) {
        let wave_recommendation = recommendation_of(&rollout.target);
        let sidecars = self.subject.sizing.rules.sidecars;
        let mut overwritten = Vec::new();
        for view in &self.views {
            let pod_spec = &view.pod.spec;
            let is_overwritten = match &view.last_change {
                Some(change) => {
                    let generations = view.pod.status.generation.zip(change.generation);
                    let is_later = generations.is_some_and(|(now, before)| now > before);
                    let containers = pod_spec.sized_containers(sidecars);
                    let spec = containers.map(|(_, container)| (&*container.name, &container.spec));
                    is_later && change.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
                }
                None => {
                    rollout.evicted > 0
                        && rollout.is_watched(self.context.now)
                        && rollout.is_in_wave(view.pod.status.created)
                        && pod_spec.annotation(pod_annotations::UPDATES).is_some()
                        && boost::boosted_containers(pod_spec).next().is_none()
                        && self.is_far_from_target(view, None)
                        && self.is_far_from_target(view, Some(&wave_recommendation))
                }
            };
            if is_overwritten {
                overwritten.push(pod_spec.uid.clone());
            }
        }
        if overwritten.is_empty() {
            return;
        }
        let state = &mut self.state.workload;
        // Report each pod once: without its hash, it is not compared until its next change.
        let mut is_new = state.rewritten.is_none_or(|overwrite| overwrite.at < rollout.wave);
        for change in state.touches.iter_mut().filter(|change| overwritten.contains(&change.uid)) {
            is_new |= change.wrote.take().is_some();
        }
        if is_new {
            let generation = self.subject.generation;
            state.rewritten = Some(ExternalOverwrite { at: self.context.now, generation });
            self.externally_overwritten = true;
        }
    }
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
