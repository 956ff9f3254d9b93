//! What was changed in the whole cluster of late, and whether it did any good: kept in the updater's Lease, and written
//! there before each change that it pays for.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_storage::Time;
use serde::{Deserialize, Serialize};

use super::{
    super::skip::Skip,
    settings::{Allowance, BreakerSettings, GuardSettings},
};

/// Key of the annotation on the Lease.
pub const KEY: &str = "plimsoll.dev/changes";

/// Bytes that the annotation may have.
pub const LIMIT: usize = plimsoll_storage::checkpoint::annotation::LIMIT;

/// Number of the format. It changes when old readers would misunderstand.
const VERSION: u32 = 1;

/// Changes are counted by five minutes. A count is forgotten when all of its five minutes are an hour past, so that no
/// hour has more than is allowed, wherever it begins.
const SLOT: i64 = 300;
const SLOTS: i64 = 12;

/// How long an eviction may take to show an effect, and how long nothing more is tried when it shows none. That doubles
/// from one to the next.
const PROOF_WITHIN: Duration = Duration::from_mins(15);
const MOST_DOUBLINGS: u32 = 4;

/// How long an effect that was seen says that the next evictions will have theirs.
const PROVES_FOR: Duration = Duration::from_hours(1);

/// What a change is charged as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// It takes a pod or a container down.
    Disruption,
    /// It takes nothing down.
    Resize,
}

/// So many changes in one slot.
type Count = (i64, u32);

/// What was changed in the cluster of late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    disruptions: BTreeMap<String, Vec<Count>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    resizes: BTreeMap<String, Vec<Count>>,
    /// Workloads that got worse, and when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    trips: BTreeMap<String, Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open_until: Option<Time>,
    /// Evictions since one was last seen to have an effect, and when the last of them was.
    #[serde(default)]
    unproven: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_eviction: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proven: Option<Time>,
}

/// How large the cluster and the namespace are: pods that VPAs are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// In the cluster.
    pub cluster: u32,
    /// In the namespace.
    pub namespace: u32,
}

/// Why what stands in the Lease does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Another format.
    #[error("its version is {0} and only {VERSION} can be read")]
    Version(u32),
    /// No format at all.
    #[error("it cannot be read ({0})")]
    Text(String),
    /// It would not fit.
    #[error("it would have {0} bytes, more than the {LIMIT} that an annotation may have")]
    TooLong(usize),
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    #[serde(flatten)]
    ledger: &'a Ledger,
}

fn slot(at: Time) -> i64 {
    at.as_secs().div_euclid(SLOT)
}

