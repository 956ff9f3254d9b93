//! The nodes that take pods, and what DaemonSets have set aside on them, in namespaces of others too.

use std::collections::HashMap;

use super::{
    pod::{Names, Pod},
    slim::{SlimNode, SlimPod},
    watch::Change,
};
use plimsoll_core::{
    recommender::{
        scope::Scope,
        shapes::{Shape, Shapes, Taint},
    },
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// The nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    known: HashMap<String, Node>,
    /// Pods of DaemonSets that are out of scope: the index does not have them.
    strangers: HashMap<(String, String), Stranger>,
    /// The list of each kind that is being read or was read last.
    node_list: u32,
    pod_list: u32,
}

#[derive(Debug)]
struct Node {
    /// What it has to give; `None` if it does not say.
    has: Option<Shape>,
    taints: Vec<Taint>,
    list: u32,
}

#[derive(Debug)]
struct Stranger {
    node: String,
    requests: (i64, i64),
    list: u32,
}

impl Nodes {
    /// A node appeared, changed or went. One that is cordoned or not ready takes no pods.
    pub fn change(&mut self, change: Change<SlimNode>) {
        match change {
            Change::Restart => self.node_list += 1,
            Change::Put(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                if node.spec.unschedulable || !node.is_ready() {
                    self.known.remove(&name);
                    return;
                }
                let amounts = &node.status.allocatable;
                let has = amounts.cpu.zip(amounts.memory).map(|(cpu, memory)| Shape {
                    cpu: MilliCpu(Quantity::milli_value(cpu)),
                    memory: Bytes(Quantity::value(memory)),
                });
                let taints = node.spec.taints.iter();
                let mut taints: Vec<Taint> = taints
                    .filter_map(|it| Taint::new(&it.key, it.value.as_deref(), &it.effect))
                    .collect();
                taints.sort_unstable();
                self.known.insert(name, Node { has, taints, list: self.node_list });
            }
            Change::Unreadable { name, .. } => {
                if let Some(node) = self.known.get_mut(&name) {
                    node.list = self.node_list;
                }
            }
            Change::Gone { name, .. } => {
                self.known.remove(&name);
            }
            Change::Complete => self.known.retain(|_, node| node.list == self.node_list),
        }
    }

    /// A pod appeared, changed or went: those that are out of scope are kept if a DaemonSet owns them.
    pub fn see_pod(&mut self, change: &Change<SlimPod>, scope: &Scope) {
        let list = self.pod_list;
        match change {
            Change::Restart => self.pod_list += 1,
            Change::Put(slim) => {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let key = (text(&slim.metadata.namespace), text(&slim.metadata.name));
                if scope.includes(&key.0) {
                    return;
                }
                let node = slim.spec.node_name.as_deref().filter(|_| Pod::is_of_daemon(slim));
                let Some(node) = node else {
                    self.strangers.remove(&key);
                    return;
                };
                // Its names are not shared: nothing of them is kept.
                let pod = Pod::new(slim, &mut Names::default(), &mut [0; 4]);
                if pod.is_finished {
                    self.strangers.remove(&key);
                } else {
                    let (node, requests) = (node.to_owned(), pod.requests());
                    self.strangers.insert(key, Stranger { node, requests, list });
                }
            }
            Change::Unreadable { namespace, name, .. } => {
                let known = self.strangers.get_mut(&(namespace.clone(), name.clone()));
                if let Some(known) = known {
                    known.list = list;
                }
            }
            Change::Gone { namespace, name, .. } => {
                self.strangers.remove(&(namespace.clone(), name.clone()));
            }
            Change::Complete => self.strangers.retain(|_, known| known.list == list),
        }
    }

