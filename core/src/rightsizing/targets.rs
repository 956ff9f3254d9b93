//! The targets of the containers of a workload within their bounds: peaks that are kept, the heap of the
//! runtime, and the largest node.

use super::{
    evidence::{ContainerEvidence, EvidenceGap},
    need::{Need, amount_text, need},
    options::ReportOptions,
    runtime_bounds::memory_floor,
    survey::{Amounts, Container, ContainerRole, Resource, Survey, Workload},
};
use crate::{
    recommender::{
        ContainerRecommendation, Explanation, Recommendation, ResourceAmounts,
        node_capacity::NodeCapacity,
        pod_cap::{PodCapacity, cap_to_pod},
    },
    types::{
        Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// What a container needs of both resources, and what to know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerTargets {
    /// CPU, or why it is unknown.
    pub cpu: Result<Need, EvidenceGap>,
    /// Memory, or why it is unknown.
    pub memory: Result<Need, EvidenceGap>,
    /// Remarks.
    pub remarks: Vec<String>,
}

impl ContainerTargets {
    /// What it needs of a resource.
    pub fn of(&self, resource: Resource) -> Result<Need, EvidenceGap> {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        }
    }

    fn slot(&mut self, resource: Resource) -> &mut Result<Need, EvidenceGap> {
        match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
        }
    }
}

/// The sizes of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSizes {
    capacities: Vec<NodeCapacity>,
    largest: Amounts,
}

impl NodeSizes {
    /// The sizes of the nodes of a survey. Nodes of an unknown size do not count.
    pub fn of(survey: &Survey) -> Self {
        let known = survey.nodes.values().filter_map(|node| {
            let Amounts { cpu, memory } = node.allocatable;
            Some(NodeCapacity { cpu: cpu?, memory: memory? })
        });
        let mut capacities: Vec<NodeCapacity> = known.collect();
        capacities.sort_by_key(|capacity| (capacity.cpu, capacity.memory));
        capacities.dedup();
        let largest = Amounts {
            cpu: capacities.iter().map(|capacity| capacity.cpu).max(),
            memory: capacities.iter().map(|capacity| capacity.memory).max(),
        };
        Self { capacities, largest }
    }

    /// The largest amount of a resource that a node can give; `None` if no size is known.
    pub fn largest(&self, resource: Resource) -> Option<i64> {
        super::need::amount_of(&self.largest, resource)
    }
}

/// Computes the targets of all containers, in their order.
pub fn targets_of(
    workload: &Workload,
    evidence: &[Option<&ContainerEvidence>],
    nodes: &NodeSizes,
    options: &ReportOptions,
) -> Vec<ContainerTargets> {
    let mut targets: Vec<ContainerTargets> = workload
        .containers
        .iter()
        .zip(evidence)
        .map(|(container, evidence)| of_container(container, *evidence, options))
        .collect();
    if options.cap_to_largest_node {
        cap(&workload.containers, &mut targets, nodes);
    }
    targets
}

fn of_container(
    container: &Container,
    evidence: Option<&ContainerEvidence>,
    options: &ReportOptions,
) -> ContainerTargets {
    let unsaid = &options.thresholds.unsaid;
    let cpu = need(Resource::Cpu, evidence, unsaid);
    let mut memory = need(Resource::Memory, evidence, unsaid);
    let mut remarks = Vec::new();
    if let Ok(need) = &mut memory {
        let peak = evidence.and_then(|evidence| evidence.rare_memory_peak);
        let peak = peak.filter(|peak| options.keep_peaks && peak.bytes.0 > need.target);
        if let Some(peak) = peak {
            *need = need.at_least(peak.bytes.0);
            let text = amount_text(Resource::Memory, peak.bytes.0);
            remarks.push(format!("memory covers the peak of {text} at {}", peak.at));
        }
        let jvm = evidence.and_then(|evidence| evidence.jvm_memory.as_ref());
        let floor = container.runtime.as_ref().and_then(|hint| memory_floor(hint, jvm));
        if let Some(floor) = floor.filter(|floor| floor.bytes > need.target) {
            *need = need.at_least(floor.bytes);
            remarks.push(floor.reason);
        }
    }
    ContainerTargets { cpu, memory, remarks }
}

