//! Replica groups: how many pods a controller has and wants, and how many of them may be unavailable at once.

use std::collections::BTreeMap;

use super::{
    pod_status::{Phase, PodOwner, PodStatus},
    settings::Settings,
    skip_reason::SkipReason,
};
use crate::types::compat::Fix;

/// The number of pods that a controller wants: `spec.replicas`, for a DaemonSet `status.desiredNumberScheduled`, for an
/// unknown kind `spec.replicas` of its scale subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredReplicas {
    /// The object specifies this number.
    Known(u32),
    /// The object does not specify a number.
    Unspecified,
    /// The object was not found or could not be read.
    Unknown,
    /// The kind has no scale subresource: the current number of pods is assumed.
    SameAsCurrent,
}

#[derive(Clone, Copy, Debug)]
pub struct GroupMember<'a> {
    pub status: &'a PodStatus,
    /// Whether it has a startup boost annotation.
    pub boosted: bool,
    /// Whether it counts as unavailable even if it is ready: it was evicted, or a resize restarts it.
    pub counts_as_down: bool,
}

/// The disruption budget of a replica group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBudget {
    /// Desired replicas of the controller.
    pub configured: u32,
    /// Number of desired pods that may be unavailable.
    pub tolerance: u32,
    /// Available pods.
    pub running: u32,
    /// Pods evicted in this pass.
    pub evicted: u32,
    /// Pods resized in this pass.
    pub resized: u32,
}

impl GroupBudget {
    /// Creates the budget of a group. `tolerance` is the share of desired pods that may be unavailable.
    pub fn new(configured: u32, tolerance: f64, running: u32) -> Self {
        let tolerance = (f64::from(configured) * tolerance) as u32;
        Self { configured, tolerance, running, evicted: 0, resized: 0 }
    }

    /// Whether one more pod may become unavailable. With a tolerance of 0, one may if all others are available.
    pub fn allows_one_more(self) -> bool {
        let should_be_alive = i64::from(self.configured) - i64::from(self.tolerance);
        let down = i64::from(self.evicted) + i64::from(self.resized);
        let alive = i64::from(self.running) - down;
        alive > should_be_alive
            || (self.configured == self.running && self.tolerance == 0 && down == 0)
    }

    /// Returns the number of desired pods that may be unavailable at once.
    pub fn max_unavailable(self) -> u32 {
        if self.configured == 0 { 0 } else { self.tolerance.max(1) }
    }
}

/// The pods of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaGroup {
    pub budget: GroupBudget,
    /// Live pods in any phase.
    pub live: u32,
    /// Pods in phase `Pending`.
    pub pending: u32,
    /// Whether it has fewer pods than minReplicas: then only non-disruptive resizes and boost removals are allowed.
    pub below_min_replicas: bool,
}

/// The replica groups of one VPA's pods.
#[derive(Clone, Debug, Default)]
pub struct ReplicaGroups {
    groups: BTreeMap<PodOwner, Result<ReplicaGroup, SkipReason>>,
}

#[derive(Clone, Copy, Debug)]
pub struct GroupRules {
    /// Minimum number of live pods of a group that may be updated.
    pub min_replicas: i64,
    /// Share of desired pods that may be unavailable.
    pub tolerance: f64,
    /// Whether non-disruptive resizes ignore minReplicas and the budget.
    pub in_place_skips_budget: bool,
    /// Whether a single replica gets a second one before it is evicted.
    pub surges: bool,
}

