//! Which pods are worth a change, and in which order they are looked at.

use super::{Pass, Queued, Worth};
use crate::{
    api::vpa::{EvictionRequirement, UpdateMode},
    sizing::boost,
    types::compat::{Compat, Fix},
    updater::{
        acceptance::{accept, had_quick_oom},
        guard::refusals::{Wanted, is_lower, wanted},
        in_place::{InPlace, Question},
        life::Phase,
        priority::Priority,
        requirement,
        skip::Skip,
    },
};

impl Pass<'_> {
    /// The requirements that hold evictions, if the VPA has a policy at all.
    pub(super) fn requirements(&self) -> Option<&[EvictionRequirement]> {
        let policy = self.subject.sizing.plan.spec.update_policy.as_ref();
        policy.map(|policy| &*policy.eviction_requirements)
    }

    /// What is recommended for all containers, before it is held to anything.
    pub(super) fn raw(&self) -> Option<Vec<Wanted>> {
        self.subject.sizing.plan.recommendation.map(wanted)
    }

    pub(super) fn in_place(&mut self, pod: usize) -> InPlace {
        let (raw, mut seen) = (self.raw(), std::mem::take(&mut self.recall.first_seen));
        let question = self.question(raw.as_deref());
        let answer = question.in_place(self.views[pod].candidate(), &mut seen);
        self.recall.first_seen = seen;
        answer
    }

    pub(super) fn may_evict(&mut self, pod: usize) -> Result<(), Skip> {
        let mut seen = std::mem::take(&mut self.recall.first_seen);
        let answer = self.question(None).may_evict(self.views[pod].candidate(), &mut seen);
        self.recall.first_seen = seen;
        answer
    }

    fn question<'q>(&'q self, raw: Option<&'q [Wanted]>) -> Question<'q> {
        Question {
            mode: self.subject.sizing.plan.mode(),
            wanted: raw,
            groups: &self.groups,
            settings: self.settings,
            now: self.world.now,
        }
    }

    /// Finds the pods that are worth a change, in their order.
    pub(super) fn choose(&mut self) {
        if self.surge_is_over() && !self.views.is_empty() {
            self.queue.push_back(Queued::EndSurge);
            self.ends_surge = self.recall.memory.surge.is_some_and(|surge| !surge.evicted);
        }
        let spec = self.subject.sizing.plan.spec;
        let keeps_boosts = self.settings.startup_boost && boost::boosts(&self.subject.sizing.plan);
        let mode = spec.update_mode();
        let fits_all = self.fits_all(mode);
        for pod in 0..self.views.len() {
            let view = &self.views[pod];
            if self.settings.startup_boost && view.is_boosted {
                let plan = &self.subject.sizing.plan;
                let standing = boost::standing(&view.pod.size, plan, self.world.now);
                if !standing.expired.is_empty() {
                    self.queue.push_back(Queued::Unboost(pod));
                }
            }
            let refused = match &fits_all {
                Some(skip) => Err(skip.clone()),
                None if keeps_boosts && self.views[pod].is_boosted => Err(Skip::Boosted),
                None => self.look_at(pod, mode),
            };
            match refused {
                Ok(worth) => self.worth[pod] = Some(worth),
                Err(skip) => self.skip(pod, skip),
            }
        }
        self.order(mode);
    }

    /// What holds for all pods alike.
    fn fits_all(&self, mode: UpdateMode) -> Option<Skip> {
        // Upstream does nothing at all then. Ours does what needs no new pods.
        let is_upstream = self.settings.compat == Compat::Upstream;
        match mode {
            UpdateMode::Off | UpdateMode::Initial => Some(Skip::Mode),
            UpdateMode::InPlace if !self.settings.in_place => Some(Skip::GateClosed),
            _ if is_upstream && !self.world.is_admission_ready => Some(Skip::AdmissionUnready),
            _ => None,
        }
    }

    fn look_at(&mut self, pod: usize, mode: UpdateMode) -> Result<Worth, Skip> {
        let view = &self.views[pod];
        if view.is_leaving && self.settings.compat == Compat::Plimsoll {
            return Err(Skip::Leaving);
        }
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        if in_place {
            self.prefilter(pod, mode)?;
        } else {
            match self.may_evict(pod) {
                Err(_) if self.recall.memory.surge.is_some() && self.may_surge(pod) => {}
                Err(Skip::BelowMinReplicas { .. }) if self.may_surge(pod) => {}
                answer => answer?,
            }
        }
        let (view, sizing) = (&self.views[pod], &self.subject.sizing);
        let (size, life) = (&view.pod.size, &view.pod.life);
        let recommendation = sizing.recommendation(size)?;
        if mode == UpdateMode::InPlace {
            let now = wanted(&recommendation);
            if view.refusal.as_ref().is_some_and(|refusal| !is_lower(&now, &refusal.wanted)) {
                return Err(Skip::Infeasible);
            }
        }
        let sidecars = sizing.rules.sidecars;
        let priority = Priority::of(size, &recommendation, &view.observed, sidecars);
        let spec = sizing.plan.spec;
        let now = self.world.now;
        let quick = had_quick_oom(life, &view.observed, spec, self.settings, now);
        let need = accept(&priority, quick, life, view.resized(), self.settings, now)?;
        let held = !in_place || !self.settings.fixes.has(Fix::RequirementsHoldEvictionsOnly);
        if held {
            self.meets(pod, &recommendation)?;
        }
        Ok(Worth { need, priority, recommendation })
    }

    /// Whether a pod meets the requirements of an eviction.
    pub(super) fn meets(
        &self,
        pod: usize,
        recommendation: &crate::api::vpa::Recommendation,
    ) -> Result<(), Skip> {
        let Some(requirements) = self.requirements() else { return Ok(()) };
        let sidecars = self.subject.sizing.rules.sidecars;
        let size = &self.views[pod].pod.size;
        if requirement::are_met(requirements, size, recommendation, sidecars) {
            Ok(())
        } else {
            Err(Skip::Requirements)
        }
    }

    /// What upstream sorts out before it looks at priorities.
    fn prefilter(&mut self, pod: usize, mode: UpdateMode) -> Result<(), Skip> {
        let waits = self.settings.fixes.has(Fix::DeferredResizesWait);
        match (self.in_place(pod), mode) {
            (InPlace::Approved | InPlace::Infeasible, _)
            | (InPlace::Evict, UpdateMode::InPlaceOrRecreate) => Ok(()),
            (InPlace::Deferred(_), UpdateMode::InPlace) if !waits => Ok(()),
            (InPlace::Deferred(Skip::Starting), UpdateMode::InPlaceOrRecreate)
                if waits && self.views[pod].is_dead =>
            {
                // What hangs before its start is not resized, but may be evicted.
                Ok(())
            }
            (InPlace::Deferred(Skip::BelowMinReplicas { .. }), UpdateMode::InPlaceOrRecreate)
                if self.may_surge(pod) =>
            {
                Ok(())
            }
            (InPlace::Deferred(why), _) => Err(why),
            (InPlace::InfeasibleCached | InPlace::Evict, _) => {
                self.known_infeasible += 1;
                Err(Skip::Infeasible)
            }
        }
    }

    fn order(&mut self, mode: UpdateMode) {
        let mut order: Vec<(usize, Priority)> = Vec::new();
        for (pod, worth) in self.worth.iter().enumerate() {
            order.extend(worth.as_ref().map(|worth| (pod, worth.priority)));
        }
        order.sort_by(|(_, one), (_, other)| one.order(other));
        self.candidates = order.len();
        let in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate);
        let queued = order.into_iter().map(|(pod, _)| {
            let is_pending = self.views[pod].pod.life.phase == Phase::Pending;
            let is_evicted = is_pending && mode == UpdateMode::InPlaceOrRecreate;
            if in_place && !is_evicted { Queued::InPlace(pod) } else { Queued::Evict(pod) }
        });
        let queued: Vec<Queued> = queued.collect();
        self.queue.extend(queued);
    }
}