impl Ledger {
    /// As it stands in the Lease.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let unreadable = |error: serde_json::Error| Unreadable::Text(error.to_string());
        let Version { v } = serde_json::from_str(text).map_err(unreadable)?;
        if v != VERSION {
            return Err(Unreadable::Version(v));
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    /// As it is to stand in the Lease. Where the exact times do not fit, each namespace keeps the latest of them for
    /// all: what was changed then counts longer than it had to.
    pub fn write(&self) -> Result<String, Unreadable> {
        let text = |ledger: &Self| {
            serde_json::to_string(&Written { v: VERSION, ledger })
                .map_err(|error| Unreadable::Text(error.to_string()))
        };
        let exact = text(self)?;
        if exact.len() <= LIMIT {
            return Ok(exact);
        }
        let mut coarse = self.clone();
        for counts in coarse.disruptions.values_mut().chain(coarse.resizes.values_mut()) {
            let sum = counts.iter().map(|(_, count)| count).sum();
            let latest = counts.iter().map(|(slot, _)| *slot).max();
            *counts = latest.map(|slot| (slot, sum)).into_iter().collect();
        }
        let coarse = text(&coarse)?;
        if coarse.len() <= LIMIT { Ok(coarse) } else { Err(Unreadable::TooLong(coarse.len())) }
    }

    fn counts(&self, charge: Charge) -> &BTreeMap<String, Vec<Count>> {
        match charge {
            Charge::Disruption => &self.disruptions,
            Charge::Resize => &self.resizes,
        }
    }

    /// Changes of late in one namespace.
    pub fn in_namespace(&self, namespace: &str, charge: Charge, now: Time) -> u32 {
        self.counts(charge).get(namespace).map_or(0, |counts| within_an_hour(counts, now))
    }

    /// Changes of late in the cluster.
    pub fn in_cluster(&self, charge: Charge, now: Time) -> u32 {
        self.counts(charge).values().map(|counts| within_an_hour(counts, now)).sum()
    }

    /// Whether one more change may be made.
    pub fn allows(
        &self,
        namespace: &str,
        charge: Charge,
        sizes: Sizes,
        settings: &GuardSettings,
        now: Time,
    ) -> Result<(), Skip> {
        if let Some(until) = self.open_until.filter(|until| *until > now) {
            return Err(Skip::ClusterBreakerOpen { until });
        }
        let (cluster, own) = match charge {
            Charge::Disruption => (settings.cluster_disruptions, settings.namespace_disruptions),
            Charge::Resize => (settings.cluster_resizes, settings.namespace_resizes),
        };
        let full = |allowance: Option<Allowance>, pods, used: u32| {
            allowance.is_some_and(|allowance| used >= allowance.of(pods))
        };
        if full(own, sizes.namespace, self.in_namespace(namespace, charge, now)) {
            return Err(Skip::NamespaceBudget);
        }
        if full(cluster, sizes.cluster, self.in_cluster(charge, now)) {
            return Err(Skip::ClusterBudget);
        }
        Ok(())
    }

    /// Whether one more pod may be evicted for all that is known of the effect of the last ones. Where they had none,
    /// one is tried now and then.
    pub fn is_effective(&self, settings: &GuardSettings, now: Time) -> Result<(), Skip> {
        let Some(allowed) = self.unproven_allowed(settings, now) else { return Ok(()) };
        let doublings = self.unproven.saturating_sub(allowed).min(MOST_DOUBLINGS);
        let pause = PROOF_WITHIN.saturating_mul(1 << doublings);
        let waited = self.last_eviction.is_none_or(|last| last.later(pause) <= now);
        if self.unproven >= allowed && !waited { Err(Skip::Unproven) } else { Ok(()) }
    }

    /// How many evictions may be without a sign of their effect, if there is a limit. The first one is seen to have had
    /// its effect before there is another: a webhook that answers for itself and sizes no pods costs one pod, not one of
    /// each workload.
    pub fn unproven_allowed(&self, settings: &GuardSettings, now: Time) -> Option<u32> {
        let is_proven = self.proven.is_some_and(|made| made.later(PROVES_FOR) > now);
        settings.unproven.map(|most| if is_proven { most } else { most.min(1) })
    }

    /// Evictions since one was last seen to have an effect.
    pub const fn unproven(&self) -> u32 {
        self.unproven
    }

    /// With one more change.
    pub fn book(&mut self, namespace: &str, charge: Charge, is_eviction: bool, now: Time) {
        self.forget(now);
        let counts = match charge {
            Charge::Disruption => &mut self.disruptions,
            Charge::Resize => &mut self.resizes,
        };
        let counts = counts.entry(namespace.to_owned()).or_default();
        let slot = slot(now);
        match counts.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((slot, 1)),
        }
        if is_eviction {
            self.unproven = self.unproven.saturating_add(1);
            self.last_eviction = self.last_eviction.max(Some(now));
        }
    }

    /// A change that was booked and that nobody made: the server refused it.
    pub fn refund(&mut self, namespace: &str, charge: Charge, is_eviction: bool, booked: Time) {
        let counts = match charge {
            Charge::Disruption => &mut self.disruptions,
            Charge::Resize => &mut self.resizes,
        };
        let slot = slot(booked);
        if let Some(counts) = counts.get_mut(namespace) {
            if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == slot) {
                *count = count.saturating_sub(1);
            }
            counts.retain(|(_, count)| *count > 0);
        }
        if is_eviction {
            self.unproven = self.unproven.saturating_sub(1);
        }
    }

    /// An eviction was seen to have had its effect: the pod that took the place was made then.
    pub fn prove(&mut self, made: Time) {
        if self.proven.is_none_or(|known| known < made) {
            self.proven = Some(made);
            self.unproven = 0;
        }
    }

    /// A workload got worse. Too many of them, and nothing is changed any more; so the answer says whether this was one
    /// too many.
    pub fn trip(&mut self, workload: &str, settings: &BreakerSettings, now: Time) -> bool {
        self.forget(now);
        self.trips.insert(workload.to_owned(), now);
        let open = self.trips.len() as u32 >= settings.cluster_trips;
        if open {
            self.open_until = self.open_until.max(Some(now.later(settings.open_for)));
        }
        open
    }

    /// Until when nothing is changed anywhere, if it is so.
    pub fn open_until(&self, now: Time) -> Option<Time> {
        self.open_until.filter(|until| *until > now)
    }

    fn forget(&mut self, now: Time) {
        let oldest = slot(now) - SLOTS;
        for charged in [&mut self.disruptions, &mut self.resizes] {
            charged.retain(|_, counts| {
                counts.retain(|(slot, _)| *slot >= oldest);
                !counts.is_empty()
            });
        }
        self.trips.retain(|_, at| at.later(Duration::from_hours(1)) > now);
        self.open_until = self.open_until(now);
    }
}

fn within_an_hour(counts: &[Count], now: Time) -> u32 {
    let oldest = slot(now) - SLOTS;
    counts.iter().filter(|(slot, _)| *slot >= oldest).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests;
