//! Groups of nodes on which the pods of a DaemonSet need different amounts.

use std::collections::BTreeMap;

use super::{
    evidence::NodeGroupTarget,
    survey::{Amounts, Node, Resource, Workload},
    thresholds::NodeGroupThresholds,
};
use crate::types::units::{Bytes, MilliCpu};

/// The annotation of a workload with the label that its nodes are grouped by.
pub const NODE_GROUPS_ANNOTATION: &str = "plimsoll.dev/node-groups";
/// The labels that nodes are grouped by, unless one is set: the first one that a node has.
pub const DEFAULT_LABELS: [&str; 5] = [
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "agentpool",
    "node.kubernetes.io/instance-type",
];
/// The most groups of a workload. The pods of the smallest ones belong to the pool of all pods.
pub const MAX_GROUPS: usize = 16;
/// A group with fewer pods has too little history of its own.
pub const MIN_PODS: u32 = 3;

/// A group of nodes. An absent label and an empty value are groups of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeGroup {
    pub label: Box<str>,
    /// Its value; `None` for nodes without the label.
    pub value: Option<Box<str>>,
}

/// The label that is set for the nodes of a workload: by its annotation, else by the flag.
pub fn label_of<'a>(workload: &'a Workload, flag: Option<&'a str>) -> Option<&'a str> {
    let annotation = workload.annotations.get(NODE_GROUPS_ANNOTATION);
    annotation.filter(|label| !label.is_empty()).or(flag)
}

pub fn group_of(node: &Node, label: Option<&str>) -> NodeGroup {
    if let Some(label) = label {
        return NodeGroup { label: label.into(), value: node.labels.get(label).cloned() };
    }
    let found = DEFAULT_LABELS
        .iter()
        .find_map(|label| Some((*label, node.labels.get(*label)?)))
        .map(|(label, value)| NodeGroup { label: label.into(), value: Some(value.clone()) });
    found.unwrap_or_else(|| NodeGroup { label: DEFAULT_LABELS[0].into(), value: None })
}

/// The groups of the nodes that pods of a workload run on, with the number of pods, sorted by label and
/// value. Pods on nodes that are unknown or beyond the largest [`MAX_GROUPS`] groups are in none. With fewer
/// than two groups there are none.
pub fn groups_of(
    workload: &Workload,
    nodes: &BTreeMap<Box<str>, Node>,
    flag: Option<&str>,
) -> BTreeMap<NodeGroup, u32> {
    let label = label_of(workload, flag);
    let mut groups: BTreeMap<NodeGroup, u32> = BTreeMap::new();
    for node in workload.nodes.iter().filter_map(|name| nodes.get(name)) {
        *groups.entry(group_of(node, label)).or_default() += 1;
    }
    let mut by_size: Vec<(NodeGroup, u32)> = groups.into_iter().collect();
    // Stable: among groups of one size, the first by name stay.
    by_size.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
    by_size.truncate(MAX_GROUPS);
    if by_size.len() < 2 { BTreeMap::new() } else { by_size.into_iter().collect() }
}

/// The history of the pods on one group of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupHistory {
    pub group: NodeGroup,
    /// The pods that run there now.
    pub pods: u32,
    /// Hours that its samples cover.
    pub covered_hours: f64,
    /// What its samples alone ask for; `None` without samples.
    pub target: Amounts,
}

/// The targets of groups. `pool` is the target of all pods together.
pub fn targets(
    groups: Vec<GroupHistory>,
    pool: Amounts,
    covered_hours: f64,
) -> Vec<NodeGroupTarget> {
    let target_of = |history: GroupHistory| {
        let is_short = history.pods < MIN_PODS || history.covered_hours < covered_hours;
        let pick = |own: Option<i64>, pool: Option<i64>| match own {
            Some(own) if is_short => Some(own.max(pool.unwrap_or(own))),
            own => own.or(pool),
        };
        let Amounts { cpu, memory } = history.target;
        let from_pool = is_short || cpu.is_none() || memory.is_none();
        NodeGroupTarget {
            label: history.group.label,
            value: history.group.value,
            pods: history.pods,
            cpu: pick(cpu.map(|cpu| cpu.0), pool.cpu.map(|cpu| cpu.0)).map(MilliCpu),
            memory: pick(memory.map(|bytes| bytes.0), pool.memory.map(|bytes| bytes.0)).map(Bytes),
            from_pool,
        }
    };
    let mut targets: Vec<NodeGroupTarget> = groups.into_iter().map(target_of).collect();
    targets.sort_by(|left, right| (&left.label, &left.value).cmp(&(&right.label, &right.value)));
    targets.truncate(MAX_GROUPS);
    targets
}

