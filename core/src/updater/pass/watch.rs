//! What came of the changes before: whether pods are worse, whether they got what they were to get, and whether
//! somebody else writes other values.

use std::time::Duration;

use super::{Pass, view::View};
use crate::{
    api::vpa::{ContainerRecommendation, Recommendation, UpdateMode},
    sizing::{annotations, boost},
    types::compat::Fix,
    updater::{
        guard::{
            Harm, Health as Condition, Touched,
            harm::Watched,
            memory::{Rewritten, spec_hash},
            refusals::Wanted,
            rollout::{Progress, Rollout},
        },
        in_place,
        priority::Priority,
    },
};

/// What pods went through within this time before a change counts as how they are without it.
const BEFORE: Duration = Duration::from_hours(1);

/// How long a second replica may take to be ready.
const SURGES_WITHIN: Duration = Duration::from_mins(15);

/// How long there may be a second replica, whatever keeps the first one from going.
const SURGE_LASTS: Duration = Duration::from_hours(1);

/// For a pod that has no recommended amounts any more.
const NO_TIME: Duration = Duration::ZERO;

impl Pass<'_> {
    /// Looks at what came of the changes before.
    pub(super) fn look_back(&mut self) {
        self.tidy();
        if !self.settings.guards.remembers() {
            return;
        }
        self.give_up_surge();
        let Some(rollout) = self.recall.memory.rollout.clone() else { return };
        self.progress = self.progress_of(&rollout);
        let now = self.world.now;
        let harm = self.settings.guards.breaker.and_then(|settings| {
            let applied = self.effect_of(&rollout);
            let harm = self.recall.memory.harm(self.progress, &settings, now).or(applied)?;
            Some((harm, settings))
        });
        if let Some((harm, settings)) = harm {
            self.recall.memory.open(harm, &settings, now);
            self.recall.ledger.trip(self.subject.vpa, &settings, now);
            self.harm = Some(harm);
        }
        if self.settings.guards.rewritten.is_some() {
            self.find_rewriter(&rollout);
        }
    }

    fn tidy(&mut self) {
        self.recall.rests.tidy(self.world.now);
        let (live, now) = (self.subject.pods, self.world.now);
        let names: std::collections::BTreeSet<&str> =
            live.iter().map(|pod| &*pod.size.name).collect();
        in_place::tidy(&mut self.recall.first_seen, |name| names.contains(name), now);
        let pods: std::collections::BTreeSet<&str> =
            self.subject.pods.iter().map(|pod| &*pod.size.uid).collect();
        let (expiry, now) = (self.settings.infeasible_expiry, self.world.now);
        if !self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            self.recall.memory.refusals.retain(|uid| pods.contains(uid));
            return;
        }
        self.recall.memory.tidy(|uid| pods.contains(uid), expiry, now);
    }

    /// Whether a second replica that was asked for has served its turn, does not get ready, or is not needed any more.
    pub(super) fn surge_is_over(&self) -> bool {
        let Some(surge) = self.recall.memory.surge else { return false };
        let is_due = surge.at.later(SURGE_LASTS) <= self.world.now;
        let mode = self.subject.sizing.plan.mode();
        let nobody_goes = matches!(mode, UpdateMode::Off | UpdateMode::Initial);
        surge.evicted || is_due || nobody_goes || self.surge_has_failed()
    }

    fn surge_has_failed(&self) -> bool {
        let waits = self.recall.memory.surge.filter(|surge| !surge.evicted);
        let is_late = waits.is_some_and(|it| it.at.later(SURGES_WITHIN) <= self.world.now);
        is_late && !self.groups.iter().any(|(_, group)| group.budget.running >= 2)
    }

    /// A second replica that does not get ready says that the first one would not either.
    fn give_up_surge(&mut self) {
        let Some(settings) = self.settings.guards.breaker else { return };
        if self.surge_has_failed() && self.recall.memory.open_until(self.world.now).is_none() {
            self.recall.memory.open(Harm::Unready, &settings, self.world.now);
            self.harm = Some(Harm::Unready);
        }
    }

    fn missing(&self) -> u32 {
        let groups = self.groups.iter().map(|(_, group)| group);
        groups.map(|group| group.budget.configured.saturating_sub(group.live)).sum()
    }

    fn ready_within(&self) -> Duration {
        self.settings.guards.breaker.map_or(NO_TIME, |settings| settings.ready_within)
    }

    /// How well all pods are: what is compared with later.
    pub(super) fn condition_of_all(&self) -> Condition {
        let since = self.world.now.earlier(BEFORE);
        let watched =
            self.views.iter().map(|view| Watched { life: &view.pod.life, since, restarts: 0 });
        let found = Condition::of(watched, self.ready_within(), self.world.now);
        Condition { missing: self.missing(), ..found }
    }

    /// The pods that the wave that is watched made, or resized.
    fn changed<'v>(&'v self, rollout: &'v Rollout) -> impl Iterator<Item = &'v View<'v>> {
        self.views.iter().filter(move |view| match &view.touch {
            Some(touch) if touch.what == Touched::Resized => rollout.is_of_wave(touch.at),
            Some(_) => false,
            None => rollout.evicted > 0 && rollout.is_of_wave(view.pod.life.created),
        })
    }

    fn progress_of(&self, rollout: &Rollout) -> Progress {
        let now = self.world.now;
        let watched = self.changed(rollout).map(|view| {
            // A resize may restart each container once.
            let expected = view.touch.as_ref().map_or(0, |touch| {
                let containers = view.pod.size.containers.len() as u32;
                touch.restarts.saturating_add(containers)
            });
            Watched { life: &view.pod.life, since: view.made, restarts: expected }
        });
        let mut condition = Condition::of(watched, self.ready_within(), now);
        if rollout.last.later(self.ready_within()) <= now {
            // A workload that is scaled up lacks pods for a moment; those that took the places of others do not.
            let made = self.views.iter().filter(|view| rollout.is_of_wave(view.pod.life.created));
            let owed = rollout.evicted.saturating_sub(made.count() as u32);
            condition.missing = self.missing().min(owed);
        }
        // A resize that waits for room says nothing about how the pod will be, so nobody waits for it here.
        let ready = |view: &&View<'_>| view.pod.life.is_ready() && !view.phase.is_at_work();
        let settled = self.changed(rollout).filter(ready).count() as u32;
        let before = &rollout.before;
        let was_unready = before.unready + before.pending > 0;
        let none_to_come = condition.pods == 0 && self.missing() == 0 && rollout.evicted > 0;
        let all = condition.pods > 0 && (settled == condition.pods || was_unready);
        Progress { condition, settled: all || none_to_come }
    }

    /// Whether pods that took the place of others got what was recommended.
    fn effect_of(&mut self, rollout: &Rollout) -> Option<Harm> {
        if rollout.evicted == 0 || !rollout.is_watched(self.world.now) {
            return None;
        }
        let mut proven = None;
        let mut failed = false;
        for view in self.changed(rollout).filter(|view| view.touch.is_none()) {
            let is_sized = view.pod.size.annotation(annotations::UPDATES).is_some();
            if is_sized || !self.is_far(view, None) {
                proven = proven.max(Some(view.pod.life.created));
            } else {
                failed = true;
            }
        }
        if let Some(made) = proven {
            self.recall.ledger.prove_by(self.subject.vpa, made);
        }
        let is_told = self.recall.memory.breaker.is_some_and(|it| it.since >= rollout.wave);
        (failed && !is_told).then_some(Harm::NotApplied)
    }

    /// Whether a pod is far from what is recommended for it, or from what was recommended at some time.
    fn is_far(&self, view: &View<'_>, target: Option<&Recommendation>) -> bool {
        let sizing = &self.subject.sizing;
        let size = &view.pod.size;
        let now = if target.is_none() { sizing.recommendation(size).ok() } else { None };
        let Some(recommendation) = target.or(now.as_ref()) else { return false };
        let observed = &view.observed;
        let priority = Priority::of(size, recommendation, observed, sizing.rules.sidecars);
        priority.outside_range || priority.difference >= self.settings.update_threshold
    }

    fn find_rewriter(&mut self, rollout: &Rollout) {
        let then = then(&rollout.target);
        let sidecars = self.subject.sizing.rules.sidecars;
        let mut found = Vec::new();
        for view in &self.views {
            let size = &view.pod.size;
            let is_other = match &view.touch {
                Some(touch) => {
                    let later = view.pod.life.generation.zip(touch.generation);
                    let is_later = later.is_some_and(|(now, before)| now > before);
                    let spec = size.sized(sidecars).map(|(_, one)| (&*one.name, &one.spec));
                    is_later && touch.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
                }
                None => {
                    rollout.evicted > 0
                        && rollout.is_watched(self.world.now)
                        && rollout.is_of_wave(view.pod.life.created)
                        && size.annotation(annotations::UPDATES).is_some()
                        && boost::boosted(size).next().is_none()
                        && self.is_far(view, None)
                        && self.is_far(view, Some(&then))
                }
            };
            if is_other {
                found.push(size.uid.clone());
            }
        }
        if found.is_empty() {
            return;
        }
        let memory = &mut self.recall.memory;
        // It is told once of each pod; later changes of it are compared anew.
        let mut is_new = memory.rewritten.is_none_or(|it| it.at < rollout.wave);
        for touch in memory.touches.iter_mut().filter(|touch| found.contains(&touch.uid)) {
            is_new |= touch.wrote.take().is_some();
        }
        if is_new {
            let generation = self.subject.generation;
            memory.rewritten = Some(Rewritten { at: self.world.now, generation });
            self.rewritten = true;
        }
    }
}

fn then(target: &[Wanted]) -> Recommendation {
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
