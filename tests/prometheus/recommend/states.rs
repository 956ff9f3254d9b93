//! The series of kube-state-metrics about workloads.

use crate::{prometheus::label_flavors::OPERATOR, support::prometheus_server::History};

/// A Deployment with its newest ReplicaSet, or a StatefulSet, whose pods have one container, `main`.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadStates<'a> {
    pub namespace: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub pods: &'a [String],
    /// Cores and bytes.
    pub requests: [f64; 2],
    /// Bytes.
    pub memory_limit: Option<f64>,
}

/// The hash of the pod template of each Deployment.
pub const HASH: &str = "7d5f9c4b6d";

impl WorkloadStates<'_> {
    /// Adds the series.
    pub fn add_to(self, mut history: History) -> History {
        let Self { namespace, kind, name, pods, requests: [cores, bytes], memory_limit } = self;
        let set = format!("{name}-{HASH}");
        let mut add = |family: &str, labels: &[(&str, &str)], value: f64| {
            let labels = [&[("namespace", namespace)], labels].concat();
            let so_far = std::mem::replace(&mut history, empty());
            history = OPERATOR.state(so_far, family, &labels, move |_| Some(value));
        };
        let replicas = pods.len() as f64;
        let owner = if kind == "StatefulSet" {
            add("kube_statefulset_replicas", &[("statefulset", name)], replicas);
            (kind, name)
        } else {
            let owner = [("owner_kind", kind), ("owner_name", name), CONTROLS];
            add("kube_replicaset_owner", &[&[("replicaset", &*set)], &owner[..]].concat(), 1.0);
            add("kube_deployment_spec_replicas", &[("deployment", name)], replicas);
            ("ReplicaSet", &*set)
        };
        for pod in pods {
            let of_pod = [("pod", &**pod)];
            let owner = [("owner_kind", owner.0), ("owner_name", owner.1), CONTROLS];
            add("kube_pod_owner", &[&of_pod[..], &owner[..]].concat(), 1.0);
            add("kube_pod_info", &[&of_pod[..], &[("node", "node-1")]].concat(), 1.0);
            let main = [of_pod[0], ("container", "main")];
            add("kube_pod_container_info", &main, 1.0);
            let amount =
                |resource, unit| [&main[..], &[("resource", resource), ("unit", unit)]].concat();
            let requests = "kube_pod_container_resource_requests";
            add(requests, &amount("cpu", "core"), cores);
            add(requests, &amount("memory", "byte"), bytes);
            if let Some(limit) = memory_limit {
                add("kube_pod_container_resource_limits", &amount("memory", "byte"), limit);
            }
        }
        history
    }
}

const CONTROLS: (&str, &str) = ("owner_is_controller", "true");

/// Stands in for a history while it is extended.
fn empty() -> History {
    let start = jiff::Timestamp::UNIX_EPOCH;
    History::new(start, start, jiff::SignedDuration::from_mins(1))
}