/// What one target for all groups wastes: the pods of each group would request the target of the largest.
pub fn waste_of_one_target(groups: &[NodeGroupTarget], resource: Resource) -> Option<i64> {
    let targets = targets_of(groups, resource)?;
    let largest = targets.iter().map(|(_, target)| *target).max()?;
    let excess = |(pods, target): &(i64, i64)| pods.saturating_mul(largest - target);
    Some(targets.iter().map(excess).fold(0, i64::saturating_add))
}

/// Whether the groups should have requests of their own for a resource.
pub fn should_split(
    groups: &[NodeGroupTarget],
    resource: Resource,
    thresholds: &NodeGroupThresholds,
) -> bool {
    let Some(targets) = targets_of(groups, resource) else { return false };
    let amounts = || targets.iter().map(|(_, target)| *target);
    let (Some(largest), Some(smallest)) = (amounts().max(), amounts().min()) else { return false };
    let enough = match resource {
        Resource::Cpu => thresholds.cpu.milli_value(),
        Resource::Memory => thresholds.memory.value(),
    };
    let are_apart = largest as f64 >= thresholds.ratio * smallest as f64;
    are_apart && waste_of_one_target(groups, resource).is_some_and(|waste| waste >= enough)
}

/// Pods and target of each group; `None` with fewer than two groups, or if a target is unknown.
fn targets_of(groups: &[NodeGroupTarget], resource: Resource) -> Option<Vec<(i64, i64)>> {
    let target = |group: &NodeGroupTarget| {
        let amount = match resource {
            Resource::Cpu => group.cpu?.0,
            Resource::Memory => group.memory?.0,
        };
        Some((i64::from(group.pods), amount))
    };
    let targets: Vec<_> = groups.iter().map(target).collect::<Option<_>>()?;
    (targets.len() >= 2).then_some(targets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rightsizing::testing::{MI, amounts};

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Node { labels: labels.collect(), ..Node::default() }
    }

    fn group(label: &str, value: Option<&str>) -> NodeGroup {
        NodeGroup { label: label.into(), value: value.map(Into::into) }
    }

    #[test]
    fn a_node_belongs_to_the_group_of_its_first_label() {
        let pool = ("karpenter.sh/nodepool", "gpu");
        let instance = ("node.kubernetes.io/instance-type", "m6i.large");
        for (labels, label, expected) in [
            (&[pool, instance][..], None, group(pool.0, Some("gpu"))),
            (&[instance], None, group(instance.0, Some("m6i.large"))),
            (&[], None, group(pool.0, None)),
            (&[pool, instance], Some("disk"), group("disk", None)),
            (&[pool, ("disk", "")], Some("disk"), group("disk", Some(""))),
            (&[pool, ("disk", "ssd")], Some("disk"), group("disk", Some("ssd"))),
        ] {
            assert_eq!(group_of(&node(labels), label), expected, "{labels:?} by {label:?}");
        }
    }

    #[test]
    fn the_annotation_goes_before_the_flag() {
        let mut workload = Workload::default();
        assert_eq!(label_of(&workload, None), None);
        assert_eq!(label_of(&workload, Some("zone")), Some("zone"));
        workload.annotations = [(NODE_GROUPS_ANNOTATION, "disk")].into_iter().collect();
        assert_eq!(label_of(&workload, Some("zone")), Some("disk"));
        workload.annotations = [(NODE_GROUPS_ANNOTATION, "")].into_iter().collect();
        assert_eq!(label_of(&workload, Some("zone")), Some("zone"));
    }

    #[test]
    fn pods_are_counted_by_group_and_small_groups_pool() {
        let mut nodes = BTreeMap::new();
        let mut workload = Workload::default();
        for index in 0..20 {
            let name: Box<str> = format!("node-{index:02}").into();
            nodes.insert(name.clone(), node(&[("agentpool", &format!("pool-{index:02}"))]));
            // The first four groups have one pod, the others two.
            let pods = if index < 4 { 1 } else { 2 };
            workload.nodes.extend(std::iter::repeat_n(name, pods));
        }
        workload.nodes.push("unknown".into());
        let groups = groups_of(&workload, &nodes, None);
        assert_eq!(groups.len(), MAX_GROUPS);
        assert!(groups.values().all(|pods| *pods == 2));
        let same = groups_of(&workload, &nodes, Some("zone"));
        assert_eq!(same, BTreeMap::new(), "one group is none");
    }

    fn history(value: &str, pods: u32, hours: f64, target: Amounts) -> GroupHistory {
        GroupHistory { group: group("pool", Some(value)), pods, covered_hours: hours, target }
    }

    #[test]
    fn a_group_with_little_history_takes_the_larger_of_its_and_the_pools_target() {
        let pool = amounts(Some(200), Some(100));
        let groups = vec![
            history("young", 9, 23.9, amounts(Some(100), Some(300))),
            history("small", 2, 99.0, amounts(Some(500), Some(50))),
            history("full", 3, 24.0, amounts(Some(100), Some(50))),
            history("empty", 9, 0.0, amounts(None, None)),
        ];
        let found = targets(groups, pool, 24.0);
        let found: Vec<_> = found
            .iter()
            .map(|group| {
                let amounts = (group.cpu.map(|cpu| cpu.0), group.memory.map(|memory| memory.0));
                (group.value.as_deref().unwrap_or_default(), amounts, group.from_pool)
            })
            .collect();
        let expected = [
            ("empty", (Some(200), Some(100)), true),
            ("full", (Some(100), Some(50)), false),
            ("small", (Some(500), Some(100)), true),
            ("young", (Some(200), Some(300)), true),
        ];
        assert_eq!(found, expected);
    }

    fn target(pods: u32, cpu: i64, memory: i64) -> NodeGroupTarget {
        NodeGroupTarget {
            label: "pool".into(),
            value: Some(format!("{pods}-{cpu}").into()),
            pods,
            cpu: Some(MilliCpu(cpu)),
            memory: Some(Bytes(memory)),
            from_pool: false,
        }
    }

    #[test]
    fn a_split_has_to_matter() {
        let thresholds = NodeGroupThresholds::default();
        let gi = 1024 * MI;
        for (name, groups, cpu, memory) in [
            // 60 x 340m = 20.4 cores.
            ("60 small, 4 large", vec![target(60, 60, MI), target(4, 400, MI)], true, false),
            // 1 x 499m.
            ("less than half a core", vec![target(1, 1, MI), target(9, 500, MI)], false, false),
            ("half a core", vec![target(1, 1, MI), target(9, 501, MI)], true, false),
            // 149 / 100 is not half as much again, however much it is together.
            ("close", vec![target(999, 100, MI), target(9, 149, MI)], false, false),
            ("half as much again", vec![target(999, 100, MI), target(9, 150, MI)], true, false),
            ("memory", vec![target(1, 100, gi), target(1, 100, 2 * gi)], false, true),
            ("one group", vec![target(999, 1, MI)], false, false),
        ] {
            assert_eq!(should_split(&groups, Resource::Cpu, &thresholds), cpu, "{name}");
            assert_eq!(should_split(&groups, Resource::Memory, &thresholds), memory, "{name}");
        }
        let mut unknown = vec![target(60, 60, MI), target(4, 400, MI)];
        unknown[0].cpu = None;
        assert!(!should_split(&unknown, Resource::Cpu, &thresholds));
        let waste = waste_of_one_target(&[target(60, 60, MI), target(4, 400, MI)], Resource::Cpu);
        assert_eq!(waste, Some(20_400));
    }

    proptest! {
        /// No group gets less than its own samples ask for.
        #[test]
        fn no_group_is_below_its_own_target(
            groups in prop::collection::vec((0..9_u32, 0.0..48.0_f64, 1..5000_i64), 0..20),
            pool in 1..5000_i64,
        ) {
            let histories: Vec<_> = groups.iter().enumerate().map(|(index, (pods, hours, cpu))| {
                history(&format!("{index:02}"), *pods, *hours, amounts(Some(*cpu), None))
            }).collect();
            let found = targets(histories, amounts(Some(pool), None), 24.0);
            prop_assert_eq!(found.len(), groups.len().min(MAX_GROUPS));
            for (group, (_, _, own)) in found.iter().zip(&groups) {
                prop_assert!(group.cpu.is_some_and(|cpu| cpu.0 >= *own && cpu.0 <= (*own).max(pool)));
            }
        }
    }
}
