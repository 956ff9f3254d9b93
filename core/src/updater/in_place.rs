//! Whether a pod may be resized in place now, has to be waited for, or has to be evicted after all.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::types::Time;

use super::{
    group::Groups,
    guard::refusals::{Refusal, Wanted, is_lower},
    life::{Life, Phase},
    resize::{ResizePhase, ResizeStatus},
    settings::Settings,
    skip::Skip,
};
use crate::{api::vpa::UpdateMode, sizing, types::compat::Fix};

/// What is to be done about a pod that could be resized.
#[derive(Clone, Debug, PartialEq)]
pub enum InPlace {
    /// It may be resized.
    Approved,
    /// It has to wait.
    Deferred(Skip),
    /// It has to be evicted, if it may be.
    Evict,
    /// Its node can never have room for what was asked for.
    Infeasible,
    /// That is known already, and nothing less is wanted now.
    InfeasibleCached,
}

impl InPlace {
    /// Upstream's name for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Approved => "InPlaceApproved",
            Self::Deferred(_) => "InPlaceDeferred",
            Self::Evict => "InPlaceEvict",
            Self::Infeasible => "InPlaceInfeasible",
            Self::InfeasibleCached => "InPlaceInfeasibleCached",
        }
    }
}

/// When pods were first seen to be resized, by name: upstream's clock of resizes, which a later pod of the same name
/// inherits. Nobody else looks at it.
pub type FirstSeen = BTreeMap<Arc<str>, Time>;

/// How long the clock of a pod that is gone is kept for a later one of its name, as upstream keeps it for ever.
const KEPT: Duration = Duration::from_hours(24);

/// Forgets pods that are gone for long.
pub fn tidy(first_seen: &mut FirstSeen, is_there: impl Fn(&str) -> bool, now: Time) {
    first_seen.retain(|name, since| is_there(name) || since.later(KEPT) > now);
}

/// A pod that could be resized.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What it has.
    pub size: &'a sizing::Pod,
    /// What became of it.
    pub life: &'a Life,
    /// How far its last resize is.
    pub phase: ResizePhase,
    /// Whether it does not serve anyway, or counts as down already: that it goes takes nobody else down.
    pub is_down: bool,
    /// A resize of it that was found impossible.
    pub refusal: Option<&'a Refusal>,
}

/// What is asked about all pods of a VPA.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The mode of the VPA.
    pub mode: UpdateMode,
    /// What is recommended, if anything is.
    pub wanted: Option<&'a [Wanted]>,
    /// The groups of its pods.
    pub groups: &'a Groups,
    /// What decisions hang on.
    pub settings: &'a Settings,
    /// The time.
    pub now: Time,
}

/// Whether a resize of the pod restarts none of its containers: no resource of any of them needs it.
pub fn is_non_disruptive(pod: &sizing::Pod) -> bool {
    pod.containers.iter().all(|one| !one.restarts.on_cpu && !one.restarts.on_memory)
}

