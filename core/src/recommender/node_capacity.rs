//! What nodes have to give, and whom they take: the shapes that a pod could fit into.

use crate::types::units::{Bytes, MilliCpu};

/// Taints that tell how a node is, such as `node.kubernetes.io/memory-pressure`. Whether it is ready and not
/// cordoned is read from the node itself, and pressure passes: they say nothing of what a pod may have.
const NODE_CONDITION_TAINT_PREFIX: &str = "node.kubernetes.io/";

/// CPU and memory that one node has for a pod: both at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCapacity {
    /// CPU.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
}

impl NodeCapacity {
    /// Whether all that fits into the other one fits into this.
    const fn covers(self, other: Self) -> bool {
        self.cpu.0 >= other.cpu.0 && self.memory.0 >= other.memory.0
    }
}

/// What a taint does to pods that do not tolerate it. `PreferNoSchedule` keeps nobody away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintEffect {
    /// They are not placed there.
    NoSchedule,
    /// They are not placed there, and leave.
    NoExecute,
}

impl TaintEffect {
    /// The effect of this name, if it keeps pods away.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "NoSchedule" => Some(Self::NoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }
}

/// What keeps pods off a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    key: Box<str>,
    value: Box<str>,
    effect: TaintEffect,
}

impl Taint {
    /// From what the API says; `None` if it keeps nobody away for good.
    pub fn new(key: &str, value: Option<&str>, effect: &str) -> Option<Self> {
        let effect = TaintEffect::from_name(effect)?;
        let lasts = !key.starts_with(NODE_CONDITION_TAINT_PREFIX);
        lasts.then(|| Self { key: key.into(), value: value.unwrap_or_default().into(), effect })
    }
}

/// Taints that a pod does not mind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toleration {
    /// `None` is every key.
    key: Option<Box<str>>,
    /// `None` is every value.
    value: Option<Box<str>>,
    /// `None` is every effect.
    effect: Option<TaintEffect>,
}

impl Toleration {
    /// From what the API says; `None` if no taint that counts is tolerated by it. Every pod has two of those.
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
            // Newer than this code: what it means is not known.
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

/// The largest shapes of all nodes, by their taints: one that another of the same taints covers is not kept,
/// so there are few however many nodes there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCapacities(Vec<(Vec<Taint>, Vec<NodeCapacity>)>);

impl NodeCapacities {
    /// Adds a node.
    pub fn add(&mut self, taints: &[Taint], shape: NodeCapacity) {
        match self.0.iter_mut().find(|(known, _)| known == taints) {
            Some((_, shapes)) => keep_largest(shapes, shape),
            None => self.0.push((taints.to_vec(), vec![shape])),
        }
    }

    /// Whether all nodes take all pods.
    pub fn accept_all_pods(&self) -> bool {
        self.0.iter().all(|(taints, _)| taints.is_empty())
    }

    /// The largest shapes of the nodes that take every one of these pods; without a pod, of all nodes: what is
    /// not known is not held against a workload. None at all says as little.
    pub fn for_pods(&self, pods: &[&[Toleration]]) -> Vec<NodeCapacity> {
        let mut found = Vec::new();
        for (taints, shapes) in &self.0 {
            let tolerates = |pod: &&[Toleration]| {
                taints.iter().all(|taint| pod.iter().any(|toleration| toleration.covers(taint)))
            };
            if pods.iter().all(tolerates) {
                for shape in shapes {
                    keep_largest(&mut found, *shape);
                }
            }
        }
        found
    }
}

fn keep_largest(shapes: &mut Vec<NodeCapacity>, shape: NodeCapacity) {
    if !shapes.iter().any(|known| known.covers(shape)) {
        shapes.retain(|known| !shape.covers(*known));
        shapes.push(shape);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cpu: i64, memory: i64) -> NodeCapacity {
        NodeCapacity { cpu: MilliCpu(cpu), memory: Bytes(memory) }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Option<Toleration> {
        Toleration::new(Some(key), Some(operator), Some(value), Some(effect))
    }

    #[test]
    fn a_toleration_covers_the_taints_that_kubernetes_says_it_does() {
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
        assert_eq!(toleration("gpu", "Gt", "3", ""), None, "unknown is no yes");
        assert_eq!(toleration("gpu", "Exists", "", "PreferNoSchedule"), None);
        assert_eq!(toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"), None);
        assert_eq!(Taint::new("gpu", None, "PreferNoSchedule"), None);
        assert_eq!(Taint::new("node.kubernetes.io/disk-pressure", None, "NoSchedule"), None);
    }

    #[test]
    fn only_the_largest_shapes_of_nodes_that_take_all_pods_count() {
        let gpu = Taint::new("gpu", None, "NoSchedule").expect("keeps pods away");
        let mut shapes = NodeCapacities::default();
        for (taints, cpu, memory) in [
            (&[][..], 4, 64),
            (&[], 16, 8),
            (&[], 4, 32),
            (&[], 16, 8),
            (std::slice::from_ref(&gpu), 32, 128),
        ] {
            shapes.add(taints, shape(cpu, memory));
        }
        let open = [shape(4, 64), shape(16, 8)];
        let tolerant = [toleration("gpu", "Exists", "", "").expect("counts")];
        assert!(!shapes.accept_all_pods());
        assert_eq!(shapes.for_pods(&[&[]]), open);
        assert_eq!(shapes.for_pods(&[&tolerant]), [shape(32, 128)]);
        assert_eq!(shapes.for_pods(&[&tolerant, &[]]), open, "pods differ while they are replaced");
        assert_eq!(shapes.for_pods(&[]), [shape(32, 128)], "of no pod is nothing known");
    }
}
