//! The schedulable nodes, and the requests of DaemonSet pods on them, including namespaces out of scope.

use std::collections::HashMap;

use super::{
    object_store::ObjectStore,
    recommender_pod::{PodInterner, RecommenderPod},
};
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

#[derive(Debug, Default)]
pub struct NodeCache {
    nodes: ObjectStore<Box<str>, Node>,
    /// DaemonSet pods that are out of scope: the VPA index does not contain them. By namespace and name.
    daemon_set_pods: ObjectStore<(Box<str>, Box<str>), DaemonSetPod>,
}

#[derive(Debug)]
struct Node {
    /// Allocatable CPU and memory; `None` if the node does not report both.
    allocatable: Option<NodeCapacity>,
    taints: Vec<Taint>,
}

#[derive(Debug)]
struct DaemonSetPod {
    node: Box<str>,
    requests: (i64, i64),
}

impl NodeCache {
    /// Applies a change of a node. Removes nodes that are cordoned or not ready: they accept no pods.
    pub fn apply_node(&mut self, change: ObjectChange<PartialNode>) {
        let change = change.map(|node| {
            let name = node.metadata.name.as_deref().unwrap_or_default().into();
            (name, Node::from_object(&node))
        });
        self.nodes.apply(change, |_, name| name.into());
    }

    /// Applies a change of a pod. Stores pods that are out of scope, if a DaemonSet owns them.
    pub fn apply_pod(&mut self, change: &ObjectChange<PartialPod>, scope: &NamespaceScope) {
        let pods = &mut self.daemon_set_pods;
        let key = |namespace: &str, name: &str| (namespace.into(), name.into());
        match change {
            ObjectChange::Restart => pods.restart(),
            ObjectChange::Applied(pod) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                if scope.includes(namespace) {
                    return;
                }
                let key = key(namespace, pod.metadata.name.as_deref().unwrap_or_default());
                match DaemonSetPod::from_object(pod) {
                    Some(pod) => pods.put(key, pod),
                    None => pods.remove(&key),
                };
            }
            ObjectChange::Invalid { namespace, name, .. } => {
                pods.keep(&key(namespace, name));
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                pods.remove(&key(namespace, name));
            }
            ObjectChange::Synced => {
                pods.finish_list();
            }
        }
    }

    /// The free capacity of each node after its DaemonSet pods, given the pods in scope. Leaves out a node without free
    /// capacity, and one that does not report its allocatable resources.
    pub fn free_capacity<'a>(
        &'a self,
        pods: impl Iterator<Item = &'a RecommenderPod>,
    ) -> NodeCapacities {
        let in_scope = pods.filter(|pod| pod.is_daemon_set_pod && !pod.is_finished);
        let in_scope = in_scope.filter_map(|pod| Some((pod.node.as_deref()?, pod.requests())));
        let out_of_scope = self.daemon_set_pods.iter().map(|(_, pod)| (&*pod.node, pod.requests));
        let mut requested: HashMap<&str, (i64, i64)> = HashMap::new();
        for (node, (cpu, memory)) in in_scope.chain(out_of_scope) {
            let sum = requested.entry(node).or_default();
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(memory));
        }
        let mut capacities = NodeCapacities::default();
        for (name, node) in self.nodes.iter() {
            let Some(allocatable) = node.allocatable else { continue };
            let (cpu, memory) = requested.get(&**name).copied().unwrap_or_default();
            let free = NodeCapacity {
                cpu: MilliCpu(allocatable.cpu.0.saturating_sub(cpu)),
                memory: Bytes(allocatable.memory.0.saturating_sub(memory)),
            };
            if free.cpu.0 > 0 && free.memory.0 > 0 {
                capacities.add(&node.taints, free);
            }
        }
        capacities
    }
}

impl Node {
    /// `None` if the node accepts no pods.
    fn from_object(node: &PartialNode) -> Option<Self> {
        if node.spec.unschedulable || !node.is_ready() {
            return None;
        }
        let amounts = &node.status.allocatable;
        let allocatable = amounts.cpu.zip(amounts.memory).map(|(cpu, memory)| NodeCapacity {
            cpu: MilliCpu(Quantity::milli_value(cpu)),
            memory: Bytes(Quantity::value(memory)),
        });
        let taints = node.spec.taints.iter();
        let taints = taints
            .filter_map(|taint| Taint::new(&taint.key, taint.value.as_deref(), &taint.effect));
        let mut taints: Vec<Taint> = taints.collect();
        taints.sort_unstable();
        Some(Self { allocatable, taints })
    }
}

impl DaemonSetPod {
    /// `None` if the pod is not of a DaemonSet, has no node, or is finished.
    fn from_object(pod: &PartialPod) -> Option<Self> {
        let node = pod.spec.node_name.as_ref()?;
        if !RecommenderPod::is_owned_by_daemon_set(pod) {
            return None;
        }
        // The strings are not shared: none of them is stored.
        let pod = RecommenderPod::new(pod, &mut PodInterner::default(), &mut [0; 4]);
        (!pod.is_finished).then(|| Self { node: node.clone(), requests: pod.requests() })
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
            &mut PodInterner::default(),
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
