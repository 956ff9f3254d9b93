//! The targets of the containers of a workload within their bounds: peaks that are kept, the heap of the
//! runtime, and the largest node.

use super::{
    evidence::{ContainerEvidence, EvidenceGap},
    jvm_heap::possible_heap,
    need::{Need, amount_text, need},
    options::ReportOptions,
    page_cache::{MemorySignal, needed_target},
    runtime_bounds::{memory_floor, request_with_relative_heap},
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
    pub remarks: Vec<String>,
    /// A limit of memory is not lowered below this; `None` if the policy decides alone.
    pub least_memory_limit: Option<i64>,
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSizes {
    capacities: Vec<NodeCapacity>,
    largest: Amounts,
}

impl NodeSizes {
    /// The sizes of the nodes of a cluster. Nodes of an unknown size do not count.
    pub fn of(survey: &Survey, cluster: Option<&str>) -> Self {
        // With several clusters, the name of a node begins with that of its cluster.
        let is_of_cluster = |name: &str| {
            cluster.is_none_or(|cluster| {
                name.strip_prefix(cluster).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        let nodes = survey.nodes.iter().filter(|(name, _)| is_of_cluster(name));
        let known = nodes.filter_map(|(_, node)| {
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

/// Computes the targets of all containers, those of the pod template before the injected ones.
pub fn targets_of(
    workload: &Workload,
    evidence: &[Option<&ContainerEvidence>],
    nodes: &NodeSizes,
    options: &ReportOptions,
) -> Vec<ContainerTargets> {
    let mut targets: Vec<ContainerTargets> = workload
        .all_containers()
        .zip(evidence)
        .map(|(container, evidence)| of_container(container, *evidence, options))
        .collect();
    if options.cap_to_largest_node {
        let containers: Vec<&Container> = workload.all_containers().collect();
        cap(&containers, &mut targets, nodes);
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
    let mut least_memory_limit = None;
    if let (Ok(need), Some(evidence)) = (&mut memory, evidence) {
        least_memory_limit = without_page_cache(need, evidence, options, &mut remarks);
        let weekly = evidence.daily_memory_peaks.weekly_above(Bytes(need.target));
        if let Some(weekly) = weekly.filter(|_| !options.keep_peaks) {
            remarks.push(format!(
                "memory peaked above the target on {} {}s: --memory-histogram-decay-half-life=168h remembers weekly peaks",
                weekly.weeks, weekly.weekday
            ));
        }
    }
    if let Ok(need) = &mut memory {
        let peak = evidence.and_then(|evidence| evidence.rare_memory_peak);
        let peak = peak.filter(|peak| options.keep_peaks && peak.bytes.0 > need.target);
        if let Some(peak) = peak {
            *need = need.at_least(peak.bytes.0);
            let text = amount_text(Resource::Memory, peak.bytes.0);
            remarks.push(format!("memory covers the peak of {text} at {}", peak.at));
        }
        let jvm = evidence.and_then(|evidence| evidence.jvm_memory.as_deref());
        let is_killed = evidence.is_some_and(|evidence| evidence.oom_kills > 0);
        let by_data = container.runtime.as_deref().zip(jvm).filter(|_| !is_killed);
        let by_data = by_data.and_then(|(hint, jvm)| request_with_relative_heap(hint, jvm));
        if let Some(by_data) = by_data.filter(|by_data| *by_data < need.target) {
            let texts = [by_data, need.target].map(|amount| amount_text(Resource::Memory, amount));
            let [text, usage] = texts;
            remarks.push(format!(
                "memory is {text} by the data in the heap, and {usage} by its size, which follows the limit"
            ));
            *need = need.with_target(by_data);
        }
        let floor = container.runtime.as_deref().and_then(|hint| memory_floor(hint, jvm));
        if let Some(floor) = floor.filter(|floor| floor.bytes > need.target) {
            *need = need.at_least(floor.bytes);
            remarks.push(floor.reason);
        }
        let possible = jvm.and_then(|jvm| possible_heap(container, jvm, &options.thresholds.jvm));
        let possible = possible.filter(|possible| possible.memory < need.target);
        remarks.extend(possible.map(|possible| possible.remark));
    }
    ContainerTargets { cpu, memory, remarks, least_memory_limit }
}

/// Lowers a target of memory to what is needed without page cache, if that is wanted, or says what it would be. Returns the
/// least limit. A container that was OOM-killed needs what it has.
fn without_page_cache(
    need: &mut Need,
    evidence: &ContainerEvidence,
    options: &ReportOptions,
    remarks: &mut Vec<String>,
) -> Option<i64> {
    let thresholds = &options.thresholds.page_cache;
    let memory = evidence.needed_memory.as_ref().filter(|_| evidence.oom_kills == 0)?;
    let days = &evidence.daily_memory_peaks;
    let needed = needed_target(memory, days, options.margin, thresholds)?;
    let saving = need.target.saturating_sub(needed.target);
    let texts = [needed.target, need.target].map(|amount| amount_text(Resource::Memory, amount));
    let [text, of_working_set] = texts;
    match options.memory_signal {
        MemorySignal::Need if saving > 0 => {
            *need = need.with_target(needed.target);
            remarks
                .push(format!("memory is {text} without page cache, and {of_working_set} with it"));
            Some(needed.least_limit)
        }
        MemorySignal::WorkingSet if saving as f64 >= thresholds.share * need.target as f64 => {
            remarks
                .push(format!("memory would be {text} without page cache (--memory-signal=need)"));
            None
        }
        _ => None,
    }
}

/// Caps the targets of a pod so that it fits the node that reduces them least. Init containers run before the
/// others, so each is capped alone.
fn cap(containers: &[&Container], targets: &mut [ContainerTargets], nodes: &NodeSizes) {
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
mod tests;
