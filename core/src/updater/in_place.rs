//! Whether a pod may be resized in place now, has to be waited for, or has to be evicted after all.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::types::Time;

use super::{
    guard::infeasible::{InfeasibleResize, RecommendedTarget, asks_for_less},
    pod_status::{Phase, PodStatus},
    replica_group::ReplicaGroups,
    resize::{ResizePhase, ResizeStatus},
    settings::Settings,
    skip_reason::SkipReason,
};
use crate::{api::vpa::UpdateMode, sizing, types::compat::Fix};

/// What is to be done about a pod that could be resized.
#[derive(Clone, Debug, PartialEq)]
pub enum InPlaceDecision {
    /// It may be resized.
    Approved,
    /// It has to wait.
    Deferred(SkipReason),
    /// It has to be evicted, if it may be.
    Evict,
    /// Its node can never have room for what was asked for.
    Infeasible,
    /// That is known already, and nothing less is wanted now.
    InfeasibleCached,
}

impl InPlaceDecision {
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
pub type ResizesFirstSeen = BTreeMap<Arc<str>, Time>;

/// How long the clock of a pod that is gone is kept for a later one of its name, as upstream keeps it for ever.
const RETENTION: Duration = Duration::from_hours(24);

/// Forgets pods that are gone for long.
pub fn prune(first_seen: &mut ResizesFirstSeen, is_there: impl Fn(&str) -> bool, now: Time) {
    first_seen.retain(|name, since| is_there(name) || since.later(RETENTION) > now);
}

/// A pod that could be resized.
#[derive(Clone, Copy, Debug)]
pub struct ResizeCandidate<'a> {
    /// What it has.
    pub pod: &'a sizing::Pod,
    /// What became of it.
    pub status: &'a PodStatus,
    /// How far its last resize is.
    pub phase: ResizePhase,
    /// Whether it does not serve anyway, or counts as down already: that it goes takes nobody else down.
    pub is_down: bool,
    /// A resize of it that was found impossible.
    pub infeasible: Option<&'a InfeasibleResize>,
}

/// What is asked about all pods of a VPA.
#[derive(Clone, Copy, Debug)]
pub struct InPlaceContext<'a> {
    /// The mode of the VPA.
    pub mode: UpdateMode,
    /// What is recommended, if anything is.
    pub targets: Option<&'a [RecommendedTarget]>,
    /// The groups of its pods.
    pub groups: &'a ReplicaGroups,
    /// What decisions hang on.
    pub settings: &'a Settings,
    /// The time.
    pub now: Time,
}

/// Whether a resize of the pod restarts none of its containers: no resource of any of them needs it.
pub fn is_non_disruptive(pod: &sizing::Pod) -> bool {
    pod.containers.iter().all(|one| !one.resize_restarts.on_cpu && !one.resize_restarts.on_memory)
}