    /// What each node has left beside its DaemonSets, given the pods that are in scope. A node that does not say
    /// what it has, or has nothing left, is none to fit into.
    pub fn shapes<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> Shapes {
        let mut taken: HashMap<&str, (i64, i64)> = HashMap::new();
        let mut take = |node: &'a str, (cpu, memory): (i64, i64)| {
            let sum = taken.entry(node).or_default();
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(memory));
        };
        for pod in pods.filter(|pod| pod.is_daemon && !pod.is_finished) {
            if let Some(node) = &pod.node {
                take(node, pod.requests());
            }
        }
        let mut beside: HashMap<&str, (i64, i64)> = HashMap::new();
        for stranger in self.strangers.values() {
            let sum = beside.entry(&stranger.node).or_default();
            let (cpu, memory) = stranger.requests;
            *sum = (sum.0.saturating_add(cpu), sum.1.saturating_add(memory));
        }
        let mut shapes = Shapes::default();
        for (name, node) in &self.known {
            let Some(has) = node.has else { continue };
            let of =
                |sums: &HashMap<&str, (i64, i64)>| sums.get(&**name).copied().unwrap_or_default();
            let (ours, theirs) = (of(&taken), of(&beside));
            let left = Shape {
                cpu: MilliCpu(has.cpu.0.saturating_sub(ours.0).saturating_sub(theirs.0)),
                memory: Bytes(has.memory.0.saturating_sub(ours.1).saturating_sub(theirs.1)),
            };
            if left.cpu.0 > 0 && left.memory.0 > 0 {
                shapes.add(&node.taints, left);
            }
        }
        shapes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, cpu: &str, memory: &str, taints: &serde_json::Value) -> Change<SlimNode> {
        let node = json!({
            "metadata": { "name": name },
            "spec": { "taints": taints },
            "status": {
                "allocatable": { "cpu": cpu, "memory": memory },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        Change::Put(serde_json::from_value(node).expect("a node"))
    }

    fn daemon(namespace: &str, node: &str, cpu: &str) -> SlimPod {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true });
        let requests = json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
        let pod = json!({
            "metadata": { "namespace": namespace, "name": format!("d-{node}"), "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": requests }] },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn left(nodes: &Nodes, pods: &[Pod]) -> Vec<(i64, i64)> {
        let shapes = nodes.shapes(pods.iter()).for_pods(&[&[]]);
        let mut left: Vec<_> = shapes.iter().map(|it| (it.cpu.0, it.memory.0 >> 30)).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn what_nodes_have_left_is_told_node_by_node() {
        let mut nodes = Nodes::default();
        let none = json!([]);
        nodes.change(node("much-cpu", "32", "8Gi", &none));
        nodes.change(node("much-memory", "4", "64Gi", &none));
        nodes.change(node("small", "2", "4Gi", &none));
        nodes.change(node(
            "tainted",
            "64",
            "256Gi",
            &json!([{ "key": "gpu", "effect": "NoSchedule" }]),
        ));
        assert_eq!(left(&nodes, &[]), [(4000, 64), (32_000, 8)]);
        let ours = Pod::new(&daemon("web", "much-cpu", "1"), &mut Names::default(), &mut [0; 4]);
        assert_eq!(left(&nodes, &[ours]), [(4000, 64), (31_000, 7)]);
    }

    #[test]
    fn daemons_in_namespaces_of_others_count_until_they_are_gone() {
        let mut nodes = Nodes::default();
        nodes.change(node("one", "8", "16Gi", &json!([])));
        let scope = Scope { ignored: vec!["kube-system".into()], ..Scope::default() };
        nodes.see_pod(&Change::Restart, &scope);
        for namespace in ["kube-system", "web"] {
            nodes.see_pod(&Change::Put(daemon(namespace, "one", "2")), &scope);
        }
        nodes.see_pod(&Change::Complete, &scope);
        assert_eq!(left(&nodes, &[]), [(6000, 15)], "what is in scope is told by the index");
        nodes.see_pod(&Change::Restart, &scope);
        nodes.see_pod(&Change::Complete, &scope);
        assert_eq!(left(&nodes, &[]), [(8000, 16)]);
    }
}
