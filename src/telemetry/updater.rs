//! Metrics of the updater: upstream's under upstream's names, and our own, which report why pods are skipped.

mod totals;

use std::{collections::HashSet, sync::Arc, time::Duration};

use plimsoll_core::types::ObjectKey;

pub use self::totals::{PassTotals, UpdatedVpa, VpaTotals};
use self::totals::{SIZES, log2};
use super::{
    definition::{Definition, counter, gauge, histogram},
    family::{Family, OVERFLOW_LABEL},
    instruments::{Counter, Gauge, Histogram},
    labels::{MODES_OR_NONE, known_mode},
    registry::Registry,
};
use plimsoll_core::updater::guard::Regression;

const NOT_YET_OBSERVED: &str = "it has not happened yet";
const PER_VPA: &str = "up to 20 per VPA, 50,000 in all";
/// Maximum number of series with names of VPAs, which are user input.
const MAX_VPA_SERIES: usize = 50_000;
const BY_SIZE_AND_MODE: &[&str] = &["update_mode", "vpa_size_log2"];
const BY_VPA: &[&str] = &["vpa_name", "vpa_namespace", "vpa_size_log2"];

const fn by_mode(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help)
        .labels(BY_SIZE_AND_MODE, "up to 160")
        .absent("no VPA has this mode, or no pass was made")
}

const fn by_size(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help).labels(&["vpa_size_log2"], "20").absent("no pass was made")
}

const CONTROLLED: Definition =
    by_mode("vpa_updater_controlled_pods_total", "Pods that a VPA controls.");
const EVICTABLE: Definition =
    by_mode("vpa_updater_evictable_pods_total", "Pods that would be evicted without restrictions.");
const VPAS_EVICTABLE: Definition =
    by_mode("vpa_updater_vpas_with_evictable_pods_total", "VPAs with at least one such pod.");
const VPAS_EVICTED: Definition =
    by_mode("vpa_updater_vpas_with_evicted_pods_total", "VPAs with at least one evicted pod.");
