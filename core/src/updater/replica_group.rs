//! Replica groups: how many pods a controller has and wants, and how many of them may be down at once.

use std::collections::BTreeMap;

use super::{
    pod_status::{Phase, PodOwner, PodStatus},
    settings::Settings,
    skip_reason::SkipReason,
};
use crate::types::compat::Fix;

/// What is known of how many pods a controller wants: `spec.replicas`, of a DaemonSet `status.desiredNumberScheduled`,
/// of a kind that nobody knows `spec.replicas` of its `/scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredReplicas {
    /// So many.
    Known(u32),
    /// The object does not say.
    Unspecified,
    /// The object was not found, or could not be read.
    Unknown,
    /// The kind has no scale, so as many as there are.
    SameAsCurrent,
}

/// A pod as its group counts it.
#[derive(Clone, Copy, Debug)]
pub struct GroupMember<'a> {
    /// What became of it.
    pub status: &'a PodStatus,
    /// Whether it carries the annotation of a boost.
    pub boosted: bool,
    /// Whether it counts as down whatever it says: it was evicted, or restarts for its resize.
    pub counts_as_down: bool,
}

/// How much of a group may be disrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBudget {
    /// Pods that the controller wants.
    pub configured: u32,
    /// Pods of these that may be down.
    pub tolerance: u32,
    /// Pods that are alive.
    pub running: u32,
    /// Pods that were evicted in this pass.
    pub evicted: u32,
    /// Pods that were resized in this pass.
    pub resized: u32,
}

impl GroupBudget {
    /// Of so many pods, with the share that may be down.
    pub fn new(configured: u32, tolerance: f64, running: u32) -> Self {
        let tolerance = (f64::from(configured) * tolerance) as u32;
        Self { configured, tolerance, running, evicted: 0, resized: 0 }
    }

    /// Whether one more pod may go down. Where nothing is tolerated, one may while all are up.
    pub fn allows_one_more(self) -> bool {
        let should_be_alive = i64::from(self.configured) - i64::from(self.tolerance);
        let down = i64::from(self.evicted) + i64::from(self.resized);
        let alive = i64::from(self.running) - down;
        alive > should_be_alive
            || (self.configured == self.running && self.tolerance == 0 && down == 0)
    }

    /// The most pods that may be down at once, out of those that are wanted.
    pub fn max_unavailable(self) -> u32 {
        if self.configured == 0 { 0 } else { self.tolerance.max(1) }
    }
}

/// The pods of one controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaGroup {
    /// How much of it may be disrupted.
    pub budget: GroupBudget,
    /// Live pods, whatever their phase.
    pub live: u32,
    /// Pods that were not started yet.
    pub pending: u32,
    /// Whether there are fewer than the least: only resizes that disrupt nothing, and what boosts end, may happen.
    pub below_min_replicas: bool,
}

/// The groups of one VPA's pods.
#[derive(Clone, Debug, Default)]
pub struct ReplicaGroups {
    groups: BTreeMap<PodOwner, Result<ReplicaGroup, SkipReason>>,
}

/// What the groups of a VPA are judged by.
#[derive(Clone, Copy, Debug)]
pub struct GroupRules {
    /// The least live pods of a group that may be touched.
    pub min_replicas: i64,
    /// Share of the wanted pods that may be down.
    pub tolerance: f64,
    /// Whether resizes may pass groups by that are too small.
    pub in_place_skips_budget: bool,
    /// A single replica is made two before it is touched.
    pub surges: bool,
}

impl ReplicaGroups {
    /// Counts the live pods of one VPA.
    pub fn count<'a>(
        members: impl IntoIterator<Item = GroupMember<'a>>,
        wanted: impl Fn(&PodOwner) -> DesiredReplicas,
        rules: &GroupRules,
        settings: &Settings,
    ) -> Self {
        let mut tallies: BTreeMap<&PodOwner, GroupCounts> = BTreeMap::new();
        for member in members {
            if let Some(owner) = &member.status.owner {
                tallies.entry(owner).or_default().add(member, settings);
            }
        }
        let groups = tallies.into_iter().map(|(owner, tally)| {
            (owner.clone(), tally.evaluate(owner, wanted(owner), rules, settings))
        });
        Self { groups: groups.collect() }
    }

    /// The group of a pod, or why it has none that could be touched.
    pub fn get(&self, life: &PodStatus) -> Result<&ReplicaGroup, SkipReason> {
        let owner = life.owner.as_ref().ok_or(SkipReason::NoController)?;
        self.groups.get(owner).ok_or(SkipReason::NoController)?.as_ref().map_err(Clone::clone)
    }

    /// The group of a pod, to book what is done to it.
    pub fn get_mut(&mut self, life: &PodStatus) -> Option<&mut ReplicaGroup> {
        self.groups.get_mut(life.owner.as_ref()?)?.as_mut().ok()
    }

    /// All groups that may be touched.
    pub fn iter(&self) -> impl Iterator<Item = (&PodOwner, &ReplicaGroup)> {
        self.groups.iter().filter_map(|(owner, group)| Some((owner, group.as_ref().ok()?)))
    }

    /// Whether a pod may be evicted, with resizes under way left out of account.
    pub fn may_evict(&self, life: &PodStatus, is_down: bool) -> Result<(), SkipReason> {
        let group = self.get(life)?;
        if life.phase == Phase::Pending {
            return Ok(());
        }
        if group.below_min_replicas {
            return Err(group.below_min_replicas_reason());
        }
        if is_down || group.budget.allows_one_more() {
            return Ok(());
        }
        Err(SkipReason::Budget { alive: group.alive(), wanted: group.budget.configured })
    }
}

impl ReplicaGroup {
    fn below_min_replicas_reason(&self) -> SkipReason {
        SkipReason::BelowMinReplicas { live: self.live }
    }

    /// Pods that are alive, less those that were touched in this pass.
    pub fn alive(&self) -> u32 {
        let down = self.budget.evicted.saturating_add(self.budget.resized);
        self.budget.running.saturating_sub(down)
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
        wanted: DesiredReplicas,
        rules: &GroupRules,
        settings: &Settings,
    ) -> Result<ReplicaGroup, SkipReason> {
        let too_few = i64::from(self.live) < rules.min_replicas;
        let boost_lifts = self.boosted && !settings.fixes.has(Fix::BoostLiftsUnboostOnly);
        let kept = self.boosted || rules.in_place_skips_budget || (rules.surges && self.live == 1);
        if too_few && !kept {
            return Err(SkipReason::BelowMinReplicas { live: self.live });
        }
        let below_minimum = too_few && (rules.in_place_skips_budget || !boost_lifts);
        let configured = self.configured_replicas(owner, wanted, settings)?;
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
        wanted: DesiredReplicas,
        settings: &Settings,
    ) -> Result<u32, SkipReason> {
        match (&*owner.kind, wanted) {
            ("Job", _) => Ok(self.live),
            ("ReplicaSet" | "StatefulSet" | "ReplicationController" | "DaemonSet", wanted) => {
                match wanted {
                    DesiredReplicas::Known(pods) if pods > 0 => Ok(pods),
                    _ => Err(SkipReason::ReplicasUnknown),
                }
            }
            (_, wanted) if settings.fixes.has(Fix::UnknownOwnersHaveReplicas) => match wanted {
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