impl ReplicaGroups {
    /// Counts the live pods of one VPA.
    pub fn count<'a>(
        members: impl IntoIterator<Item = GroupMember<'a>>,
        desired: impl Fn(&PodOwner) -> DesiredReplicas,
        rules: &GroupRules,
        settings: &Settings,
    ) -> Self {
        let mut counts: BTreeMap<&PodOwner, GroupCounts> = BTreeMap::new();
        for member in members {
            if let Some(owner) = &member.status.owner {
                counts.entry(owner).or_default().add(member, settings);
            }
        }
        let groups = counts.into_iter().map(|(owner, group_counts)| {
            (owner.clone(), group_counts.evaluate(owner, desired(owner), rules, settings))
        });
        Self { groups: groups.collect() }
    }

    /// Returns the group of a pod, or why its pods may not be updated.
    pub fn get(&self, status: &PodStatus) -> Result<&ReplicaGroup, SkipReason> {
        let owner = status.owner.as_ref().ok_or(SkipReason::NoController)?;
        self.groups.get(owner).ok_or(SkipReason::NoController)?.as_ref().map_err(Clone::clone)
    }

    /// Returns the group of a pod, to record an action.
    pub fn get_mut(&mut self, status: &PodStatus) -> Option<&mut ReplicaGroup> {
        self.groups.get_mut(status.owner.as_ref()?)?.as_mut().ok()
    }

    /// Iterates over the groups whose pods may be updated.
    pub fn iter(&self) -> impl Iterator<Item = (&PodOwner, &ReplicaGroup)> {
        self.groups.iter().filter_map(|(owner, group)| Some((owner, group.as_ref().ok()?)))
    }

    /// Whether a pod may be evicted, ignoring resizes in progress.
    pub fn may_evict(&self, status: &PodStatus, is_down: bool) -> Result<(), SkipReason> {
        let group = self.get(status)?;
        if status.phase == Phase::Pending {
            return Ok(());
        }
        if group.below_min_replicas {
            return Err(SkipReason::BelowMinReplicas { live: group.live });
        }
        group.ensure_budget(is_down)
    }
}

impl ReplicaGroup {
    /// Returns an error if no more pods may become unavailable, unless this one is unavailable already.
    pub fn ensure_budget(&self, is_down: bool) -> Result<(), SkipReason> {
        let GroupBudget { configured: wanted, running, evicted, resized, .. } = self.budget;
        if is_down || self.budget.allows_one_more() {
            return Ok(());
        }
        // The available pods, minus those evicted or resized in this pass.
        let alive = running.saturating_sub(evicted.saturating_add(resized));
        Err(SkipReason::Budget { alive, wanted })
    }
}

#[derive(Default)]
struct GroupCounts {
    live: u32,
    pending: u32,
    running: u32,
    boosted: bool,
}

impl GroupCounts {
    fn add(&mut self, member: GroupMember<'_>, settings: &Settings) {
        let is_pending = member.status.phase == Phase::Pending;
        let is_alive = if settings.fixes.has(Fix::OnlyReadyPodsAreAlive) {
            !is_pending && member.status.is_ready() && !member.counts_as_down
        } else {
            !is_pending
        };
        self.live += 1;
        self.pending += u32::from(is_pending);
        self.running += u32::from(is_alive);
        self.boosted |= member.boosted;
    }

    fn evaluate(
        &self,
        owner: &PodOwner,
        desired: DesiredReplicas,
        rules: &GroupRules,
        settings: &Settings,
    ) -> Result<ReplicaGroup, SkipReason> {
        let too_few = i64::from(self.live) < rules.min_replicas;
        let boost_lifts = self.boosted && !settings.fixes.has(Fix::BoostLiftsUnboostOnly);
        let is_kept =
            self.boosted || rules.in_place_skips_budget || (rules.surges && self.live == 1);
        if too_few && !is_kept {
            return Err(SkipReason::BelowMinReplicas { live: self.live });
        }
        let below_minimum = too_few && (rules.in_place_skips_budget || !boost_lifts);
        let configured = self.configured_replicas(owner, desired, settings)?;
        Ok(ReplicaGroup {
            budget: GroupBudget::new(configured, rules.tolerance, self.running),
            live: self.live,
            pending: self.pending,
            below_min_replicas: below_minimum,
        })
    }

    fn configured_replicas(
        &self,
        owner: &PodOwner,
        desired: DesiredReplicas,
        settings: &Settings,
    ) -> Result<u32, SkipReason> {
        match (&*owner.kind, desired) {
            ("Job", _) => Ok(self.live),
            ("ReplicaSet" | "StatefulSet" | "ReplicationController" | "DaemonSet", desired) => {
                let DesiredReplicas::Known(pods @ 1..) = desired else {
                    return Err(SkipReason::ReplicasUnknown);
                };
                Ok(pods)
            }
            (_, desired) if settings.fixes.has(Fix::UnknownOwnersHaveReplicas) => match desired {
                DesiredReplicas::Known(pods) => Ok(pods),
                DesiredReplicas::SameAsCurrent => Ok(self.live),
                DesiredReplicas::Unspecified | DesiredReplicas::Unknown => {
                    Err(SkipReason::ReplicasUnknown)
                }
            },
            _ => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests;
