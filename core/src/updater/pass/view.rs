//! Each pod as a pass sees it: with what is remembered of it, and what it counts as.

use std::time::Duration;

use crate::types::Time;

use super::{Subject, World};
use crate::{
    api::vpa::UpdateMode,
    sizing,
    types::compat::Fix,
    updater::{
        group::{GroupRules, Groups, Member},
        guard::{Memory, Touch, Touched, memory::spec_hash, refusals::Refusal},
        in_place::{Candidate, is_non_disruptive},
        life::{Life, Phase},
        observed::Observed,
        resize::ResizePhase,
        settings::Settings,
    },
};

/// A pod: what it has, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// What it has.
    pub size: sizing::Pod,
    /// What became of it.
    pub life: Life,
}

/// For how long a pod that was evicted may still be seen. After that the eviction was never made.
const LEAVES_WITHIN: Duration = Duration::from_mins(10);

/// For how long the kubelet may say nothing about a resize that it has not made.
const NOTICED_WITHIN: Duration = Duration::from_mins(5);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct View<'a> {
    pub pod: &'a Pod,
    /// The last change of it.
    pub touch: Option<Touch>,
    /// When it was made, or resized last.
    pub made: Time,
    pub phase: ResizePhase,
    /// It does not serve, and will not by itself.
    pub is_dead: bool,
    /// It was evicted, and is still seen.
    pub is_leaving: bool,
    /// It may be restarted at any moment for a resize.
    pub is_at_risk: bool,
    pub is_boosted: bool,
    pub observed: Observed,
    pub refusal: Option<Refusal>,
}

impl<'a> View<'a> {
    fn of(
        pod: &'a Pod,
        subject: &Subject<'_>,
        memory: &Memory,
        settings: &Settings,
        now: Time,
    ) -> Self {
        let touch = memory.touch(&pod.size.uid).cloned();
        let resized = touch.as_ref().filter(|touch| touch.what == Touched::Resized);
        let resized = resized.map(|touch| touch.at);
        let is_noticed = resized.is_none_or(|at| at.later(NOTICED_WITHIN) <= now);
        let sizing = &subject.sizing;
        let phase = if !is_noticed && is_from_before(pod, touch.as_ref(), sizing.rules.sidecars) {
            ResizePhase::Proposed { since: resized }
        } else {
            ResizePhase::of(&pod.life, resized, is_noticed || has_its_spec(&pod.size))
        };
        let is_leaving = touch.as_ref().is_some_and(|touch| {
            touch.what == Touched::Evicted && touch.at.later(LEAVES_WITHIN) > now
        });
        let expiry = settings.fixes.has(Fix::InfeasibleResizesExpire);
        let expiry = expiry.then_some(settings.infeasible_expiry);
        Self {
            pod,
            made: resized.map_or(pod.life.created, |at| at.max(pod.life.created)),
            touch,
            phase,
            is_dead: is_dead(&pod.life, settings.dead_after, now),
            is_leaving,
            is_at_risk: phase.is_under_way() && !is_non_disruptive(&pod.size),
            is_boosted: sizing::boost::boosted(&pod.size).next().is_some(),
            observed: Observed::of(&pod.size, sizing.plan.injected),
            refusal: memory.refusals.of(&pod.size.uid, expiry, now).cloned(),
        }
    }

    pub fn resized(&self) -> Option<Time> {
        let touch = self.touch.as_ref().filter(|touch| touch.what == Touched::Resized);
        touch.map(|touch| touch.at)
    }

    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            size: &self.pod.size,
            life: &self.pod.life,
            phase: self.phase,
            is_down: self.is_dead || self.is_at_risk,
            refusal: self.refusal.as_ref(),
        }
    }

    /// Whether it will probably serve soon.
    pub fn is_starting(&self) -> bool {
        !self.is_dead && !self.pod.life.is_ready()
    }
}

/// Whether a pod is seen as it was before its last resize: by a list that is a little old.
fn is_from_before(pod: &Pod, touch: Option<&Touch>, sidecars: bool) -> bool {
    let Some(touch) = touch else { return false };
    let generations = pod.life.generation.zip(touch.generation);
    let is_later = generations.is_some_and(|(now, before)| now > before);
    let spec = pod.size.sized(sidecars).map(|(_, one)| (&*one.name, &one.spec));
    !is_later && touch.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
}

/// Whether a pod has what its spec says, as far as its status tells.
fn has_its_spec(pod: &sizing::Pod) -> bool {
    pod.containers.iter().chain(&pod.init_containers).all(|one| {
        one.status.as_ref().is_none_or(|status| {
            let (spec, status) = (one.spec.requests(), status.requests());
            spec.cpu() == status.cpu() && spec.memory() == status.memory()
        })
    })
}

fn is_dead(life: &Life, dead_after: Duration, now: Time) -> bool {
    let backs_off = life.containers.iter().any(|one| one.backing_off);
    let since = match life.phase {
        Phase::Pending => Some(life.created),
        Phase::Running | Phase::Other => life.unready_since(),
    };
    since.is_some_and(|since| backs_off || since.later(dead_after) <= now)
}

/// All pods.
pub(super) fn all<'a>(
    subject: &Subject<'a>,
    memory: &Memory,
    settings: &Settings,
    now: Time,
) -> Vec<View<'a>> {
    subject.pods.iter().map(|pod| View::of(pod, subject, memory, settings, now)).collect()
}

/// Their groups.
pub(super) fn groups(
    subject: &Subject<'_>,
    views: &[View<'_>],
    world: &World<'_>,
    settings: &Settings,
) -> Groups {
    let spec = subject.sizing.plan.spec;
    let own = spec.update_policy.as_ref().and_then(|policy| policy.min_replicas);
    let in_place =
        matches!(spec.update_mode(), UpdateMode::InPlaceOrRecreate | UpdateMode::InPlace);
    let rules = GroupRules {
        min_replicas: i64::from(own.unwrap_or(settings.min_replicas)),
        tolerance: settings.eviction_tolerance,
        skips_budget: in_place && settings.skips_budget_in_place,
        surges: settings.guards.surge,
    };
    let members = views.iter().map(|view| Member {
        life: &view.pod.life,
        boosted: view.is_boosted,
        given_up: view.is_leaving || view.is_at_risk,
    });
    Groups::count(members, world.wanted, &rules, settings)
}