/// Caps the targets of a pod so that it fits the node that reduces them least. Init containers run before the
/// others, so each is capped alone.
fn cap(containers: &[Container], targets: &mut [ContainerTargets], nodes: &NodeSizes) {
    let capacity =
        PodCapacity { cap: ResourceAmounts::default(), node_capacities: nodes.capacities.clone() };
    let is_init = |index: &usize| containers[*index].role == ContainerRole::Init;
    let (init, together): (Vec<usize>, Vec<usize>) = (0..targets.len()).partition(is_init);
    let pods = init.into_iter().map(|index| vec![index]).chain([together]);
    for indices in pods {
        let wanted = indices.iter().map(|index| recommendation_of(*index, &targets[*index]));
        let mut recommendation = Recommendation { containers: wanted.collect(), stale: Vec::new() };
        cap_to_pod(&mut recommendation, &capacity);
        for (index, capped) in indices.into_iter().zip(recommendation.containers) {
            apply_cap(&mut targets[index], &capped.target);
        }
    }
}

fn recommendation_of(index: usize, targets: &ContainerTargets) -> ContainerRecommendation {
    let target = ResourceAmounts {
        cpu: targets.cpu.ok().map(|need| Quantity::cpu(MilliCpu(need.target))),
        memory: targets.memory.ok().map(|need| Quantity::memory(Bytes(need.target))),
    };
    ContainerRecommendation {
        container: index.to_string().into(),
        target,
        lower: target,
        upper: target,
        uncapped: target,
        explanation: Explanation::default(),
    }
}

