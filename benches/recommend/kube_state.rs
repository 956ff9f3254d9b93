//! The series in the Prometheus: CPU and memory of all containers each minute, with the labels of the operator's
//! stack, and requests, owners and replicas from kube-state-metrics each minute.

use std::f64::consts::TAU;

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::{
    support::prometheus_server::History,
    workload_mix::{Pod, WorkloadMix, chance, namespace_called},
};

const DAY: f64 = 86_400.0;
/// Seconds between two samples of kube-state-metrics.
const SHOWN: i64 = 60;
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

/// The whole history, with a sample each minute.
pub fn history(mix: WorkloadMix, end: Timestamp, days: u32) -> History {
    let pods = (0..mix.namespaces).flat_map(|namespace| {
        mix.pods(namespace).map(move |pod| (namespace_called(namespace), pod))
    });
    history_of(pods, mix.names(), end, (days, SignedDuration::from_mins(1)))
}

/// The history of these pods, each with its namespace and with these containers, over days with a sample each step.
pub fn history_of(
    pods: impl Iterator<Item = (String, Pod)>,
    containers: &[&str],
    end: Timestamp,
    (days, step): (u32, SignedDuration),
) -> History {
    let start = end - SignedDuration::from_hours(24 * i64::from(days));
    let mut history = History::new(start, end, step);
    let mut seed = 0;
    for (namespace, pod) in pods {
        for &container in containers {
            seed += 1;
            let names = [("namespace", &*namespace), ("pod", &*pod.name), ("container", container)];
            let labels = [&KUBELET[..], &names].concat();
            history = history.series(CPU_METRIC, &labels, counter(seed, start));
            history = history.series(MEMORY_METRIC, &labels, gauge(seed));
        }
        history = states(history, &namespace, &pod, containers);
    }
    history
}

/// Series of kube-state-metrics for a pod, and for its owner.
fn states(mut history: History, namespace: &str, pod: &Pod, containers: &[&str]) -> History {
    let Pod { deployment, set, name } = pod;
    let always = |value: f64| move |at: Timestamp| (at.as_second() % SHOWN == 0).then_some(value);
    let namespaced = [&STATES[..], &[("namespace", namespace)]].concat();
    let of_pod = [&namespaced[..], &[("pod", &**name)]].concat();
    let owner =
        [("owner_kind", "ReplicaSet"), ("owner_name", &**set), ("owner_is_controller", "true")];
    history = history.series("kube_pod_owner", &[&of_pod[..], &owner].concat(), always(1.0));
    let info = [("node", "node-1"), ("created_by_kind", "ReplicaSet"), ("created_by_name", &**set)];
    history = history.series("kube_pod_info", &[&of_pod[..], &info].concat(), always(1.0));
    let running = [("phase", "Running")];
    history =
        history.series("kube_pod_status_phase", &[&of_pod[..], &running].concat(), always(1.0));
    for &container in containers {
        let of_container = [&of_pod[..], &[("container", container)]].concat();
        let info = "kube_pod_container_info";
        history = history.series(info, &of_container, always(1.0));
        for (resource, unit, amount) in [("cpu", "core", 1.0), ("memory", "byte", 1e9)] {
            let labels = [&of_container[..], &[("resource", resource), ("unit", unit)]].concat();
            let requests = "kube_pod_container_resource_requests";
            history = history.series(requests, &labels, always(amount));
        }
    }
    let set = [&namespaced[..], &[("replicaset", &**set)]].concat();
    let owner = [
        ("owner_kind", "Deployment"),
        ("owner_name", &**deployment),
        ("owner_is_controller", "true"),
    ];
    history = history.series("kube_replicaset_owner", &[&set[..], &owner].concat(), always(1.0));
    let deployment = [&namespaced[..], &[("deployment", &**deployment)]].concat();
    history.series("kube_deployment_spec_replicas", &deployment, always(1.0))
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
