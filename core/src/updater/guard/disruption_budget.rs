//! What was changed in the whole cluster of late, and whether it did any good: kept in the updater's Lease, and written
//! there before each change that it pays for.

use std::{collections::BTreeMap, time::Duration};

use crate::types::{ObjectKey, Time};
use serde::{Deserialize, Serialize};

use super::{
    super::skip_reason::SkipReason,
    hourly_changes::HourlyChanges,
    settings::{Allowance, BreakerSettings, GuardSettings},
    trials::Trials,
};

/// Key of the annotation on the Lease.
pub const ANNOTATION: &str = "plimsoll.dev/changes";

/// Bytes that the annotation may have.
pub const MAX_BYTES: usize = crate::api::annotations::MAX_STATE_BYTES;

/// Number of the format. It changes when old readers would misunderstand.
const VERSION: u32 = 1;

/// How long an eviction may take to show an effect, and how long nothing more is tried when it shows none. That doubles
/// from one to the next.
const EFFECT_TIMEOUT: Duration = Duration::from_mins(15);
const MAX_DOUBLINGS: u32 = 4;

/// How long an effect that was seen says that the next evictions will have theirs.
const EFFECT_VALID_FOR: Duration = Duration::from_hours(1);

/// How long a trial without effect is remembered.
const TRIAL_RETENTION: Duration = Duration::from_hours(24);

/// Workloads of one namespace that count for the breaker of the cluster: whoever has a namespace must not be able to stop
/// all others alone.
const MAX_TRIPS_PER_NAMESPACE: usize = 2;

/// Workloads that got worse that are remembered in all namespaces together, unless the breaker needs more.
const MAX_TRIPS: usize = 64;

/// What a change is charged as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetKind {
    /// It takes a pod or a container down.
    Disruption,
    /// It takes nothing down.
    Resize,
}

/// What was changed in the cluster of late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DisruptionBudget {
    #[serde(default, skip_serializing_if = "HourlyChanges::is_empty")]
    disruptions: HourlyChanges,
    #[serde(default, skip_serializing_if = "HourlyChanges::is_empty")]
    resizes: HourlyChanges,
    /// Workloads that got worse, and when: of each namespace the latest.
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
    #[serde(default, skip_serializing_if = "Trials::is_empty")]
    trials: Trials,
}

/// How large the cluster and the namespace are: pods that VPAs are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// In the cluster.
    pub cluster: u32,
    /// In the namespace.
    pub namespace: u32,
}

/// Why what stands in the Lease does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetReadError {
    /// Another format.
    #[error("its version is {0} and only {VERSION} can be read")]
    Version(u32),
    /// No format at all.
    #[error("it cannot be read ({0})")]
    Text(String),
    /// It would not fit.
    #[error("it would have {0} bytes, more than the {MAX_BYTES} that an annotation may have")]
    TooLong(usize),
}

#[derive(Deserialize)]
struct StoredVersion {
    v: u32,
}

#[derive(Serialize)]
struct StoredBudget<'a> {
    v: u32,
    #[serde(flatten)]
    ledger: &'a DisruptionBudget,
}

