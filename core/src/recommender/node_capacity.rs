//! Node capacities: the sizes of nodes that a pod could be scheduled on, by their taints.

use crate::types::units::{Bytes, MilliCpu};

/// Taints of node conditions, such as `node.kubernetes.io/memory-pressure`. Readiness and cordoning are read from the node
/// itself, and pressure is temporary, so these taints do not matter for the capacity.
const NODE_CONDITION_TAINT_PREFIX: &str = "node.kubernetes.io/";

/// The CPU and memory of one node that are available to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCapacity {
    pub cpu: MilliCpu,
    pub memory: Bytes,
}

impl NodeCapacity {
    /// Whether everything that fits into the other capacity fits into this one.
    const fn covers(self, other: Self) -> bool {
        self.cpu.0 >= other.cpu.0 && self.memory.0 >= other.memory.0
    }
}

/// The effect of a taint on pods that do not tolerate it. `PreferNoSchedule` does not keep pods away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintEffect {
    /// Pods are not scheduled.
    NoSchedule,
    /// Pods are not scheduled, and are evicted.
    NoExecute,
}

impl TaintEffect {
    /// Parses an effect; `None` if it does not keep pods away.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "NoSchedule" => Some(Self::NoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }
}

/// A taint that keeps pods off a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    key: Box<str>,
    value: Box<str>,
    effect: TaintEffect,
}

impl Taint {
    /// Converts a taint of the API; `None` if it does not keep pods away permanently.
    pub fn new(key: &str, value: Option<&str>, effect: &str) -> Option<Self> {
        let effect = TaintEffect::from_name(effect)?;
        let is_permanent = !key.starts_with(NODE_CONDITION_TAINT_PREFIX);
        is_permanent.then(|| Self {
            key: key.into(),
            value: value.unwrap_or_default().into(),
            effect,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toleration {
    /// `None` matches every key.
    key: Option<Box<str>>,
    /// `None` matches every value.
    value: Option<Box<str>>,
    /// `None` matches every effect.
    effect: Option<TaintEffect>,
}

impl Toleration {
    /// Converts a toleration of the API; `None` if it tolerates no [`Taint`], like the two that every pod has.
    pub fn new(
        key: Option<&str>,
        operator: Option<&str>,
        value: Option<&str>,
        effect: Option<&str>,
    ) -> Option<Self> {
        let key = key.filter(|key| !key.is_empty());
        if key.is_some_and(|key| key.starts_with(NODE_CONDITION_TAINT_PREFIX)) {
            return None;
        }
        let effect = match effect.filter(|effect| !effect.is_empty()) {
            Some(effect) => Some(TaintEffect::from_name(effect)?),
            None => None,
        };
        let value = match operator.filter(|operator| !operator.is_empty()) {
            Some("Exists") => None,
            Some("Equal") | None => Some(value.unwrap_or_default().into()),
            // An unknown, newer operator.
            Some(_) => return None,
        };
        Some(Self { key: key.map(Into::into), value, effect })
    }

    fn covers(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

/// The largest capacities of all nodes, by their taints. Capacities that another one with the same taints covers are
/// dropped, so there are few even with many nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacities(Vec<(Vec<Taint>, Vec<NodeCapacity>)>);

impl NodeCapacities {
    pub fn add(&mut self, taints: &[Taint], capacity: NodeCapacity) {
        match self.0.iter_mut().find(|(known, _)| known == taints) {
            Some((_, capacities)) => keep_largest(capacities, capacity),
            None => self.0.push((taints.to_vec(), vec![capacity])),
        }
    }

    pub fn accept_all_pods(&self) -> bool {
        self.0.iter().all(|(taints, _)| taints.is_empty())
    }

    /// Returns the largest capacities of the nodes that accept every one of these pods. Without pods it considers all nodes,
    /// so that missing information does not restrict a workload. Empty means unknown.
    pub fn for_pods(&self, pods: &[&[Toleration]]) -> Vec<NodeCapacity> {
        let mut largest = Vec::new();
        for (taints, capacities) in &self.0 {
            let tolerates = |pod: &&[Toleration]| {
                taints.iter().all(|taint| pod.iter().any(|toleration| toleration.covers(taint)))
            };
            if pods.iter().all(tolerates) {
                for capacity in capacities {
                    keep_largest(&mut largest, *capacity);
                }
            }
        }
        largest
    }
}

fn keep_largest(capacities: &mut Vec<NodeCapacity>, capacity: NodeCapacity) {
    if !capacities.iter().any(|known| known.covers(capacity)) {
        capacities.retain(|known| !capacity.covers(*known));
        capacities.push(capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(cpu: i64, memory: i64) -> NodeCapacity {
        NodeCapacity { cpu: MilliCpu(cpu), memory: Bytes(memory) }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Option<Toleration> {
        Toleration::new(Some(key), Some(operator), Some(value), Some(effect))
    }

    #[test]
    fn tolerations_match_taints_as_kubernetes_does() {
        let taint = Taint::new("gpu", Some("a100"), "NoSchedule").expect("keeps pods away");
        for (key, operator, value, effect, covers) in [
            ("gpu", "Equal", "a100", "NoSchedule", true),
            ("gpu", "", "a100", "", true),
            ("gpu", "Equal", "h100", "NoSchedule", false),
            ("gpu", "Equal", "a100", "NoExecute", false),
            ("gpu", "Exists", "", "", true),
            ("", "Exists", "", "", true),
            ("disk", "Exists", "", "", false),
        ] {
            let toleration = toleration(key, operator, value, effect).expect("counts");
            assert_eq!(toleration.covers(&taint), covers, "{toleration:?}");
        }
        assert_eq!(toleration("gpu", "Gt", "3", ""), None, "an unknown operator tolerates nothing");
        assert_eq!(toleration("gpu", "Exists", "", "PreferNoSchedule"), None);
        assert_eq!(toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"), None);
        assert_eq!(Taint::new("gpu", None, "PreferNoSchedule"), None);
        assert_eq!(Taint::new("node.kubernetes.io/disk-pressure", None, "NoSchedule"), None);
    }

    #[test]
    fn only_the_largest_node_shapes_that_accept_all_pods_count() {
        let gpu = Taint::new("gpu", None, "NoSchedule").expect("keeps pods away");
        let mut capacities = NodeCapacities::default();
        for (taints, cpu, memory) in [
            (&[][..], 4, 64),
            (&[], 16, 8),
            (&[], 4, 32),
            (&[], 16, 8),
            (std::slice::from_ref(&gpu), 32, 128),
        ] {
            capacities.add(taints, capacity(cpu, memory));
        }
        let open = [capacity(4, 64), capacity(16, 8)];
        let tolerant = [toleration("gpu", "Exists", "", "").expect("counts")];
        assert!(!capacities.accept_all_pods());
        assert_eq!(capacities.for_pods(&[&[]]), open);
        assert_eq!(capacities.for_pods(&[&tolerant]), [capacity(32, 128)]);
        assert_eq!(
            capacities.for_pods(&[&tolerant, &[]]),
            open,
            "pods differ while they are replaced"
        );
        assert_eq!(capacities.for_pods(&[]), [capacity(32, 128)], "without pods all nodes count");
    }
}
