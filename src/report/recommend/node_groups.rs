//! The groups of nodes that the pods of DaemonSets run on, those that are gone included.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::{
    rightsizing::{
        node_groups::{NodeGroup, group_of, groups_of, label_of},
        survey::{Node, Workload},
    },
    types::ObjectKey,
};

use super::history::workload_key;

/// The pods of DaemonSets by group of nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeGroups<'a> {
    workloads: HashMap<ObjectKey, GroupedWorkload<'a>>,
}

/// A DaemonSet whose pods run on several groups of nodes.
#[derive(Clone, Debug)]
struct GroupedWorkload<'a> {
    nodes: &'a BTreeMap<Box<str>, Node>,
    /// The cluster, which is part of the names of nodes if there are several.
    cluster: Option<Box<str>>,
    label: Option<Box<str>>,
    /// The groups, with the number of pods now.
    groups: Vec<(NodeGroup, u32)>,
    /// The index of the group of each pod.
    pods: HashMap<Box<str>, usize>,
}

impl<'a> NodeGroups<'a> {
    /// Finds the DaemonSets whose pods run on several groups of nodes. `label` is the label of the flag.
    pub fn new(
        workloads: &[&Workload],
        nodes: &'a BTreeMap<Box<str>, Node>,
        label: Option<&str>,
    ) -> Self {
        let grouped = workloads.iter().filter(|workload| &*workload.kind == "DaemonSet");
        let grouped = grouped.filter_map(|workload| {
            let groups: Vec<_> = groups_of(workload, nodes, label).into_iter().collect();
            let label = label_of(workload, label).map(Into::into);
            let (cluster, pods) = (workload.cluster.clone(), HashMap::new());
            let of = GroupedWorkload { nodes, cluster, label, groups, pods };
            (!of.groups.is_empty()).then(|| (workload_key(workload), of))
        });
        Self { workloads: grouped.collect() }
    }

    /// The keys of these DaemonSets.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.workloads.keys()
    }

    /// Records the node of a pod. Nodes that do not exist any more are in no group.
    pub fn add_pod(&mut self, workload: &ObjectKey, pod: &str, node: &str) {
        let Some(of) = self.workloads.get_mut(workload) else { return };
        let node = match &of.cluster {
            Some(cluster) => of.nodes.get(&*format!("{cluster}/{node}")),
            None => of.nodes.get(node),
        };
        let Some(node) = node else { return };
        let group = group_of(node, of.label.as_deref());
        if let Some(index) = of.groups.iter().position(|(known, _)| *known == group) {
            of.pods.insert(pod.into(), index);
        }
    }

    /// The index of the group of a pod, if it is known.
    pub fn index_of(&self, workload: &ObjectKey, pod: &str) -> Option<usize> {
        self.workloads.get(workload)?.pods.get(pod).copied()
    }

    /// A group of a workload, with the number of its pods now.
    pub fn group(&self, workload: &ObjectKey, index: usize) -> Option<&(NodeGroup, u32)> {
        self.workloads.get(workload)?.groups.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_in_the_group_of_their_node() {
        let node = |value: &str| Node {
            labels: BTreeMap::from([("agentpool".into(), value.into())]),
            ..Node::default()
        };
        let nodes = BTreeMap::from([
            ("a".into(), node("small")),
            ("b".into(), node("small")),
            ("c".into(), node("large")),
            ("d".into(), node("unused")),
        ]);
        let daemon_set = |kind: &str, nodes: &[&str]| Workload {
            namespace: "infra".into(),
            kind: kind.into(),
            name: "logs".into(),
            nodes: nodes.iter().map(|node| (*node).into()).collect(),
            ..Workload::default()
        };
        let workload = daemon_set("DaemonSet", &["a", "b", "c"]);
        let key = workload_key(&workload);
        let mut groups = NodeGroups::new(&[&workload], &nodes, None);
        assert_eq!(groups.keys().collect::<Vec<_>>(), [&key]);
        for (pod, node) in [("one", "a"), ("two", "c"), ("three", "gone"), ("four", "d")] {
            groups.add_pod(&key, pod, node);
        }
        let counts = |pod| {
            let index = groups.index_of(&key, pod)?;
            groups.group(&key, index).map(|(group, pods)| (group.value.as_deref(), *pods))
        };
        assert_eq!(counts("one"), Some((Some("small"), 2)));
        assert_eq!(counts("two"), Some((Some("large"), 1)));
        assert_eq!((counts("three"), counts("four")), (None, None));
        for workload in [daemon_set("Deployment", &["a", "c"]), daemon_set("DaemonSet", &["a"])] {
            assert_eq!(NodeGroups::new(&[&workload], &nodes, None).keys().count(), 0);
        }
    }
}
