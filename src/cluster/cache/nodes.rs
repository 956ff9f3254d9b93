//! The schedulable nodes, and the requests of DaemonSet pods on them, including namespaces out of scope.

use std::collections::HashMap;

use super::recommender_pod::{RecommenderPod, StringInterner};
use crate::cluster::watch::{
    ObjectChange,
    partial_objects::{PartialNode, PartialPod},
};
use plimsoll_core::{
    recommender::{
        namespace_scope::NamespaceScope,
        node_capacity::{NodeCapacities, NodeCapacity, Taint},
    },
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// The schedulable nodes.
#[derive(Debug, Default)]
pub struct NodeCache {
    known: HashMap<String, Node>,
    /// DaemonSet pods that are out of scope: the VPA index does not contain them.
    daemon_set_pods: HashMap<(String, String), DaemonSetPod>,
    /// The number of the current list of each kind.
    node_list: u32,
    pod_list: u32,
}

#[derive(Debug)]
struct Node {
    /// Allocatable CPU and memory; `None` if the node does not report both.
    allocatable: Option<NodeCapacity>,
    taints: Vec<Taint>,
    list: u32,
}

#[derive(Debug)]
struct DaemonSetPod {
    node: String,
    requests: (i64, i64),
    list: u32,
}

impl NodeCache {
    /// Applies a change of a node. Removes nodes that are cordoned or not ready: they accept no pods.
    pub fn apply_node(&mut self, change: ObjectChange<PartialNode>) {
        match change {
            ObjectChange::Restart => self.node_list += 1,
            ObjectChange::Applied(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                if node.spec.unschedulable || !node.is_ready() {
                    self.known.remove(&name);
                    return;
                }
                let amounts = &node.status.allocatable;
                let allocatable =
                    amounts.cpu.zip(amounts.memory).map(|(cpu, memory)| NodeCapacity {
                        cpu: MilliCpu(Quantity::milli_value(cpu)),
                        memory: Bytes(Quantity::value(memory)),
                    });
                let taints = node.spec.taints.iter();
                let mut taints: Vec<Taint> = taints
                    .filter_map(|taint| {
                        Taint::new(&taint.key, taint.value.as_deref(), &taint.effect)
                    })
                    .collect();
                taints.sort_unstable();
                self.known.insert(name, Node { allocatable, taints, list: self.node_list });
            }
            ObjectChange::Invalid { name, .. } => {
                if let Some(node) = self.known.get_mut(&name) {
                    node.list = self.node_list;
                }
            }
            ObjectChange::Deleted { name, .. } => {
                self.known.remove(&name);
            }
            ObjectChange::Synced => self.known.retain(|_, node| node.list == self.node_list),
        }
    }

    /// Applies a change of a pod. Stores pods that are out of scope, if a DaemonSet owns them.
    pub fn apply_pod(&mut self, change: &ObjectChange<PartialPod>, scope: &NamespaceScope) {
        let list = self.pod_list;
        match change {
            ObjectChange::Restart => self.pod_list += 1,
            ObjectChange::Applied(partial_pod) => {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let key = (text(&partial_pod.metadata.namespace), text(&partial_pod.metadata.name));
                if scope.includes(&key.0) {
                    return;
                }
                let node = partial_pod
                    .spec
                    .node_name
                    .as_deref()
                    .filter(|_| RecommenderPod::is_owned_by_daemon_set(partial_pod));
                let Some(node) = node else {
                    self.daemon_set_pods.remove(&key);
                    return;
                };
                // The strings are not shared: none of them is stored.
                let pod =
                    RecommenderPod::new(partial_pod, &mut StringInterner::default(), &mut [0; 4]);
                if pod.is_finished {
                    self.daemon_set_pods.remove(&key);
                } else {
                    let (node, requests) = (node.to_owned(), pod.requests());
                    self.daemon_set_pods.insert(key, DaemonSetPod { node, requests, list });
                }
            }
            ObjectChange::Invalid { namespace, name, .. } => {
                let known = self.daemon_set_pods.get_mut(&(namespace.clone(), name.clone()));
                if let Some(known) = known {
                    known.list = list;
                }
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.daemon_set_pods.remove(&(namespace.clone(), name.clone()));
            }
            ObjectChange::Synced => self.daemon_set_pods.retain(|_, known| known.list == list),
        }
    }

    /// The free capacity of each node after its DaemonSet pods, given the pods in scope. Leaves out a node without free
    /// capacity, and one that does not report its allocatable resources.
    pub fn free_capacity<'a>(
        &self,
        pods: impl Iterator<Item = &'a RecommenderPod>,
    ) -> NodeCapacities {
        let mut in_scope: HashMap<&str, (i64, i64)> = HashMap::new();
        let mut add = |node: &'a str, (cpu, memory): (i64, i64)| {
            let sum = in_scope.entry(node).or_default();
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(memory));
        };
        for pod in pods.filter(|pod| pod.is_daemon_set_pod && !pod.is_finished) {
            if let Some(node) = &pod.node {
                add(node, pod.requests());
            }
        }
        let mut out_of_scope: HashMap<&str, (i64, i64)> = HashMap::new();
        for pod in self.daemon_set_pods.values() {
            let sum = out_of_scope.entry(&pod.node).or_default();
            let (cpu, memory) = pod.requests;
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(memory));
        }
        let mut capacities = NodeCapacities::default();
        for (name, node) in &self.known {
            let Some(allocatable) = node.allocatable else { continue };
            let requested =
                |sums: &HashMap<&str, (i64, i64)>| sums.get(&**name).copied().unwrap_or_default();
            let (inside, outside) = (requested(&in_scope), requested(&out_of_scope));
            let free = NodeCapacity {
                cpu: MilliCpu(allocatable.cpu.0.saturating_sub(inside.0).saturating_sub(outside.0)),
                memory: Bytes(
                    allocatable.memory.0.saturating_sub(inside.1).saturating_sub(outside.1),
                ),
            };
            if free.cpu.0 > 0 && free.memory.0 > 0 {
                capacities.add(&node.taints, free);
            }
        }
        capacities
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(
        name: &str,
        cpu: &str,
        memory: &str,
        taints: &serde_json::Value,
    ) -> ObjectChange<PartialNode> {
        let node = json!({
            "metadata": { "name": name },
            "spec": { "taints": taints },
            "status": {
                "allocatable": { "cpu": cpu, "memory": memory },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        ObjectChange::Applied(serde_json::from_value(node).expect("a node"))
    }

    fn daemon(namespace: &str, node: &str, cpu: &str) -> PartialPod {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true });
        let requests = json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
        let pod = json!({
            "metadata": { "namespace": namespace, "name": format!("d-{node}"), "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": requests }] },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn left(nodes: &NodeCache, pods: &[RecommenderPod]) -> Vec<(i64, i64)> {
        let shapes = nodes.free_capacity(pods.iter()).for_pods(&[&[]]);
        let mut left: Vec<_> = shapes.iter().map(|it| (it.cpu.0, it.memory.0 >> 30)).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn free_capacity_is_computed_for_each_node() {
        let mut nodes = NodeCache::default();
        let none = json!([]);
        nodes.apply_node(node("much-cpu", "32", "8Gi", &none));
        nodes.apply_node(node("much-memory", "4", "64Gi", &none));
        nodes.apply_node(node("small", "2", "4Gi", &none));
        nodes.apply_node(node(
            "tainted",
            "64",
            "256Gi",
            &json!([{ "key": "gpu", "effect": "NoSchedule" }]),
        ));
        assert_eq!(left(&nodes, &[]), [(4000, 64), (32_000, 8)]);
        let ours = RecommenderPod::new(
            &daemon("web", "much-cpu", "1"),
            &mut StringInterner::default(),
            &mut [0; 4],
        );
        assert_eq!(left(&nodes, &[ours]), [(4000, 64), (31_000, 7)]);
    }

    #[test]
    fn daemonset_pods_of_ignored_namespaces_use_capacity_until_deleted() {
        let mut nodes = NodeCache::default();
        nodes.apply_node(node("one", "8", "16Gi", &json!([])));
        let scope =
            NamespaceScope { ignored: vec!["kube-system".into()], ..NamespaceScope::default() };
        nodes.apply_pod(&ObjectChange::Restart, &scope);
        for namespace in ["kube-system", "web"] {
            nodes.apply_pod(&ObjectChange::Applied(daemon(namespace, "one", "2")), &scope);
        }
        nodes.apply_pod(&ObjectChange::Synced, &scope);
        assert_eq!(left(&nodes, &[]), [(6000, 15)], "pods in scope come from the index");
        nodes.apply_pod(&ObjectChange::Restart, &scope);
        nodes.apply_pod(&ObjectChange::Synced, &scope);
        assert_eq!(left(&nodes, &[]), [(8000, 16)]);
    }
}
