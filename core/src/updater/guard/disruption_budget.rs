//! The recent changes in the whole cluster, and whether they had an effect. Stored in an annotation of the updater's
//! Lease, and persisted before each change that is charged to it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    api::state::{StateError, read_state, write_state},
    types::{ObjectKey, Time},
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    super::skip_reason::SkipReason,
    hourly_changes::HourlyChanges,
    settings::{Allowance, BreakerSettings, GuardSettings},
    trials::Trials,
};

/// Key of the annotation on the Lease.
pub const ANNOTATION: &str = "plimsoll.dev/changes";

/// Maximum size of the annotation in bytes.
pub const MAX_BYTES: usize = crate::api::state::MAX_STATE_BYTES;

/// Version of the format. It is increased when old readers would misinterpret it.
const VERSION: u32 = 1;

/// How long an eviction may take to show an effect, and the pause before the next trial if it shows none. The pause
/// doubles with each trial.
const EFFECT_TIMEOUT: Duration = Duration::from_mins(15);
const MAX_DOUBLINGS: u32 = 4;

/// How long an observed effect is proof that further evictions will have one.
const EFFECT_VALID_FOR: Duration = Duration::from_hours(1);

/// How long a trial without effect is stored.
const TRIAL_RETENTION: Duration = Duration::from_hours(24);

/// Maximum number of workloads of one namespace that count for the circuit breaker of the cluster, so that one namespace
/// cannot block all others.
const MAX_TRIPS_PER_NAMESPACE: usize = 2;

/// Maximum number of stored surges; further ones are recorded only on their VPAs.
const MAX_SURGES: usize = 256;

/// Maximum number of stored regressed workloads in all namespaces together, unless the breaker needs more.
const MAX_TRIPS: usize = 64;

/// The budget that a change is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetKind {
    /// The change disrupts a pod or restarts a container.
    Disruption,
    /// The change is a resize without restarts.
    Resize,
}

/// The recent changes in the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DisruptionBudget {
    #[serde(default, skip_serializing_if = "HourlyChanges::is_empty")]
    disruptions: HourlyChanges,
    #[serde(default, skip_serializing_if = "HourlyChanges::is_empty")]
    resizes: HourlyChanges,
    /// Regressed workloads and when they regressed: the latest of each namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    trips: BTreeMap<String, Time>,
    open_until: Option<Time>,
    /// Evictions since the last one with an observed effect, and the time of the last eviction.
    #[serde(default)]
    unproven: u32,
    last_eviction: Option<Time>,
    proven: Option<Time>,
    #[serde(default, skip_serializing_if = "Trials::is_empty")]
    trials: Trials,
    /// Deployments with a temporary second replica, by VPA (`namespace/name`). A VPA may be deleted while no updater leads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    surges: BTreeMap<String, String>,
}

/// Number of pods that VPAs control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    pub cluster: u32,
    pub namespace: u32,
}

impl DisruptionBudget {
    /// Parses the annotation of the Lease.
    pub fn read(text: &str) -> Result<Self, StateError> {
        read_state(text, VERSION, None)
    }

    /// Serializes the annotation of the Lease. If the exact times do not fit, all changes of a namespace get its latest
    /// time, so they count for longer than necessary. If the names do not fit either, the namespaces with the oldest
    /// changes are merged. So the value always fits, and never counts too few changes.
    pub fn write(&self) -> Result<String, StateError> {
        let text = |budget: &Self| write_state(budget, VERSION, None);
        let mut serialized = text(self)?;
        if serialized.len() <= MAX_BYTES {
            return Ok(serialized);
        }
        let mut coarse = self.clone();
        coarse.disruptions.coarsen();
        coarse.resizes.coarsen();
        serialized = text(&coarse)?;
        while serialized.len() > MAX_BYTES {
            if !coarse.drop_least_important() {
                return Err(StateError::TooLong(serialized.len()));
            }
            serialized = text(&coarse)?;
        }
        Ok(serialized)
    }

