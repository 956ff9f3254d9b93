//! Usage and pods in Prometheus' text format, with the names and labels of cAdvisor and kube-state-metrics.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use super::state::State;

/// A kubelet's container metrics; with `stamps` each sample has a timestamp.
pub fn cadvisor(state: &State, stamps: bool) -> String {
    let mut text = String::new();
    let lines = state.lines(None);
    let mut known = state.lock();
    for line in &lines {
        let (mut now, mut stamp) = (line.at, String::new());
        if stamps {
            // Counters follow the served time.
            now = Timestamp::from_millisecond(now.as_millisecond()).expect("a time");
            stamp = format!(" {}", now.as_millisecond());
        }
        let key = (line.namespace.clone(), line.pod.clone(), line.container.clone());
        let image =
            line.object.as_ref().and_then(|pod| image(pod, &line.container)).unwrap_or_default();
        let labels = format!(
            "namespace=\"{}\",pod=\"{}\",container=\"{}\",image=\"{image}\"",
            line.namespace, line.pod, line.container
        );
        let (since, seconds) = known.counted.get(&key).copied().unwrap_or((now, 0.0));
        let seconds = seconds + line.used.cpu * now.duration_since(since).as_secs_f64();
        known.counted.insert(key, (now, seconds));
        let memory = line.used.memory;
        for (family, value) in [
            ("container_cpu_usage_seconds_total", seconds.to_string()),
            ("container_memory_working_set_bytes", memory.to_string()),
            ("container_memory_rss", memory.to_string()),
        ] {
            let _ = writeln!(text, "{family}{{{labels}}} {value}{stamp}");
        }
    }
    sorted(&text)
}

/// Pod metrics of kube-state-metrics.
pub fn kube_state(state: &State) -> String {
    let mut text = String::new();
    for pod in state.pods(None) {
        describe(&mut text, &pod);
    }
    sorted(&text)
}

fn describe(text: &mut String, pod: &Pod) {
    let Some(spec) = &pod.spec else { return };
    let (meta, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
    let of_pod = format!(
        "namespace=\"{}\",pod=\"{}\",uid=\"{}\"",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    let node = spec.node_name.as_deref().unwrap_or_default();
    let mut labels = of_pod.clone();
    for (name, value) in meta.labels.iter().flatten() {
        let _ = write!(labels, ",label_{}=\"{value}\"", name.replace(['.', '/', '-'], "_"));
    }
    let _ = writeln!(text, "kube_pod_labels{{{labels}}} 1");
    let _ = writeln!(text, "kube_pod_info{{{of_pod},node=\"{node}\"}} 1");
    for owner in meta.owner_references.iter().flatten() {
        let (kind, name) = (&owner.kind, &owner.name);
        let _ = writeln!(
            text,
            "kube_pod_owner{{{of_pod},owner_kind=\"{kind}\",owner_name=\"{name}\"}} 1"
        );
    }
    for phase in ["Pending", "Running", "Succeeded", "Failed", "Unknown"] {
        let is = u8::from(status.phase.as_deref() == Some(phase));
        let _ = writeln!(text, "kube_pod_status_phase{{{of_pod},phase=\"{phase}\"}} {is}");
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        resources(
            text,
            &format!("{of_pod},container=\"{}\",node=\"{node}\"", container.name),
            container,
        );
    }
    for container in
        status.init_container_statuses.iter().chain(&status.container_statuses).flatten()
    {
        history(text, &format!("{of_pod},container=\"{}\"", container.name), container);
    }
}

fn resources(text: &mut String, labels: &str, container: &Container) {
    let Some(resources) = &container.resources else { return };
    for (kind, list) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (resource, amount) in list.iter().flatten() {
            let unit = if resource == "cpu" { "core" } else { "byte" };
            let amount: plimsoll_core::types::quantity::Quantity =
                amount.0.parse().expect("the server validates quantities");
            let _ = writeln!(
                text,
                "kube_pod_container_resource_{kind}{{{labels},resource=\"{resource}\",unit=\"{unit}\"}} {}",
                amount.as_f64()
            );
        }
    }
}

fn history(text: &mut String, labels: &str, container: &ContainerStatus) {
    let restarts = container.restart_count;
    let _ = writeln!(text, "kube_pod_container_status_restarts_total{{{labels}}} {restarts}");
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    if let Some(reason) = last.and_then(|end| end.reason.as_deref()) {
        let _ = writeln!(
            text,
            "kube_pod_container_status_last_terminated_reason{{{labels},reason=\"{reason}\"}} 1"
        );
    }
}

fn image(pod: &Pod, container: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.into_iter().find(|found| found.name == container)?.image.clone()
}

/// The format requires the series of a name to be together, after its type.
fn sorted(text: &str) -> String {
    let lines: BTreeSet<_> = text.lines().collect();
    let mut out = String::new();
    let mut last = "";
    for line in lines {
        let name = line.split('{').next().unwrap_or_default();
        if name != last {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(out, "# TYPE {name} {kind}");
            last = name;
        }
        let _ = writeln!(out, "{line}");
    }
    out
}
