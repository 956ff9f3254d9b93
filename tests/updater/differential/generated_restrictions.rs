//! Generates what restricts updates: PodDisruptionBudgets, LimitRanges, nodes; and the Lease without which nothing is
//! updated.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::dry_run_proxy::LEASE;
use crate::support::bulk_objects::{ApiWrite, Workload, collection};
use crate::support::random::Random;

/// PodDisruptionBudgets of a workload with their statuses; no controller writes them here.
pub fn budgets(noise: &mut Random, workload: &Workload) -> Vec<(Value, Value)> {
    let count = match noise.below(20) {
        0 => 2,
        1..6 => 1,
        _ => 0,
    };
    let mut budgets = Vec::new();
    for number in 0..count {
        let mut labels = json!({ "app": workload.name });
        if noise.chance(30) {
            labels["kind"] = "k0".into();
        }
        let mut spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": labels } });
        if noise.chance(30) {
            spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
        }
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {
                "name": format!("{}-{number}", workload.name), "namespace": workload.namespace,
            },
            "spec": spec,
        });
        let (healthy, allowed) = *noise.pick(&[(1, 0), (2, 0), (3, 1)]);
        // A budget that was not processed yet makes clients wait ten seconds.
        let status = json!({ "status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy,
            "desiredHealthy": 2, "expectedPods": 3,
        } });
        budgets.push((budget, status));
    }
    budgets
}

/// LimitRange of a namespace, if it has one.
pub fn limits(noise: &mut Random, with_pods: bool) -> Option<Value> {
    let mut limits = Vec::new();
    if noise.chance(60) {
        let mut container = json!({ "type": "Container" });
        if noise.chance(50) {
            container["max"] = json!({ "cpu": "1200m", "memory": "1500Mi" });
        }
        if noise.chance(50) {
            container["min"] = json!({ "cpu": "50m", "memory": "48Mi" });
        }
        if noise.chance(40) {
            container["default"] = json!({ "cpu": "1", "memory": "1Gi" });
        }
        limits.push(container);
    }
    if with_pods {
        let mut pod = json!({ "type": "Pod" });
        if noise.chance(70) {
            pod["max"] = json!({ "cpu": "2", "memory": "2Gi" });
        }
        if noise.chance(50) {
            pod["min"] = json!({ "cpu": "200m", "memory": "300Mi" });
        }
        limits.push(pod);
    }
    (!limits.is_empty()).then(|| limits.into())
}

/// A node without a kubelet.
pub fn node(name: &str) -> ApiWrite {
    let labels = json!({ "kubernetes.io/os": "linux" });
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
    });
    ApiWrite::create("/api/v1/nodes", &node)
}

/// Creates the Lease of an admission controller.
pub fn create_lease(now: Timestamp) -> ApiWrite {
    ApiWrite::create(collection("coordination.k8s.io/v1", "kube-system", "leases"), &lease(now))
}

/// The Lease of an admission controller, valid for longer than any test runs.
pub fn lease(now: Timestamp) -> Value {
    let renewed = (now + SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": LEASE, "namespace": "kube-system" },
        "spec": { "holderIdentity": "a test", "renewTime": renewed.to_string() },
    })
}