    /// Drops the least important data. Returns whether there was anything to drop.
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
        self.keep_latest_trips(kept, |_| true) || self.surges.pop_last().is_some()
    }

    /// Keeps only the latest of the regressed workloads that match. Returns whether any was removed.
    fn keep_latest_trips(&mut self, most: usize, is_match: impl Fn(&str) -> bool) -> bool {
        let trips = self.trips.iter().filter(|(name, _)| is_match(name));
        let mut trips: Vec<(Time, String)> = trips.map(|(name, at)| (*at, name.clone())).collect();
        trips.sort_unstable();
        let too_many = trips.len().saturating_sub(most);
        for (_, name) in &trips[..too_many] {
            self.trips.remove(name);
        }
        too_many > 0
    }

    /// The changes within the last hour.
    pub const fn changes(&self, kind: BudgetKind) -> &HourlyChanges {
        match kind {
            BudgetKind::Disruption => &self.disruptions,
            BudgetKind::Resize => &self.resizes,
        }
    }

    /// Returns an error if one more change would exceed a budget.
    pub fn allows(
        &self,
        namespace: &str,
        kind: BudgetKind,
        pod_counts: PodCounts,
        settings: &GuardSettings,
        now: Time,
    ) -> Result<(), SkipReason> {
        if let Some(until) = self.open_until.filter(|until| *until > now) {
            return Err(SkipReason::ClusterBreakerOpen { until });
        }
        let (cluster_allowance, namespace_allowance) = match kind {
            BudgetKind::Disruption => {
                (settings.cluster_disruptions, settings.namespace_disruptions)
            }
            BudgetKind::Resize => (settings.cluster_resizes, settings.namespace_resizes),
        };
        let is_exhausted = |allowance: Option<Allowance>, pods, used: u32| {
            allowance.is_some_and(|allowance| used >= allowance.limit_for(pods))
        };
        let used = self.changes(kind).in_namespace(namespace, now);
        if is_exhausted(namespace_allowance, pod_counts.namespace, used) {
            return Err(SkipReason::NamespaceBudget);
        }
        if is_exhausted(cluster_allowance, pod_counts.cluster, self.changes(kind).in_cluster(now)) {
            return Err(SkipReason::ClusterBudget);
        }
        Ok(())
    }

    /// Returns an error if recent evictions had no observed effect, so that no more pods should be evicted. A trial is
    /// allowed from time to time.
    pub fn ensure_effective(&self, settings: &GuardSettings, now: Time) -> Result<(), SkipReason> {
        let Some(allowed) = self.max_unproven(settings, now) else { return Ok(()) };
        let doublings = self.unproven.saturating_sub(allowed).min(MAX_DOUBLINGS);
        let pause = EFFECT_TIMEOUT.saturating_mul(1 << doublings);
        let waited = self.last_eviction.is_none_or(|last| last.later(pause) <= now);
        if self.unproven >= allowed && !waited { Err(SkipReason::EffectUnproven) } else { Ok(()) }
    }

    /// Returns how many evictions may lack an observed effect, if there is a limit. The first one must show its effect
    /// before the next: a webhook that is ready but does not size pods costs one pod, not one of each workload.
    pub fn max_unproven(&self, settings: &GuardSettings, now: Time) -> Option<u32> {
        let is_proven = self.proven.is_some_and(|made| made.later(EFFECT_VALID_FOR) > now);
        settings.max_unproven_evictions.map(|max| if is_proven { max } else { max.min(1) })
    }

    /// Returns the evictions since the last one with an observed effect.
    pub const fn unproven(&self) -> u32 {
        self.unproven
    }

    /// Whether the next eviction is a trial: no effect was observed within the last hour, or the number of evictions
    /// without one has reached the limit.
    fn is_trial(&self, settings: &GuardSettings, now: Time) -> bool {
        let allowed = self.max_unproven(settings, now);
        allowed.is_some_and(|allowed| allowed <= 1 || self.unproven >= allowed)
    }

    /// Returns the recent trials, if the next eviction is a trial.
    pub fn trials(&self, settings: &GuardSettings, now: Time) -> Option<&Trials> {
        self.is_trial(settings, now).then_some(&self.trials)
    }

    /// Records the VPA whose pod is about to be evicted, if that is a trial.
    pub fn record_trial(&mut self, vpa: &ObjectKey, settings: &GuardSettings, now: Time) {
        if self.is_trial(settings, now) {
            self.trials.record(vpa, now);
        }
    }

    /// Records that a Deployment gets a second replica.
    pub fn record_surge(&mut self, vpa: &ObjectKey, deployment: &str) {
        if self.surges.len() < MAX_SURGES {
            self.surges.insert(vpa.to_string(), deployment.to_owned());
        }
    }

    /// Removes the record of a second replica.
    pub fn remove_surge(&mut self, vpa: &ObjectKey) {
        self.surges.remove(&vpa.to_string());
    }

    /// The recorded second replicas: VPA and Deployment.
    pub fn surges(&self) -> impl Iterator<Item = (ObjectKey, &str)> {
        self.surges.iter().filter_map(|(vpa, deployment)| {
            let (namespace, name) = vpa.split_once('/')?;
            let vpa = ObjectKey { namespace: namespace.into(), name: name.into() };
            Some((vpa, deployment.as_str()))
        })
    }

    pub fn record(&mut self, namespace: &str, kind: BudgetKind, is_eviction: bool, now: Time) {
        self.expire(now);
        match kind {
            BudgetKind::Disruption => self.disruptions.add(namespace, now),
            BudgetKind::Resize => self.resizes.add(namespace, now),
        }
        if is_eviction {
            self.unproven = self.unproven.saturating_add(1);
            self.last_eviction = self.last_eviction.max(Some(now));
        }
    }

    /// Records that an eviction had its effect. `made` is the creation time of the replacement.
    pub fn record_effect(&mut self, made: Time) {
        if self.proven.is_none_or(|known| known < made) {
            self.proven = Some(made);
            self.unproven = 0;
        }
    }

    /// Like [`Self::record_effect`], and removes the trials of the workload.
    pub fn record_effect_of(&mut self, vpa: &ObjectKey, made: Time) {
        self.trials.remove(vpa);
        self.record_effect(made);
    }

    /// Records that a workload regressed. Returns whether this opened the circuit breaker of the cluster, because too many
    /// workloads have.
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

    /// Returns when the circuit breaker of the cluster closes, if it is open.
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
