//! Decides whether a pod is resized in place, has to wait, or has to be evicted instead.

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

/// The decision about a pod that could be resized.
#[derive(Clone, Debug, PartialEq)]
pub enum InPlaceDecision {
    /// The pod may be resized.
    Approved,
    /// The pod has to wait.
    Deferred(SkipReason),
    /// The pod is evicted instead, if that is allowed.
    Evict,
    /// The requested resize exceeds the capacity of the node.
    Infeasible,
    /// As `Infeasible`, known from an earlier resize; no resource is lower now.
    InfeasibleCached,
}

/// When a resize of a pod was first seen, by pod name. Upstream measures resize timeouts from it, and a later pod of the
/// same name inherits it. Used only for compatibility.
pub type ResizesFirstSeen = BTreeMap<Arc<str>, Time>;

/// How long the entry of a deleted pod is kept for a later pod of the same name. Upstream keeps it forever.
const RETENTION: Duration = Duration::from_hours(24);

/// Removes pods that were deleted long ago.
pub fn prune(first_seen: &mut ResizesFirstSeen, is_there: impl Fn(&str) -> bool, now: Time) {
    first_seen.retain(|name, since| is_there(name) || since.later(RETENTION) > now);
}

/// A pod that could be resized.
#[derive(Clone, Copy, Debug)]
pub struct ResizeCandidate<'a> {
    pub pod: &'a sizing::Pod,
    pub status: &'a PodStatus,
    /// Progress of its last resize.
    pub phase: ResizePhase,
    /// Whether it is unavailable already, so that its eviction does not reduce availability.
    pub is_down: bool,
    /// An earlier resize of it that was infeasible.
    pub infeasible: Option<&'a InfeasibleResize>,
}

/// The inputs that are the same for all pods of a VPA.
#[derive(Clone, Copy, Debug)]
pub struct InPlaceContext<'a> {
    pub mode: UpdateMode,
    /// The recommended targets, if any.
    pub targets: Option<&'a [RecommendedTarget]>,
    pub groups: &'a ReplicaGroups,
    pub settings: &'a Settings,
    pub now: Time,
}

/// Whether no resize of the pod restarts a container, by their resize policies.
pub fn is_non_disruptive(pod: &sizing::Pod) -> bool {
    pod.containers
        .iter()
        .all(|container| !container.resize_restarts.on_cpu && !container.resize_restarts.on_memory)
}

impl InPlaceContext<'_> {
    /// Decides whether a pod may be resized.
    pub fn decide(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> InPlaceDecision {
        let ResizeCandidate { status, .. } = pod;
        let only_in_place = self.mode == UpdateMode::InPlace;
        if only_in_place && !self.settings.in_place {
            return InPlaceDecision::Deferred(SkipReason::GateClosed);
        }
        let group = match self.groups.get(status) {
            Ok(group) => group,
            Err(skip) => return InPlaceDecision::Deferred(skip),
        };
        if status.phase == Phase::Pending {
            return InPlaceDecision::Deferred(SkipReason::Starting);
        }
        let Some(wanted) = self.targets else {
            return InPlaceDecision::Deferred(SkipReason::NoRecommendation);
        };
        let is_no_less = |refusal: &InfeasibleResize| !asks_for_less(wanted, &refusal.wanted);
        let uses_cache = only_in_place || self.settings.fixes.has(Fix::InfeasibleResizesExpire);
        if uses_cache && pod.infeasible.is_some_and(is_no_less) {
            return if only_in_place {
                InPlaceDecision::InfeasibleCached
            } else {
                InPlaceDecision::Evict
            };
        }
        if let Some(decision) = self.decide_while_resizing(pod, first_seen) {
            return decision;
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
        group
            .ensure_budget(is_down)
            .map_or_else(InPlaceDecision::Deferred, |()| InPlaceDecision::Approved)
    }

    /// Decides about a pod that is being resized; `None` if it is not.
    fn decide_while_resizing(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> Option<InPlaceDecision> {
        let only_in_place = self.mode == UpdateMode::InPlace;
        let skip = if self.settings.fixes.has(Fix::ResizeTimeoutsByCondition) {
            pod.phase.skip_reason()?
        } else if pod.status.is_resizing() {
            deferral_reason(ResizeStatus::from_pod_status(pod.status))
        } else {
            return None;
        };
        if only_in_place && skip == SkipReason::Infeasible {
            return Some(InPlaceDecision::Infeasible);
        }
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

    /// Whether a pod that is being resized may be evicted: the resize has timed out, or is infeasible.
    fn may_evict_while_resizing(
        &self,
        pod: ResizeCandidate<'_>,
        first_seen: &mut ResizesFirstSeen,
    ) -> Result<(), SkipReason> {
        let (settings, now) = (self.settings, self.now);
        let by_condition = settings.fixes.has(Fix::ResizeTimeoutsByCondition);
        // Upstream measures from its first check, whatever the result of that check.
        let seen =
            (!by_condition).then(|| *first_seen.entry(Arc::clone(&pod.pod.name)).or_insert(now));
        let group = self.groups.get(pod.status)?;
        let is_down = pod.is_down && settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        group.ensure_budget(is_down)?;
        let timed_out = |since: Option<Time>, timeout| {
            since.is_some_and(|since: Time| now > since.later(timeout))
        };
        if let Some(seen) = seen {
            let status = ResizeStatus::from_pod_status(pod.status);
            let ready = match status {
                ResizeStatus::Deferred => timed_out(Some(seen), settings.deferred_timeout),
                ResizeStatus::InProgress => timed_out(Some(seen), settings.in_progress_timeout),
                _ => true,
            };
            return if ready { Ok(()) } else { Err(deferral_reason(status)) };
        }
        let may_evict = match pod.phase {
            ResizePhase::Settled | ResizePhase::Infeasible => true,
            ResizePhase::Deferred { since } | ResizePhase::Error { since } => {
                timed_out(since, settings.deferred_timeout)
            }
            ResizePhase::InProgress { since } | ResizePhase::Proposed { since } => {
                timed_out(since, settings.in_progress_timeout)
            }
        };
        pod.phase.skip_reason().filter(|_| !may_evict).map_or(Ok(()), Err)
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