impl Question<'_> {
    /// Whether a pod may be resized.
    pub fn in_place(&self, pod: Candidate<'_>, first_seen: &mut FirstSeen) -> InPlace {
        let Candidate { life, .. } = pod;
        let only_in_place = self.mode == UpdateMode::InPlace;
        if only_in_place && !self.settings.in_place {
            return InPlace::Deferred(Skip::GateClosed);
        }
        let group = match self.groups.of(life) {
            Ok(group) => group,
            Err(skip) => return InPlace::Deferred(skip),
        };
        if life.phase == Phase::Pending {
            return InPlace::Deferred(Skip::Starting);
        }
        let Some(wanted) = self.wanted else {
            return InPlace::Deferred(Skip::NoRecommendation);
        };
        let is_no_less = |refusal: &Refusal| !is_lower(wanted, &refusal.wanted);
        let looks_back = only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire);
        if looks_back && pod.refusal.is_some_and(is_no_less) {
            return if only_in_place { InPlace::InfeasibleCached } else { InPlace::Evict };
        }
        if let Some(answer) = self.under_way(pod, first_seen) {
            return answer;
        }
        if self.settings.skips_budget_in_place && is_non_disruptive(pod.size) {
            return InPlace::Approved;
        }
        let is_small = group.below_minimum && self.settings.fixes.has(Fix::BoostLiftsUnboostOnly);
        if is_small {
            return InPlace::Deferred(Skip::BelowMinReplicas { live: group.live });
        }
        let is_down = pod.is_down && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        if is_down || group.budget.allows_one_more() {
            return InPlace::Approved;
        }
        InPlace::Deferred(Skip::Budget { alive: group.alive(), wanted: group.budget.configured })
    }

    /// What a resize that is under way means.
    fn under_way(&self, pod: Candidate<'_>, first_seen: &mut FirstSeen) -> Option<InPlace> {
        let only_in_place = self.mode == UpdateMode::InPlace;
        let by_condition = self.settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        if !by_condition {
            if !pod.life.is_resizing() {
                return None;
            }
            let status = ResizeStatus::of(pod.life);
            if only_in_place && status == ResizeStatus::Infeasible {
                return Some(InPlace::Infeasible);
            }
            let evict = !only_in_place && self.may_evict_resizing(pod, first_seen).is_ok();
            return Some(if evict { InPlace::Evict } else { InPlace::Deferred(waits_for(status)) });
        }
        let skip = match pod.phase {
            ResizePhase::Settled => return None,
            ResizePhase::Infeasible if only_in_place => return Some(InPlace::Infeasible),
            ResizePhase::Infeasible => Skip::Infeasible,
            ResizePhase::Proposed { .. } => Skip::ResizeProposed,
            ResizePhase::Deferred { .. } => Skip::ResizeDeferred,
            ResizePhase::InProgress { .. } => Skip::ResizeInProgress,
            ResizePhase::Error { .. } => Skip::ResizeError,
        };
        let evict = !only_in_place && self.may_evict_resizing(pod, first_seen).is_ok();
        Some(if evict { InPlace::Evict } else { InPlace::Deferred(skip) })
    }

    /// Whether a pod may be evicted.
    pub fn may_evict(&self, pod: Candidate<'_>, first_seen: &mut FirstSeen) -> Result<(), Skip> {
        let is_down = pod.is_down && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let by_condition = self.settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        let group = self.groups.of(pod.life)?;
        let is_resizing = if by_condition {
            !matches!(pod.phase, ResizePhase::Settled)
        } else {
            pod.life.is_resizing()
        };
        if pod.life.phase != Phase::Pending && !group.below_minimum && is_resizing {
            return self.may_evict_resizing(pod, first_seen);
        }
        self.groups.may_evict(pod.life, is_down)
    }

    /// Whether a pod may be evicted though it is being resized: that takes too long, or is impossible.
    fn may_evict_resizing(
        &self,
        pod: Candidate<'_>,
        first_seen: &mut FirstSeen,
    ) -> Result<(), Skip> {
        let (settings, now) = (self.settings, self.now);
        let by_condition = settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        // Upstream's clock starts when it first looks, whatever comes of the look.
        let seen =
            (!by_condition).then(|| *first_seen.entry(Arc::clone(&pod.size.name)).or_insert(now));
        let group = self.groups.of(pod.life)?;
        let is_down = pod.is_down && settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        if !is_down && !group.budget.allows_one_more() {
            let wanted = group.budget.configured;
            return Err(Skip::Budget { alive: group.alive(), wanted });
        }
        let took = |since: Option<Time>, timeout| {
            since.is_some_and(|since: Time| now > since.later(timeout))
        };
        if let Some(seen) = seen {
            let status = ResizeStatus::of(pod.life);
            let ready = match status {
                ResizeStatus::Deferred => took(Some(seen), settings.deferred_timeout),
                ResizeStatus::InProgress => took(Some(seen), settings.in_progress_timeout),
                _ => true,
            };
            return if ready { Ok(()) } else { Err(waits_for(status)) };
        }
        match pod.phase {
            ResizePhase::Settled | ResizePhase::Infeasible => Ok(()),
            ResizePhase::Deferred { since } if took(since, settings.deferred_timeout) => Ok(()),
            ResizePhase::Error { since } if took(since, settings.deferred_timeout) => Ok(()),
            ResizePhase::InProgress { since } | ResizePhase::Proposed { since }
                if took(since, settings.in_progress_timeout) =>
            {
                Ok(())
            }
            ResizePhase::Deferred { .. } => Err(Skip::ResizeDeferred),
            ResizePhase::Error { .. } => Err(Skip::ResizeError),
            ResizePhase::InProgress { .. } => Err(Skip::ResizeInProgress),
            ResizePhase::Proposed { .. } => Err(Skip::ResizeProposed),
        }
    }
}

const fn waits_for(status: ResizeStatus) -> Skip {
    match status {
        ResizeStatus::InProgress => Skip::ResizeInProgress,
        ResizeStatus::Error => Skip::ResizeError,
        ResizeStatus::Infeasible => Skip::Infeasible,
        ResizeStatus::None | ResizeStatus::Deferred | ResizeStatus::Unknown => Skip::ResizeDeferred,
    }
}