impl InPlaceContext<'_> {
    /// Whether a pod may be resized.
    pub fn decide(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> InPlaceDecision {
        let ResizeCandidate { status: life, .. } = pod;
        let only_in_place = self.mode == UpdateMode::InPlace;
        if only_in_place && !self.settings.in_place {
            return InPlaceDecision::Deferred(SkipReason::GateClosed);
        }
        let group = match self.groups.get(life) {
            Ok(group) => group,
            Err(skip) => return InPlaceDecision::Deferred(skip),
        };
        if life.phase == Phase::Pending {
            return InPlaceDecision::Deferred(SkipReason::Starting);
        }
        let Some(wanted) = self.targets else {
            return InPlaceDecision::Deferred(SkipReason::NoRecommendation);
        };
        let is_no_less = |refusal: &InfeasibleResize| !asks_for_less(wanted, &refusal.wanted);
        let looks_back = only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire);
        if looks_back && pod.infeasible.is_some_and(is_no_less) {
            return if only_in_place {
                InPlaceDecision::InfeasibleCached
            } else {
                InPlaceDecision::Evict
            };
        }
        if let Some(answer) = self.decide_while_resizing(pod, first_seen) {
            return answer;
        }
        if self.settings.in_place_skips_budget && is_non_disruptive(pod.pod) {
            return InPlaceDecision::Approved;
        }
        let is_small =
            group.below_min_replicas && self.settings.fixes.has(Fix::BoostLiftsUnboostOnly);
        if is_small {
            return InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { live: group.live });
        }
        let is_down = pod.is_down && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        if is_down || group.budget.allows_one_more() {
            return InPlaceDecision::Approved;
        }
        InPlaceDecision::Deferred(SkipReason::Budget {
            alive: group.alive(),
            wanted: group.budget.configured,
        })
    }

    /// What a resize that is under way means.
    fn decide_while_resizing(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> Option<InPlaceDecision> {
        let only_in_place = self.mode == UpdateMode::InPlace;
        let by_condition = self.settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        if !by_condition {
            if !pod.status.is_resizing() {
                return None;
            }
            let status = ResizeStatus::from_pod_status(pod.status);
            if only_in_place && status == ResizeStatus::Infeasible {
                return Some(InPlaceDecision::Infeasible);
            }
            let evict = !only_in_place && self.may_evict_while_resizing(pod, first_seen).is_ok();
            return Some(if evict {
                InPlaceDecision::Evict
            } else {
                InPlaceDecision::Deferred(deferral_reason(status))
            });
        }
        let skip = match pod.phase {
            ResizePhase::Settled => return None,
            ResizePhase::Infeasible if only_in_place => return Some(InPlaceDecision::Infeasible),
            ResizePhase::Infeasible => SkipReason::Infeasible,
            ResizePhase::Proposed { .. } => SkipReason::ResizeProposed,
            ResizePhase::Deferred { .. } => SkipReason::ResizeDeferred,
            ResizePhase::InProgress { .. } => SkipReason::ResizeInProgress,
            ResizePhase::Error { .. } => SkipReason::ResizeError,
        };
        let evict = !only_in_place && self.may_evict_while_resizing(pod, first_seen).is_ok();
        Some(if evict { InPlaceDecision::Evict } else { InPlaceDecision::Deferred(skip) })
    }

    /// Whether a pod may be evicted.
    pub fn may_evict(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> Result<(), SkipReason> {
        let is_down = pod.is_down && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let by_condition = self.settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        let group = self.groups.get(pod.status)?;
        let is_resizing = if by_condition {
            !matches!(pod.phase, ResizePhase::Settled)
        } else {
            pod.status.is_resizing()
        };
        if pod.status.phase != Phase::Pending && !group.below_min_replicas && is_resizing {
            return self.may_evict_while_resizing(pod, first_seen);
        }
        self.groups.may_evict(pod.status, is_down)
    }

    /// Whether a pod may be evicted though it is being resized: that takes too long, or is impossible.
    fn may_evict_while_resizing(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> Result<(), SkipReason> {
        let (settings, now) = (self.settings, self.now);
        let by_condition = settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        // Upstream's clock starts when it first looks, whatever comes of the look.
        let seen =
            (!by_condition).then(|| *first_seen.entry(Arc::clone(&pod.pod.name)).or_insert(now));
        let group = self.groups.get(pod.status)?;
        let is_down = pod.is_down && settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        if !is_down && !group.budget.allows_one_more() {
            let wanted = group.budget.configured;
            return Err(SkipReason::Budget { alive: group.alive(), wanted });
        }
        let took = |since: Option<Time>, timeout| {
            since.is_some_and(|since: Time| now > since.later(timeout))
        };
        if let Some(seen) = seen {
            let status = ResizeStatus::from_pod_status(pod.status);
            let ready = match status {
                ResizeStatus::Deferred => took(Some(seen), settings.deferred_timeout),
                ResizeStatus::InProgress => took(Some(seen), settings.in_progress_timeout),
                _ => true,
            };
            return if ready { Ok(()) } else { Err(deferral_reason(status)) };
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
            ResizePhase::Deferred { .. } => Err(SkipReason::ResizeDeferred),
            ResizePhase::Error { .. } => Err(SkipReason::ResizeError),
            ResizePhase::InProgress { .. } => Err(SkipReason::ResizeInProgress),
            ResizePhase::Proposed { .. } => Err(SkipReason::ResizeProposed),
        }
    }
}

const fn deferral_reason(status: ResizeStatus) -> SkipReason {
    match status {
        ResizeStatus::InProgress => SkipReason::ResizeInProgress,
        ResizeStatus::Error => SkipReason::ResizeError,
        ResizeStatus::Infeasible => SkipReason::Infeasible,
        ResizeStatus::None | ResizeStatus::Deferred | ResizeStatus::Unknown => {
            SkipReason::ResizeDeferred
        }
    }
}
