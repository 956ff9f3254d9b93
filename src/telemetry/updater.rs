//! Metrics of the updater: upstream's under upstream's names, and our own, which report why pods are skipped.

use std::collections::{BTreeMap, HashSet};

use plimsoll_core::{types::ObjectKey, updater::guard::Regression};
use strum::VariantArray as _;

use super::{
    definition::{Definition, STEP_SECONDS, counter, gauge, histogram},
    family::{Family, OVERFLOW_LABEL},
    instruments::{Counter, Gauge, Histogram},
    labels::{MODES_OR_NONE, SIZES, known_mode, size_label},
    registry::{Registry, metric_families},
};

const PER_VPA: &str = "up to 20 per VPA, 50,000 in all";
/// Maximum number of series with names of VPAs, which are user input.
const MAX_VPA_SERIES: usize = 50_000;
const MODES_AND_SIZES: usize = MODES_OR_NONE * SIZES;
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

metric_families! {
    #[derive(Clone, Debug)]
    pub struct UpdaterMetrics via register {
        controlled: Family<Gauge, 2>[MODES_AND_SIZES] =
            by_mode("vpa_updater_controlled_pods_total", "Pods that a VPA controls.");
        evictable: Family<Gauge, 2>[MODES_AND_SIZES] = by_mode(
            "vpa_updater_evictable_pods_total", "Pods that would be evicted without restrictions."
        );
        vpas_evictable: Family<Gauge, 2>[MODES_AND_SIZES] = by_mode(
            "vpa_updater_vpas_with_evictable_pods_total", "VPAs with at least one such pod."
        );
        vpas_evicted: Family<Gauge, 2>[MODES_AND_SIZES] = by_mode(
            "vpa_updater_vpas_with_evicted_pods_total", "VPAs with at least one evicted pod."
        );
        updatable: Family<Gauge, 1>[SIZES + 1] = by_size(
            "vpa_updater_in_place_updatable_pods_total",
            "Pods that would be resized without restrictions.",
        );
        vpas_updatable: Family<Gauge, 1>[SIZES + 1] = by_size(
            "vpa_updater_vpas_with_in_place_updatable_pods_total",
            "VPAs with at least one such pod.",
        );
        vpas_updated: Family<Gauge, 1>[SIZES + 1] = by_size(
            "vpa_updater_vpas_with_in_place_updated_pods_total",
            "VPAs with at least one resized pod.",
        );
        evicted: Family<Counter, 4>[MAX_VPA_SERIES] =
            counter("vpa_updater_evicted_pods_total", "Pods that were evicted.")
            .labels(&["update_mode", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA)
            .absent("the VPA has no pods");
        updated: Family<Counter, 3>[MAX_VPA_SERIES] =
            counter("vpa_updater_in_place_updated_pods_total", "Pods that were resized.")
            .labels(BY_VPA, PER_VPA).absent("the VPA has no pods");
        evictions_failed: Family<Counter, 5>[MAX_VPA_SERIES] = counter(
            "vpa_updater_failed_eviction_attempts_total", "Evictions that failed, by reason."
        ).labels(
            &["reason", "update_mode", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA
        ).absent_at_first();
        updates_failed: Family<Counter, 4>[MAX_VPA_SERIES] = counter(
            "vpa_updater_failed_in_place_update_attempts_total", "Resizes that failed, by reason."
        ).labels(&["reason", "vpa_name", "vpa_namespace", "vpa_size_log2"], PER_VPA)
        .absent_at_first();
        infeasible: Family<Counter, 3>[MAX_VPA_SERIES] = counter(
            "vpa_updater_in_place_infeasible_skip_pods_total",
            "Pods that were skipped because an equal or smaller resize was found infeasible.",
        ).labels(BY_VPA, PER_VPA).absent_at_first();
        admission_invalid: Family<Counter, 1>[2] = counter(
            "vpa_updater_admission_controller_status_invalid_total",
            "Passes that found no admission controller: its Lease was stale (invalid) or could not be read (error).",
        ).labels(&["reason"], "2").absent_at_first();
        steps: Family<Histogram, 1>[6] = histogram(
            "vpa_updater_execution_latency_seconds",
            "Duration of each step of a pass, and in total (`total`).",
            STEP_SECONDS,
        ).labels(&["step"], "6 of 26").unit("seconds").absent("no pass was made");
        actions: Family<Counter, 2>[40] = counter(
            "plimsoll_updater_actions_total",
            "Actions on pods, by outcome; in dry-run mode, the actions that would have been taken.",
        ).labels(&["action", "outcome"], "up to 40").absent_at_first();
        skipped: Family<Gauge, 1>[64] = gauge(
            "plimsoll_updater_skipped_pods", "Pods that the last pass skipped, by reason."
        ).labels(&["reason"], "1 per reason")
        .absent("no pass has skipped a pod for this reason yet");
        regressions: Family<Counter, 1>[Regression::VARIANTS.len()] = counter(
            "plimsoll_updater_harm_total",
            "How often updated pods regressed, which pauses updates of their workload.",
        ).labels(&["harm"], "6");
        rewritten: Counter = counter(
            "plimsoll_updater_rewritten_total",
            "How often another controller overwrote resources, which pauses updates of the workload.",
        );
        open: Gauge = gauge(
            "plimsoll_updater_breakers_open",
            "Workloads whose updates are paused because updated pods regressed.",
        );
        cluster_open: Gauge = gauge(
            "plimsoll_updater_cluster_breaker_open",
            "1 while all updates in the cluster are paused because updates of several workloads failed.",
        );
        used: Family<Gauge, 1>[2] = gauge(
            "plimsoll_updater_changes_within_hour",
            "Disruptions in the cluster within the last hour, by kind.",
        ).labels(&["charge"], "2");
        allowed: Family<Gauge, 1>[2] = gauge(
            "plimsoll_updater_changes_allowed",
            "Disruptions allowed per hour for the current size of the cluster.",
        ).labels(&["charge"], "2").absent("there is no such limit");
        heartbeats: Family<Gauge, 1>[6] = gauge(
            "plimsoll_updater_vpas_by_heartbeat",
            "VPAs by the heartbeat of their recommender: fresh, loading, stale, absent, unknown, awaited.",
        ).labels(&["state"], "6");
        unreadable: Counter = counter(
            "plimsoll_updater_memory_ignored_total",
            "State annotations of earlier passes that could not be read.",
        );
    }
}

impl UpdaterMetrics {
    /// Adds the families to a registry, with the regressions at zero, so that the first one is visible as an increase.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::register(registry);
        for regression in Regression::VARIANTS {
            metrics.regressions.with_labels([regression.into_str()]);
        }
        metrics
    }

    /// Sets the totals of a pass. Series without a value in it become zero.
    pub fn set_pass_totals(&self, totals: &PassTotals) {
        let by_mode = [&self.controlled, &self.evictable, &self.vpas_evictable, &self.vpas_evicted];
        for family in by_mode {
            family.for_each(|gauge| gauge.set(0.0));
        }
        for ((mode, size), sums) in &totals.by_mode {
            for (family, sum) in by_mode.into_iter().zip(sums) {
                family.with_labels([mode, size]).set(*sum);
            }
        }
        for power in 0..SIZES {
            let size = power.to_string();
            let sums = totals.by_size.get(&size).copied().unwrap_or_default();
            let by_size = [&self.updatable, &self.vpas_updatable, &self.vpas_updated];
            for (family, sum) in by_size.into_iter().zip(sums) {
                family.with_labels([&size]).set(sum);
            }
        }
        self.skipped.for_each(|gauge| gauge.set(0.0));
        for (why, pods) in &totals.skipped {
            self.skipped.with_labels([why]).set(*pods);
        }
        for state in ["fresh", "loading", "stale", "absent", "unknown", "awaited"] {
            let vpas = totals.heartbeats.get(state).copied().unwrap_or_default();
            self.heartbeats.with_labels([state]).set(vpas);
        }
        self.open.set(f64::from(totals.open_breakers));
    }

    /// Resets the series that only the leader exposes, after another replica became the leader.
    pub fn clear_leader_series(&self) {
        self.set_pass_totals(&PassTotals::default());
        self.used.for_each(|gauge| gauge.set(0.0));
        self.cluster_open.set_bool(false);
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

    pub fn init_counters(&self, vpa: UpdatedVpa<'_>) {
        self.count_evicted(vpa, 0);
        self.count_resized(vpa, 0);
    }

    pub fn count_evicted(&self, vpa: UpdatedVpa<'_>, pods: u64) {
        let (ObjectKey { namespace, name }, mode) = (vpa.vpa, known_mode(vpa.mode));
        self.evicted.with_labels([mode, name, namespace, &size_label(vpa.pods)]).add(pods);
    }

    pub fn count_resized(&self, vpa: UpdatedVpa<'_>, pods: u64) {
        let ObjectKey { namespace, name } = vpa.vpa;
        self.updated.with_labels([name, namespace, &size_label(vpa.pods)]).add(pods);
    }

    /// Counts a failed eviction, with upstream's reason.
    pub fn count_failed_eviction(&self, vpa: UpdatedVpa<'_>, reason: &str) {
        let (ObjectKey { namespace, name }, mode) = (vpa.vpa, known_mode(vpa.mode));
        let labels = [reason, mode, name, namespace, &size_label(vpa.pods)];
        self.evictions_failed.with_labels(labels).increment();
    }

    /// Counts a failed resize, with upstream's reason.
    pub fn count_failed_resize(&self, vpa: UpdatedVpa<'_>, reason: &str) {
        let ObjectKey { namespace, name } = vpa.vpa;
        self.updates_failed
            .with_labels([reason, name, namespace, &size_label(vpa.pods)])
            .increment();
    }

    /// Counts pods that were skipped because a resize of at most this size is known to be infeasible.
    pub fn count_infeasible(&self, vpa: UpdatedVpa<'_>, pods: usize) {
        if pods > 0 {
            let ObjectKey { namespace, name } = vpa.vpa;
            self.infeasible.with_labels([name, namespace, &size_label(vpa.pods)]).add(pods as u64);
        }
    }

    /// Sets the disruptions of the last hour in the cluster, and how many are allowed, by kind.
    pub fn set_budget(&self, charge: &str, used: u32, allowed: Option<u32>) {
        self.used.with_labels([charge]).set(f64::from(used));
        if let Some(allowed) = allowed {
            self.allowed.with_labels([charge]).set(f64::from(allowed));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct UpdatedVpa<'a> {
    pub vpa: &'a ObjectKey,
    pub mode: &'a str,
    pub pods: usize,
}

#[derive(Debug, Default)]
pub struct PassTotals {
    by_mode: BTreeMap<(String, String), [f64; 4]>,
    by_size: BTreeMap<String, [f64; 3]>,
    /// Skipped pods by reason.
    pub skipped: BTreeMap<&'static str, f64>,
    /// VPAs by the heartbeat of their recommender.
    pub heartbeats: BTreeMap<&'static str, f64>,
    /// Workloads whose updates are paused because updated pods regressed.
    pub open_breakers: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct VpaTotals {
    /// Pods that would be updated without limits.
    pub candidates: usize,
    pub evicted: usize,
    pub resized: usize,
    /// Whether pods are resized in place rather than evicted.
    pub in_place: bool,
}

impl PassTotals {
    pub fn add(&mut self, vpa: UpdatedVpa<'_>, totals: VpaTotals) {
        let flag = |count: usize| f64::from(u8::from(count > 0));
        let size = size_label(vpa.pods);
        let mode = known_mode(vpa.mode).to_owned();
        let by_mode = self.by_mode.entry((mode, size.clone())).or_default();
        by_mode[0] += vpa.pods as f64;
        by_mode[3] += flag(totals.evicted);
        if totals.in_place {
            let by_size = self.by_size.entry(size).or_default();
            by_size[0] += totals.candidates as f64;
            by_size[1] += flag(totals.candidates);
            by_size[2] += flag(totals.resized);
        } else {
            by_mode[1] += totals.candidates as f64;
            by_mode[2] += flag(totals.candidates);
        }
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