fn apply_cap(targets: &mut ContainerTargets, capped: &ResourceAmounts) {
    let amounts = [
        (Resource::Cpu, capped.cpu.map(Quantity::milli_value)),
        (Resource::Memory, capped.memory.map(Quantity::value)),
    ];
    for (resource, amount) in amounts {
        let (Ok(need), Some(amount)) = (targets.of(resource), amount) else { continue };
        if amount < need.target {
            *targets.slot(resource) = Ok(need.with_target(amount));
            let texts = [need.target, amount].map(|amount| amount_text(resource, amount));
            let [wanted, capped] = texts;
            targets.remarks.push(format!(
                "{resource} is capped to {capped} of {wanted}, so that the pod fits a node"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rightsizing::{
            evidence::MemoryPeak,
            survey::{Node, RuntimeHint},
            testing::{MI, amounts, container, deployment, evidence},
        },
        types::Time,
    };

    const GI: i64 = 1024 * MI;

    fn survey(nodes: &[(i64, i64)]) -> Survey {
        let node = |(index, (cpu, memory)): (usize, &(i64, i64))| {
            let allocatable = amounts(Some(*cpu), Some(*memory));
            (format!("node-{index}").into(), Node { allocatable, ..Node::default() })
        };
        Survey { nodes: nodes.iter().enumerate().map(node).collect(), ..Survey::default() }
    }

    fn targets(targets: &ContainerTargets) -> (i64, i64) {
        let target = |need: Result<Need, EvidenceGap>| need.expect("a number").target;
        (target(targets.cpu), target(targets.memory))
    }

    #[test]
    fn a_pod_is_capped_to_a_node_and_its_init_containers_alone() {
        let mut init = container(Amounts::default(), Amounts::default());
        init.role = ContainerRole::Init;
        let main = container(Amounts::default(), Amounts::default());
        let mut sidecar = main.clone();
        sidecar.role = ContainerRole::Sidecar;
        let workload = deployment("web", 1, vec![init, main, sidecar]);
        let (large, small) = (
            evidence([1, 6000, 9000], [1, GI, 2 * GI]),
            evidence([1, 2000, 9000], [1, GI, 2 * GI]),
        );
        let huge = evidence([1, 9000, 9000], [1, GI, 2 * GI]);
        let found = |cap_to_largest_node: bool, nodes: &[(i64, i64)]| {
            let options = ReportOptions { cap_to_largest_node, ..ReportOptions::default() };
            let sizes = NodeSizes::of(&survey(nodes));
            targets_of(&workload, &[Some(&huge), Some(&large), Some(&small)], &sizes, &options)
        };
        let nodes = [(4000, 64 * GI), (2000, 4 * GI)];
        let capped = found(true, &nodes);
        let pairs: Vec<_> = capped.iter().map(targets).collect();
        // 4 of 8 cores: half of each; the init container alone 4 of 9.
        assert_eq!(pairs, [(4000, GI), (3000, GI), (1000, GI)]);
        let remark = "cpu is capped to 3 of 6, so that the pod fits a node";
        assert_eq!(capped[1].remarks, [remark]);
        for uncapped in [found(false, &nodes), found(true, &[])] {
            let pairs: Vec<_> = uncapped.iter().map(targets).collect();
            assert_eq!(pairs, [(9000, GI), (6000, GI), (2000, GI)]);
            assert!(uncapped.iter().all(|targets| targets.remarks.is_empty()));
        }
    }

    #[test]
    fn peaks_are_kept_if_asked_for() {
        let workload =
            deployment("web", 1, vec![container(Amounts::default(), Amounts::default())]);
        let mut evidence = evidence([1, 2, 3], [1, 500 * MI, 600 * MI]);
        let at = Time::from_secs(1_767_225_600);
        evidence.rare_memory_peak = Some(MemoryPeak { bytes: Bytes(700 * MI), at });
        let found = |keep_peaks: bool| {
            let options = ReportOptions { keep_peaks, ..ReportOptions::default() };
            targets_of(&workload, &[Some(&evidence)], &NodeSizes::default(), &options).remove(0)
        };
        assert_eq!(found(false).memory.map(|need| need.target), Ok(500 * MI));
        let kept = found(true);
        let expected = Need { target: 700 * MI, lower: Some(1), upper: Some(700 * MI) };
        assert_eq!(kept.memory, Ok(expected));
        assert_eq!(kept.remarks, ["memory covers the peak of 700Mi at 2026-01-01T00:00:00Z"]);
    }

    #[test]
    fn memory_is_never_below_the_heap() {
        let mut main = container(Amounts::default(), Amounts::default());
        main.runtime = Some(RuntimeHint::Jvm {
            known_by: "-Xmx1g".to_owned(),
            max_heap: Some(Bytes(GI)),
            max_heap_percent: None,
        });
        let workload = deployment("web", 1, vec![main]);
        for (target, expected, remarks) in [(500 * MI, 1280 * MI, 1), (2 * GI, 2 * GI, 0)] {
            let evidence = evidence([1, 2, 3], [1, target, 9 * GI]);
            let options = ReportOptions::default();
            let found = targets_of(&workload, &[Some(&evidence)], &NodeSizes::default(), &options);
            assert_eq!(found[0].memory.map(|need| need.target), Ok(expected));
            assert_eq!(found[0].remarks.len(), remarks);
        }
        let missing =
            targets_of(&workload, &[None], &NodeSizes::default(), &ReportOptions::default());
        assert_eq!(
            missing[0].memory,
            Err(EvidenceGap::WithoutSeries),
            "a heap alone is no history"
        );
    }

    #[test]
    fn nodes_of_an_unknown_size_do_not_count() {
        let mut survey = survey(&[(4000, GI)]);
        let half = Node { allocatable: amounts(Some(9000), None), ..Node::default() };
        survey.nodes.insert("half".into(), half);
        let sizes = NodeSizes::of(&survey);
        assert_eq!(sizes.largest(Resource::Cpu), Some(4000));
        assert_eq!(NodeSizes::default().largest(Resource::Cpu), None);
    }
}