impl DisruptionBudget {
    /// As it stands in the Lease.
    pub fn read(text: &str) -> Result<Self, BudgetReadError> {
        let unreadable = |error: serde_json::Error| BudgetReadError::Text(error.to_string());
        let StoredVersion { v } = serde_json::from_str(text).map_err(unreadable)?;
        if v != VERSION {
            return Err(BudgetReadError::Version(v));
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    /// As it is to stand in the Lease. Where the exact times do not fit, each namespace keeps the latest of them for
    /// all: what was changed then counts longer than it had to. Where the names do not fit either, those that were changed
    /// the longest ago are counted together. So what is booked always fits, and never counts for less.
    pub fn write(&self) -> Result<String, BudgetReadError> {
        let text = |ledger: &Self| {
            serde_json::to_string(&StoredBudget { v: VERSION, ledger })
                .map_err(|error| BudgetReadError::Text(error.to_string()))
        };
        let mut written = text(self)?;
        if written.len() <= MAX_BYTES {
            return Ok(written);
        }
        let mut coarse = self.clone();
        coarse.disruptions.coarsen();
        coarse.resizes.coarsen();
        written = text(&coarse)?;
        while written.len() > MAX_BYTES {
            if !coarse.drop_least_important() {
                return Err(BudgetReadError::TooLong(written.len()));
            }
            written = text(&coarse)?;
        }
        Ok(written)
    }

    /// Says less, beginning with what decides the least. Returns whether there was anything to leave out.
    fn drop_least_important(&mut self) -> bool {
        let (disruptions, resizes) =
            (self.disruptions.merge_oldest_namespaces(), self.resizes.merge_oldest_namespaces());
        if disruptions || resizes {
            return true;
        }
        if !self.trials.is_empty() {
            self.trials = Trials::default();
            return true;
        }
        let kept = self.trips.len() / 2;
        self.keep_latest_trips(kept, |_| true)
    }

    /// Forgets all of these workloads that got worse but the latest. Returns whether there were more.
    fn keep_latest_trips(&mut self, most: usize, is_meant: impl Fn(&str) -> bool) -> bool {
        let meant = self.trips.iter().filter(|(name, _)| is_meant(name));
        let mut meant: Vec<(Time, String)> = meant.map(|(name, at)| (*at, name.clone())).collect();
        meant.sort_unstable();
        let too_many = meant.len().saturating_sub(most);
        for (_, name) in &meant[..too_many] {
            self.trips.remove(name);
        }
        too_many > 0
    }

    const fn changes(&self, charge: BudgetKind) -> &HourlyChanges {
        match charge {
            BudgetKind::Disruption => &self.disruptions,
            BudgetKind::Resize => &self.resizes,
        }
    }

    /// Changes of late in one namespace.
    pub fn in_namespace(&self, namespace: &str, charge: BudgetKind, now: Time) -> u32 {
        self.changes(charge).in_namespace(namespace, now)
    }

    /// Changes of late in the cluster.
    pub fn in_cluster(&self, charge: BudgetKind, now: Time) -> u32 {
        self.changes(charge).in_cluster(now)
    }

    /// Whether one more change may be made.
    pub fn allows(
        &self,
        namespace: &str,
        charge: BudgetKind,
        sizes: PodCounts,
        settings: &GuardSettings,
        now: Time,
    ) -> Result<(), SkipReason> {
        if let Some(until) = self.open_until.filter(|until| *until > now) {
            return Err(SkipReason::ClusterBreakerOpen { until });
        }
        let (cluster, own) = match charge {
            BudgetKind::Disruption => {
                (settings.cluster_disruptions, settings.namespace_disruptions)
            }
            BudgetKind::Resize => (settings.cluster_resizes, settings.namespace_resizes),
        };
        let full = |allowance: Option<Allowance>, pods, used: u32| {
            allowance.is_some_and(|allowance| used >= allowance.limit_for(pods))
        };
        if full(own, sizes.namespace, self.in_namespace(namespace, charge, now)) {
            return Err(SkipReason::NamespaceBudget);
        }
        if full(cluster, sizes.cluster, self.in_cluster(charge, now)) {
            return Err(SkipReason::ClusterBudget);
        }
        Ok(())
    }

    /// Whether one more pod may be evicted for all that is known of the effect of the last ones. Where they had none,
    /// one is tried now and then.
    pub fn ensure_effective(&self, settings: &GuardSettings, now: Time) -> Result<(), SkipReason> {
        let Some(allowed) = self.max_unproven(settings, now) else { return Ok(()) };
        let doublings = self.unproven.saturating_sub(allowed).min(MAX_DOUBLINGS);
        let pause = EFFECT_TIMEOUT.saturating_mul(1 << doublings);
        let waited = self.last_eviction.is_none_or(|last| last.later(pause) <= now);
        if self.unproven >= allowed && !waited { Err(SkipReason::EffectUnproven) } else { Ok(()) }
    }

    /// How many evictions may be without a sign of their effect, if there is a limit. The first one is seen to have had
    /// its effect before there is another: a webhook that answers for itself and sizes no pods costs one pod, not one of
    /// each workload.
    pub fn max_unproven(&self, settings: &GuardSettings, now: Time) -> Option<u32> {
        let is_proven = self.proven.is_some_and(|made| made.later(EFFECT_VALID_FOR) > now);
        settings.max_unproven_evictions.map(|most| if is_proven { most } else { most.min(1) })
    }

    /// Evictions since one was last seen to have an effect.
    pub const fn unproven(&self) -> u32 {
        self.unproven
    }

    /// Whether the next eviction is a trial: no new pod is known to have got what is recommended within the last hour, or
    /// as many as may be are without a sign of it.
    fn is_trial(&self, settings: &GuardSettings, now: Time) -> bool {
        let allowed = self.max_unproven(settings, now);
        allowed.is_some_and(|allowed| allowed <= 1 || self.unproven >= allowed)
    }

    /// The trials of late, if the next eviction is another one.
    pub fn trials(&self, settings: &GuardSettings, now: Time) -> Option<&Trials> {
        self.is_trial(settings, now).then_some(&self.trials)
    }

    /// Notes whose pod is about to be evicted, if that is a trial.
    pub fn record_trial(&mut self, vpa: &ObjectKey, settings: &GuardSettings, now: Time) {
        if self.is_trial(settings, now) {
            self.trials.record(vpa, now);
        }
    }

    /// With one more change.
    pub fn record(&mut self, namespace: &str, charge: BudgetKind, is_eviction: bool, now: Time) {
        self.expire(now);
        match charge {
            BudgetKind::Disruption => self.disruptions.add(namespace, now),
            BudgetKind::Resize => self.resizes.add(namespace, now),
        }
        if is_eviction {
            self.unproven = self.unproven.saturating_add(1);
            self.last_eviction = self.last_eviction.max(Some(now));
        }
    }

    /// An eviction was seen to have had its effect: the pod that took the place was made then.
    pub fn record_effect(&mut self, made: Time) {
        if self.proven.is_none_or(|known| known < made) {
            self.proven = Some(made);
            self.unproven = 0;
        }
    }

    /// The same, with whose pod it was: the workload need not wait for its turn any more.
    pub fn record_effect_of(&mut self, vpa: &ObjectKey, made: Time) {
        self.trials.remove(vpa);
        self.record_effect(made);
    }

    /// A workload got worse. Too many of them, and nothing is changed any more; so the answer says whether this was one
    /// too many.
    pub fn trip(&mut self, vpa: &ObjectKey, settings: &BreakerSettings, now: Time) -> bool {
        self.expire(now);
        let prefix = format!("{}/", vpa.namespace);
        self.trips.insert(format!("{prefix}{}", vpa.name), now);
        self.keep_latest_trips(MAX_TRIPS_PER_NAMESPACE, |name| name.starts_with(&prefix));
        self.keep_latest_trips(MAX_TRIPS.max(settings.cluster_trips as usize), |_| true);
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

    fn expire(&mut self, now: Time) {
        self.disruptions.expire(now);
        self.resizes.expire(now);
        self.trips.retain(|_, at| at.later(Duration::from_hours(1)) > now);
        self.trials.expire_before(now.earlier(TRIAL_RETENTION));
        self.open_until = self.open_until(now);
    }
}

#[cfg(test)]
mod tests;
