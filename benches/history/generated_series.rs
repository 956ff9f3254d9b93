//! The series in the Prometheus: CPU and memory of all containers each minute, with the labels of the operator's
//! stack, and the series of kube-state-metrics each hour.

use std::f64::consts::TAU;

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::{
    support::prometheus_server::History,
    workload_mix::{Pod, WorkloadMix, chance, namespace_called},
};

const DAY: f64 = 86_400.0;
const HOUR: i64 = 3600;
const PAGE: f64 = 4096.0;
/// Labels of all usage series in addition to those of the container.
const KUBELET: [(&str, &str); 6] = [
    ("job", "kubelet"),
    ("metrics_path", "/metrics/cadvisor"),
    ("endpoint", "https-metrics"),
    ("service", "kubelet"),
    ("node", "node-1"),
    ("instance", "10.0.0.1:10250"),
];
const STATES: [(&str, &str); 2] = [("job", "kube-state-metrics"), ("instance", "10.1.0.7:8080")];

/// Number of usage samples.
pub fn samples(mix: WorkloadMix, days: u32) -> usize {
    2 * mix.all() * (days as usize * 24 * 60 + 1)
}

/// The whole history.
pub fn history(mix: WorkloadMix, end: Timestamp, days: u32) -> History {
    let start = end - SignedDuration::from_hours(24 * i64::from(days));
    let mut history = History::new(start, end, SignedDuration::from_mins(1));
    let mut seed = 0;
    for namespace in 0..mix.namespaces {
        let called = namespace_called(namespace);
        for (index, pod) in mix.pods(namespace).enumerate() {
            for &container in mix.names() {
                seed += 1;
                let names =
                    [("namespace", &*called), ("pod", &*pod.name), ("container", container)];
                let labels = [&KUBELET[..], &names].concat();
                history = history.series(CPU_METRIC, &labels, counter(seed, start));
                history = history.series(MEMORY_METRIC, &labels, gauge(seed));
            }
            history = states(history, &called, &pod, index % mix.replicas == 0);
        }
    }
    history
}

/// Series of kube-state-metrics for a pod, and for its owner if this is the owner's first pod.
fn states(mut history: History, namespace: &str, pod: &Pod, is_first: bool) -> History {
    let Pod { deployment, set, name } = pod;
    let each_hour = |at: Timestamp| (at.as_second() % HOUR == 0).then_some(1.0);
    let pods = [&STATES[..], &[("namespace", namespace), ("pod", &**name)]].concat();
    let owner = [("owner_kind", "ReplicaSet"), ("owner_name", &**set)];
    history = history.series("kube_pod_owner", &[&pods[..], &owner].concat(), each_hour);
    let label = [("label_app", &**deployment)];
    history = history.series("kube_pod_labels", &[&pods[..], &label].concat(), each_hour);
    if !is_first {
        return history;
    }
    let sets = [("namespace", namespace), ("replicaset", &**set)];
    let owner = [("owner_kind", "Deployment"), ("owner_name", &**deployment)];
    history.series("kube_replicaset_owner", &[&STATES[..], &sets, &owner].concat(), each_hour)
}

/// CPU seconds: more by day than by night, with bursts.
fn counter(seed: u64, start: Timestamp) -> impl Fn(Timestamp) -> Option<f64> + Send + 'static {
    let cores = 0.02 + 0.5 * chance(seed, 0).powi(3);
    move |at| {
        let seconds = (at.as_second() - start.as_second()) as f64;
        let tide = (seconds * TAU / DAY).sin() * DAY / TAU / 2.0;
        // A burst adds at most half of a minute's increase, so the counter never decreases.
        let burst = 15.0 * chance(seed, at.as_second());
        Some(((cores * (seconds + tide + burst)) * 1e9).round() / 1e9)
    }
}

/// Memory usage in bytes.
fn gauge(seed: u64) -> impl Fn(Timestamp) -> Option<f64> + Send + 'static {
    let usual = 1e8 + 4e8 * chance(seed, 1);
    move |at| {
        let tide = (at.as_second() as f64 * TAU / DAY).sin();
        let bytes = usual * (1.0 + 0.2 * tide + 0.1 * chance(seed, at.as_second()));
        Some((bytes / PAGE).round() * PAGE)
    }
}
