//! What came of the changes before: whether pods are worse, whether they got what they were to get, and whether
//! somebody else writes other values.

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

/// What pods went through within this time before a change counts as how they are without it.
const BASELINE_PERIOD: Duration = Duration::from_hours(1);

/// How long a second replica may take to be ready.
const SURGE_READY_TIMEOUT: Duration = Duration::from_mins(15);

/// How long there may be a second replica, whatever keeps the first one from going.
const SURGE_MAX_DURATION: Duration = Duration::from_hours(1);

/// For a pod that has no recommended amounts any more.
const NO_READY_TIMEOUT: Duration = Duration::ZERO;

impl UpdatePass<'_> {
    /// Looks at what came of the changes before.
    pub(super) fn review_changes(&mut self) {
        self.prune_state();
        if !self.settings.guards.needs_state() {
            return;
        }
        self.give_up_surge();
        let Some(rollout) = self.state.workload.rollout.clone() else { return };
        self.progress = self.progress_of(&rollout);
        let now = self.context.now;
        let harm = self.settings.guards.breaker.and_then(|settings| {
            let applied = self.check_effect(&rollout);
            let harm =
                self.state.workload.find_regression(self.progress, &settings, now).or(applied)?;
            Some((harm, settings))
        });
        if let Some((harm, settings)) = harm {
            self.state.workload.open_breaker(harm, &settings, now);
            self.state.budget.trip(self.subject.vpa, &settings, now);
            self.regression = Some(harm);
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

    /// Whether a second replica that was asked for has served its turn, does not get ready, or is not needed any more.
    pub(super) fn surge_is_over(&self) -> bool {
        let Some(surge) = self.state.workload.surge else { return false };
        let is_due = surge.at.later(SURGE_MAX_DURATION) <= self.context.now;
        let mode = self.subject.sizing.spec.update_mode();
        let nobody_goes = matches!(mode, UpdateMode::Off | UpdateMode::Initial);
        surge.evicted || is_due || nobody_goes || self.surge_has_failed()
    }

    fn surge_has_failed(&self) -> bool {
        let waits = self.state.workload.surge.filter(|surge| !surge.evicted);
        let is_late = waits.is_some_and(|it| it.at.later(SURGE_READY_TIMEOUT) <= self.context.now);
        is_late && !self.groups.iter().any(|(_, group)| group.budget.running >= 2)
    }

    /// A second replica that does not get ready says that the first one would not either.
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

    /// How well all pods are: what is compared with later.
    pub(super) fn health_of_all(&self) -> Health {
        let since = self.context.now.earlier(BASELINE_PERIOD);
        let watched = self.views.iter().map(|view| ObservedPod {
            status: &view.pod.status,
            since,
            restarts: 0,
        });
        let found = Health::count(watched, self.ready_within(), self.context.now);
        Health { missing: self.missing_pods(), ..found }
    }

    /// The pods that the wave that is watched made, or resized.
    fn changed_pods<'v>(&'v self, rollout: &'v Rollout) -> impl Iterator<Item = &'v PodView<'v>> {
        self.views.iter().filter(move |view| match &view.last_change {
            Some(touch) if touch.what == ChangeKind::Resized => rollout.is_in_wave(touch.at),
            Some(_) => false,
            None => rollout.evicted > 0 && rollout.is_in_wave(view.pod.status.created),
        })
    }

    fn progress_of(&self, rollout: &Rollout) -> RolloutProgress {
        let now = self.context.now;
        let watched = self.changed_pods(rollout).map(|view| {
            // A resize may restart each container once.
            let expected = view.last_change.as_ref().map_or(0, |touch| {
                let containers = view.pod.spec.containers.len() as u32;
                touch.restarts.saturating_add(containers)
            });
            ObservedPod {
                status: &view.pod.status,
                since: view.created_or_resized,
                restarts: expected,
            }
        });
        let mut condition = Health::count(watched, self.ready_within(), now);
        if rollout.last.later(self.ready_within()) <= now {
            // A workload that is scaled up lacks pods for a moment; those that took the places of others do not.
            let made = self.views.iter().filter(|view| rollout.is_in_wave(view.pod.status.created));
            let owed = rollout.evicted.saturating_sub(made.count() as u32);
            condition.missing = self.missing_pods().min(owed);
        }
        // A resize that waits for room says nothing about how the pod will be, so nobody waits for it here.
        let ready = |view: &&PodView<'_>| {
            view.pod.status.is_ready() && !view.resize_phase.is_kubelet_busy()
        };
        let settled = self.changed_pods(rollout).filter(ready).count() as u32;
        let before = &rollout.before;
        let was_unready = before.unready + before.pending > 0;
        let none_to_come = condition.pods == 0 && self.missing_pods() == 0 && rollout.evicted > 0;
        let all = condition.pods > 0 && (settled == condition.pods || was_unready);
        RolloutProgress { health: condition, settled: all || none_to_come }
    }

    /// Whether pods that took the place of others got what was recommended.
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
        let is_told = self.state.workload.breaker.is_some_and(|it| it.since >= rollout.wave);
        (failed && !is_told).then_some(Regression::NotApplied)
    }

    /// Whether a pod is far from what is recommended for it, or from what was recommended at some time.
    fn is_far_from_target(&self, view: &PodView<'_>, target: Option<&Recommendation>) -> bool {
        let sizing = &self.subject.sizing;
        let size = &view.pod.spec;
        let now = if target.is_none() { sizing.recommendation(size).ok() } else { None };
        let Some(recommendation) = target.or(now.as_ref()) else { return false };
        let observed = &view.observed;
        let priority = Priority::new(size, recommendation, observed, sizing.rules.sidecars);
        priority.outside_recommended_range
            || priority.resource_diff >= self.settings.update_threshold
    }

    fn detect_external_overwrite(&mut self, rollout: &Rollout) {
        let then = recommendation_of(&rollout.target);
        let sidecars = self.subject.sizing.rules.sidecars;
        let mut found = Vec::new();
        for view in &self.views {
            let size = &view.pod.spec;
            let is_other = match &view.last_change {
                Some(touch) => {
                    let later = view.pod.status.generation.zip(touch.generation);
                    let is_later = later.is_some_and(|(now, before)| now > before);
                    let spec =
                        size.sized_containers(sidecars).map(|(_, one)| (&*one.name, &one.spec));
                    is_later && touch.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
                }
                None => {
                    rollout.evicted > 0
                        && rollout.is_watched(self.context.now)
                        && rollout.is_in_wave(view.pod.status.created)
                        && size.annotation(pod_annotations::UPDATES).is_some()
                        && boost::boosted_containers(size).next().is_none()
                        && self.is_far_from_target(view, None)
                        && self.is_far_from_target(view, Some(&then))
                }
            };
            if is_other {
                found.push(size.uid.clone());
            }
        }
        if found.is_empty() {
            return;
        }
        let memory = &mut self.state.workload;
        // It is told once of each pod; later changes of it are compared anew.
        let mut is_new = memory.rewritten.is_none_or(|it| it.at < rollout.wave);
        for touch in memory.touches.iter_mut().filter(|touch| found.contains(&touch.uid)) {
            is_new |= touch.wrote.take().is_some();
        }
        if is_new {
            let generation = self.subject.generation;
            memory.rewritten = Some(ExternalOverwrite { at: self.context.now, generation });
            self.externally_overwritten = true;
        }
    }
}

fn recommendation_of(target: &[RecommendedTarget]) -> Recommendation {
    let container_recommendations = target
        .iter()
        .map(|wanted| ContainerRecommendation {
            container_name: wanted.container.to_string(),
            target: wanted.target.clone(),
            ..ContainerRecommendation::default()
        })
        .collect();
    Recommendation { container_recommendations }
}