const UPDATABLE: Definition = by_size(
    "vpa_updater_in_place_updatable_pods_total",
    "Pods that would be resized without restrictions.",
);
const VPAS_UPDATABLE: Definition = by_size(
    "vpa_updater_vpas_with_in_place_updatable_pods_total",
    "VPAs with at least one such pod.",
);
const VPAS_UPDATED: Definition = by_size(
    "vpa_updater_vpas_with_in_place_updated_pods_total",
    "VPAs with at least one resized pod.",
);
const EVICTED: Definition = counter("vpa_updater_evicted_pods_total", "Pods that were evicted.")
    .labels(&["update_mode", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA)
    .absent("the VPA has no pods");
const UPDATED: Definition =
    counter("vpa_updater_in_place_updated_pods_total", "Pods that were resized.")
        .labels(BY_VPA, PER_VPA)
        .absent("the VPA has no pods");
const EVICTIONS_FAILED: Definition =
    counter("vpa_updater_failed_eviction_attempts_total", "Evictions that failed, by reason.")
        .labels(&["reason", "update_mode", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA)
        .absent(NOT_YET_OBSERVED);
const UPDATES_FAILED: Definition =
    counter("vpa_updater_failed_in_place_update_attempts_total", "Resizes that failed, by reason.")
        .labels(&["reason", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA)
        .absent(NOT_YET_OBSERVED);
const INFEASIBLE: Definition = counter(
    "vpa_updater_in_place_infeasible_skip_pods_total",
    "Pods that were skipped because an equal or smaller resize was found infeasible.",
)
.labels(BY_VPA, PER_VPA)
.absent(NOT_YET_OBSERVED);
const ADMISSION_INVALID: Definition = counter(
    "vpa_updater_admission_controller_status_invalid_total",
    "Passes that found no admission controller: its Lease was stale (invalid) or could not be read (error).",
)
.labels(&["reason"], "2")
.absent(NOT_YET_OBSERVED);
const STEPS: Definition = histogram(
    "vpa_updater_execution_latency_seconds",
    "Duration of each step of a pass, and in total (`total`).",
    &[
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0,
        80.0, 90.0, 100.0, 120.0, 150.0, 240.0, 300.0,
    ],
)
.labels(&["step"], "6 of 26")
.unit("seconds")
.absent("no pass was made");

const ACTIONS: Definition = counter(
    "plimsoll_updater_actions_total",
    "Actions on pods, by outcome; in dry-run mode, the actions that would have been taken.",
)
.labels(&["action", "outcome"], "up to 40")
.absent(NOT_YET_OBSERVED);
const SKIPPED: Definition =
    gauge("plimsoll_updater_skipped_pods", "Pods that the last pass skipped, by reason.")
        .labels(&["reason"], "1 per reason")
        .absent("no pass has skipped a pod for this reason yet");
const REGRESSIONS: Definition = counter(
    "plimsoll_updater_harm_total",
    "How often updated pods regressed, which pauses updates of their workload.",
)
.labels(&["harm"], "6");
const REWRITTEN: Definition = counter(
    "plimsoll_updater_rewritten_total",
    "How often another controller overwrote resources, which pauses updates of the workload.",
);
const OPEN: Definition = gauge(
    "plimsoll_updater_breakers_open",
    "Workloads whose updates are paused because updated pods regressed.",
);
const CLUSTER_OPEN: Definition = gauge(
    "plimsoll_updater_cluster_breaker_open",
    "1 while all updates in the cluster are paused because updates of several workloads failed.",
);
const USED: Definition = gauge(
    "plimsoll_updater_changes_within_hour",
    "Disruptions in the cluster within the last hour, by kind.",
)
.labels(&["charge"], "2");
const ALLOWED: Definition = gauge(
    "plimsoll_updater_changes_allowed",
    "Disruptions allowed per hour for the current size of the cluster.",
)
.labels(&["charge"], "2")
.absent("there is no such limit");
const HEARTBEATS: Definition = gauge(
    "plimsoll_updater_vpas_by_heartbeat",
    "VPAs by the heartbeat of their recommender: fresh, loading, stale, absent, unknown, awaited.",
)
.labels(&["state"], "6");
const UNREADABLE: Definition = counter(
    "plimsoll_updater_memory_ignored_total",
    "State annotations of earlier passes that could not be read.",
);

/// The metrics of an updater.
#[derive(Clone, Debug)]
pub struct UpdaterMetrics {
    controlled: Arc<Family<Gauge, 2>>,
    evictable: Arc<Family<Gauge, 2>>,
    vpas_evictable: Arc<Family<Gauge, 2>>,
    vpas_evicted: Arc<Family<Gauge, 2>>,
    updatable: Arc<Family<Gauge, 1>>,
    vpas_updatable: Arc<Family<Gauge, 1>>,
    vpas_updated: Arc<Family<Gauge, 1>>,
    evicted: Arc<Family<Counter, 4>>,
    updated: Arc<Family<Counter, 3>>,
    evictions_failed: Arc<Family<Counter, 5>>,
    updates_failed: Arc<Family<Counter, 4>>,
    infeasible: Arc<Family<Counter, 3>>,
    admission_invalid: Arc<Family<Counter, 1>>,
    steps: Arc<Family<Histogram, 1>>,
    actions: Arc<Family<Counter, 2>>,
    skipped: Arc<Family<Gauge, 1>>,
    regressions: Arc<Family<Counter, 1>>,
    rewritten: Arc<Counter>,
    open: Arc<Gauge>,
    cluster_open: Arc<Gauge>,
    used: Arc<Family<Gauge, 1>>,
    allowed: Arc<Family<Gauge, 1>>,
    heartbeats: Arc<Family<Gauge, 1>>,
    unreadable: Arc<Counter>,
}

impl UpdaterMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let modes = MODES_OR_NONE * SIZES;
        let regressions: Arc<Family<Counter, 1>> =
            registry.family(REGRESSIONS, Regression::ALL.len());
        for regression in Regression::ALL {
            // Create the series at zero, so that the first regression is visible as an increase.
            regressions.with_labels([regression.as_str()]);
        }
        Self {
            controlled: registry.family(CONTROLLED, modes),
            evictable: registry.family(EVICTABLE, modes),
            vpas_evictable: registry.family(VPAS_EVICTABLE, modes),
            vpas_evicted: registry.family(VPAS_EVICTED, modes),
            updatable: registry.family(UPDATABLE, SIZES + 1),
            vpas_updatable: registry.family(VPAS_UPDATABLE, SIZES + 1),
            vpas_updated: registry.family(VPAS_UPDATED, SIZES + 1),
            evicted: registry.family(EVICTED, MAX_VPA_SERIES),
            updated: registry.family(UPDATED, MAX_VPA_SERIES),
            evictions_failed: registry.family(EVICTIONS_FAILED, MAX_VPA_SERIES),
            updates_failed: registry.family(UPDATES_FAILED, MAX_VPA_SERIES),
            infeasible: registry.family(INFEASIBLE, MAX_VPA_SERIES),
            admission_invalid: registry.family(ADMISSION_INVALID, 2),
            steps: registry.family(STEPS, 6),
            actions: registry.family(ACTIONS, 40),
            skipped: registry.family(SKIPPED, 64),
            regressions,
            rewritten: registry.counter(REWRITTEN),
            open: registry.gauge(OPEN),
            cluster_open: registry.gauge(CLUSTER_OPEN),
            used: registry.family(USED, 2),
            allowed: registry.family(ALLOWED, 2),
            heartbeats: registry.family(HEARTBEATS, 6),
            unreadable: registry.counter(UNREADABLE),
        }
    }

    /// Sets the totals of a pass. Series without a value in it become zero.
    pub fn set_pass_totals(&self, totals: &PassTotals) {
        for family in [&self.controlled, &self.evictable, &self.vpas_evictable, &self.vpas_evicted]
        {
            family.for_each(|gauge| gauge.set(0.0));
        }
        for ((mode, size), sums) in &totals.by_mode {
            let labels = [mode.as_str(), size.as_str()];
            self.controlled.with_labels(labels).set(sums[0]);
            self.evictable.with_labels(labels).set(sums[1]);
            self.vpas_evictable.with_labels(labels).set(sums[2]);
            self.vpas_evicted.with_labels(labels).set(sums[3]);
        }
        for power in 0..SIZES {
            let size = power.to_string();
            let sums = totals.by_size.get(&size).copied().unwrap_or_default();
            self.updatable.with_labels([&size]).set(sums[0]);
            self.vpas_updatable.with_labels([&size]).set(sums[1]);
            self.vpas_updated.with_labels([&size]).set(sums[2]);
        }
        self.skipped.for_each(|gauge| gauge.set(0.0));
        for (why, pods) in &totals.skipped {
            self.skipped.with_labels([why]).set(*pods);
        }
        for state in ["fresh", "loading", "stale", "absent", "unknown", "awaited"] {
            let vpas = totals.heartbeats.get(state).copied().unwrap_or_default();
            self.heartbeats.with_labels([state]).set(vpas);
        }
        self.open.set(totals.breakers);
    }

    /// Resets the series that only the leader exposes, after another replica became the leader.
    pub fn clear_leader_series(&self) {
        self.set_pass_totals(&PassTotals::default());
        self.used.for_each(|gauge| gauge.set(0.0));
        self.set_cluster_open(false);
    }

    /// Removes the series of deleted VPAs, so that they do not count against the limit.
    pub fn retain(&self, vpas: &HashSet<ObjectKey>) {
        let existing: HashSet<(&str, &str)> =
            vpas.iter().map(|vpa| (&*vpa.namespace, &*vpa.name)).collect();
        let exists = |name: &str, namespace: &str| {
            existing.contains(&(namespace, name))
                || (name == OVERFLOW_LABEL && namespace == OVERFLOW_LABEL)
        };
        self.evicted.retain(|[_, name, namespace, _]| exists(name, namespace));
        self.updated.retain(|[name, namespace, _]| exists(name, namespace));
        self.evictions_failed.retain(|[_, _, name, namespace, _]| exists(name, namespace));
        self.updates_failed.retain(|[_, name, namespace, _]| exists(name, namespace));
        self.infeasible.retain(|[name, namespace, _]| exists(name, namespace));
    }

    /// Creates the counters of a VPA at zero.
    pub fn init_counters(&self, vpa: UpdatedVpa<'_>) {
        let size = log2(vpa.pods);
        let ObjectKey { namespace, name } = vpa.vpa;
        self.evicted.with_labels([known_mode(vpa.mode), name, namespace, &size]).add(0);
        self.updated.with_labels([name, namespace, &size]).add(0);
    }

    /// Counts an evicted pod.
    pub fn count_evicted(&self, vpa: UpdatedVpa<'_>) {
        let ObjectKey { namespace, name } = vpa.vpa;
        self.evicted
            .with_labels([known_mode(vpa.mode), name, namespace, &log2(vpa.pods)])
            .increment();
    }

    /// Counts a resized pod.
    pub fn count_resized(&self, vpa: UpdatedVpa<'_>) {
        let ObjectKey { namespace, name } = vpa.vpa;
        self.updated.with_labels([name, namespace, &log2(vpa.pods)]).increment();
    }

    /// Counts a failed eviction, with upstream's reason.
    pub fn count_failed_eviction(&self, vpa: UpdatedVpa<'_>, reason: &str) {
        let ObjectKey { namespace, name } = vpa.vpa;
        let size = log2(vpa.pods);
        let labels = [reason, known_mode(vpa.mode), name, namespace, &size];
        self.evictions_failed.with_labels(labels).increment();
    }

    /// Counts a failed resize, with upstream's reason.
    pub fn count_failed_resize(&self, vpa: UpdatedVpa<'_>, reason: &str) {
        let ObjectKey { namespace, name } = vpa.vpa;
        self.updates_failed.with_labels([reason, name, namespace, &log2(vpa.pods)]).increment();
    }

    /// Counts pods that were skipped because a resize of at most this size is known to be infeasible.
    pub fn count_infeasible(&self, vpa: UpdatedVpa<'_>, pods: usize) {
        if pods > 0 {
            let ObjectKey { namespace, name } = vpa.vpa;
            self.infeasible.with_labels([name, namespace, &log2(vpa.pods)]).add(pods as u64);
        }
    }

    /// Counts a pass without an admission controller; `reason` is `invalid` or `error`.
    pub fn count_admission_unavailable(&self, reason: &str) {
        self.admission_invalid.with_labels([reason]).increment();
    }

    /// Records the duration of a step of a pass.
    pub fn observe_step(&self, step: &str, took: Duration) {
        self.steps.with_labels([step]).observe(took.as_secs_f64());
    }

    /// Counts an action, or in dry-run mode one that would have been taken.
    pub fn count_action(&self, action: &str, outcome: &str) {
        self.actions.with_labels([action, outcome]).increment();
    }

    /// Counts a regression of updated pods.
    pub fn count_regression(&self, regression: &str) {
        self.regressions.with_labels([regression]).increment();
    }

    /// Counts resources that another controller overwrote.
    pub fn count_rewritten(&self) {
        self.rewritten.increment();
    }

    /// Counts persisted state that could not be read.
    pub fn count_unreadable_state(&self) {
        self.unreadable.increment();
    }

    /// Sets the disruptions of the last hour in the cluster, and how many are allowed, by kind.
    pub fn set_budget(&self, charge: &str, used: u32, allowed: Option<u32>) {
        self.used.with_labels([charge]).set(f64::from(used));
        if let Some(allowed) = allowed {
            self.allowed.with_labels([charge]).set(f64::from(allowed));
        }
    }

    /// Sets whether all updates in the cluster are paused.
    pub fn set_cluster_open(&self, open: bool) {
        self.cluster_open.set(f64::from(u8::from(open)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::family::Collector;

    #[test]
    fn the_series_of_a_vpa_are_removed_when_it_is_deleted() {
        let metrics = UpdaterMetrics::new(&mut Registry::default());
        let vpa = |name: &str| ObjectKey { namespace: "shop".into(), name: name.into() };
        let count = |name: &str| {
            let key = vpa(name);
            let updated = UpdatedVpa { vpa: &key, mode: "Recreate", pods: 3 };
            metrics.init_counters(updated);
            metrics.count_failed_eviction(updated, "EvictionError");
            metrics.count_failed_resize(updated, "InPlaceUpdateError");
            metrics.count_infeasible(updated, 2);
        };
        for name in ["gone", "stays", "went"] {
            count(name);
        }
        let series = || {
            let families: [&dyn Collector; 5] = [
                &*metrics.evicted,
                &*metrics.updated,
                &*metrics.evictions_failed,
                &*metrics.updates_failed,
                &*metrics.infeasible,
            ];
            families.map(|family| family.series().len())
        };
        assert_eq!(series(), [3; 5]);
        metrics.retain(&HashSet::from([vpa("stays")]));
        assert_eq!(series(), [1; 5]);
        count("again");
        assert_eq!(series(), [2; 5]);
    }
}
