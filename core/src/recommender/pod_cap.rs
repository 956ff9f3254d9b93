//! Caps the recommendations of a pod so that their sum fits the pod's maximum: the capacity of a node that it could run
//! on, and the configured maximum.

use serde::{Deserialize, Serialize};

use super::{
    explanation::{Explanation, RecommendationReason},
    node_capacity::NodeCapacity,
    policy::ResourceAmounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::types::{PerResource, Quantity, Resource};

/// What all containers of a pod may request together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCapacity {
    /// The configured maximum.
    pub cap: ResourceAmounts,
    /// The capacities of the nodes that accept the pod, which must fit one of them. Empty if the nodes are unknown.
    pub node_capacities: Vec<NodeCapacity>,
}

/// The effective limits of one pod.
pub type PodLimits = PerResource<ResourceLimit>;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The maximum.
    pub amount: Quantity,
    /// The origin: [`RecommendationReason::NodeCap`] or [`RecommendationReason::PodCap`].
    pub by: RecommendationReason,
}

impl PodCapacity {
    /// Returns the limits of a pod with this recommendation: those of the node that requires the smallest cut.
    fn limits_for(&self, recommendation: &Recommendation) -> PodLimits {
        let cap = self.cap.map(|amount| ResourceLimit { amount, by: RecommendationReason::PodCap });
        let target = sums(recommendation, |container| &container.target);
        let upper = sums(recommendation, |container| &container.upper);
        let choices = self.node_capacities.iter().map(|capacity| {
            let tighter = |cap: Option<ResourceLimit>, amount| {
                let node = ResourceLimit { amount, by: RecommendationReason::NodeCap };
                Some(cap.filter(|cap| cap.amount <= amount).unwrap_or(node))
            };
            let limits = PodLimits {
                cpu: tighter(cap.cpu, Quantity::cpu(capacity.cpu)),
                memory: tighter(cap.memory, Quantity::memory(capacity.memory)),
            };
            (remaining_share(target, limits), remaining_share(upper, limits), *capacity, limits)
        });
        // Break ties by size, so that the result does not depend on the order of nodes.
        let best = choices.max_by(|a, b| {
            let size = |capacity: NodeCapacity| (capacity.cpu, capacity.memory);
            let by_share = |a: f64, b: f64| a.total_cmp(&b);
            by_share(a.0, b.0)
                .then_with(|| by_share(a.1, b.1))
                .then_with(|| Ord::cmp(&size(a.2), &size(b.2)))
        });
        best.map_or(cap, |(.., limits)| limits)
    }
}

/// The sums of CPU and memory of one estimate over all containers of a pod.
fn sums(
    recommendation: &Recommendation,
    amounts: fn(&ContainerRecommendation) -> &ResourceAmounts,
) -> [f64; 2] {
    [Resource::Cpu, Resource::Memory].map(|resource| {
        let of_containers = recommendation.containers.iter().map(amounts);
        of_containers.filter_map(|amounts| amounts.get(resource)).map(|it| it.as_f64()).sum()
    })
}

/// The share of the sums that is left within these limits: the shares of CPU and memory, multiplied.
fn remaining_share(sums: [f64; 2], limits: PodLimits) -> f64 {
    let share = |sum: f64, limit: Option<ResourceLimit>| {
        let max = limit.map_or(sum, |limit| limit.amount.as_f64());
        if sum > max { max / sum } else { 1.0 }
    };
    share(sums[0], limits.cpu) * share(sums[1], limits.memory)
}

/// Scales the recommendation of all containers down in proportion if their sum exceeds the pod's maximum. Returns the
/// limits. This overrides the policy of single containers, because a pod that fits nowhere is useless. The uncapped
/// targets stay as they are.
pub fn cap_to_pod(recommendation: &mut Recommendation, capacity: &PodCapacity) -> PodLimits {
    let limits = capacity.limits_for(recommendation);
    for resource in [Resource::Cpu, Resource::Memory] {
        if let Some(limit) = limits.get(resource) {
            cap_resource(recommendation, resource, *limit);
            keep_bounds_ordered(recommendation, resource);
        }
    }
    limits
}

/// Widens bounds to include the target. A container's share differs between the three estimates, and a target outside of
/// its bounds would make the updater replace the pod again and again.
fn keep_bounds_ordered(recommendation: &mut Recommendation, resource: Resource) {
    for container in &mut recommendation.containers {
        let Some(target) = container.target.get(resource).copied() else { continue };
        let lower = container.lower.get_mut(resource);
        if let Some(lower) = lower.filter(|lower| **lower > target) {
            *lower = target;
        }
        let upper = container.upper.get_mut(resource);
        if let Some(upper) = upper.filter(|upper| **upper < target) {
            *upper = target;
        }
    }
}

fn cap_resource(recommendation: &mut Recommendation, resource: Resource, limit: ResourceLimit) {
    let estimates: [fn(&mut ContainerRecommendation) -> &mut ResourceAmounts; 3] = [
        |container| &mut container.lower,
        |container| &mut container.target,
        |container| &mut container.upper,
    ];
    let max = i128::from(resource.of_quantity(limit.amount).max(0));
    for (index, estimate) in estimates.into_iter().enumerate() {
        let amounts = recommendation
            .containers
            .iter_mut()
            .filter_map(|container| estimate(container).get(resource));
        let sum: i128 = amounts.map(|amount| i128::from(resource.of_quantity(*amount))).sum();
        if sum <= max {
            continue;
        }
        for container in &mut recommendation.containers {
            let Some(amount) = estimate(container).get_mut(resource) else { continue };
            // Rounded down, so that the sum cannot exceed the maximum.
            let share = i128::from(resource.of_quantity(*amount)) * max / sum;
            *amount = resource.to_quantity(i64::try_from(share).unwrap_or(i64::MAX));
            if let Some(explanation) = container.explanation.get_mut(resource) {
                [&mut explanation.lower, &mut explanation.target, &mut explanation.upper][index]
                    .decided_by = limit.by;
            }
        }
    }
}

/// Returns which limits capped a target: of the nodes, the configured maximum, or both.
pub fn restricted_by(
    recommendation: &Recommendation,
) -> impl Iterator<Item = RecommendationReason> {
    let has_capped = |by: RecommendationReason| {
        let explanations = recommendation.containers.iter().map(|container| &container.explanation);
        let mut resources = explanations.flat_map(Explanation::values);
        resources.any(|resource| resource.target.decided_by == by)
    };
    [RecommendationReason::NodeCap, RecommendationReason::PodCap]
        .into_iter()
        .filter(move |by| has_capped(*by))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, cpu: &str, memory: &str) -> ContainerRecommendation {
        let amounts = ResourceAmounts { cpu: cpu.parse().ok(), memory: memory.parse().ok() };
        ContainerRecommendation {
            container: name.into(),
            target: amounts,
            lower: amounts,
            upper: amounts,
            uncapped: amounts,
            explanation: Explanation::default(),
        }
    }

    fn capacity(cpu: &str, memory: &str) -> NodeCapacity {
        let quantity = |text: &str| text.parse::<Quantity>().expect("a quantity");
        NodeCapacity { cpu: quantity(cpu).to_cpu(), memory: quantity(memory).to_memory() }
    }

    #[test]
    fn a_pod_is_capped_to_the_single_node_that_reduces_it_least() {
        let nodes = [capacity("32", "16Gi"), capacity("8", "128Gi"), capacity("24", "24Gi")];
        for (cpu, memory, fits) in [
            // It fits a node, though not the other ones.
            ("30", "8Gi", ("30", "8Gi")),
            ("2", "120Gi", ("2", "120Gi")),
            // It would fit the largest amounts of all nodes, but no node has both.
            ("32", "128Gi", ("8", "128Gi")),
            ("36", "24Gi", ("24", "24Gi")),
        ] {
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let node_capacities = order.map(|index| nodes[index]).to_vec();
                let mut recommendation = Recommendation {
                    containers: vec![container("main", cpu, memory)],
                    stale: Vec::new(),
                };
                cap_to_pod(
                    &mut recommendation,
                    &PodCapacity { node_capacities, ..PodCapacity::default() },
                );
                let target = recommendation.containers[0].target;
                let text = |amount: Option<Quantity>| amount.map(|quantity| quantity.to_string());
                let expected = (Some(fits.0.to_owned()), Some(fits.1.to_owned()));
                assert_eq!((text(target.cpu), text(target.memory)), expected, "{cpu} {memory}");
            }
        }
    }

    #[test]
    fn containers_share_the_capacity_of_a_pod_in_proportion() {
        let containers = vec![container("a", "3", "1Gi"), container("b", "1", "1Gi")];
        let mut recommendation = Recommendation { containers, stale: Vec::new() };
        let cap = ResourceAmounts { cpu: "2".parse().ok(), memory: "4Gi".parse().ok() };
        cap_to_pod(&mut recommendation, &PodCapacity { cap, ..PodCapacity::default() });
        let cpu: Vec<String> = recommendation
            .containers
            .iter()
            .filter_map(|container| container.target.cpu)
            .map(|q| q.to_string())
            .collect();
        assert_eq!(cpu, ["1500m", "500m"]);
        for container in &recommendation.containers {
            assert_eq!(container.target.memory.map(|q| q.to_string()).as_deref(), Some("1Gi"));
        }
        assert_eq!(
            recommendation.containers[0].uncapped.cpu.map(|q| q.to_string()).as_deref(),
            Some("3")
        );
    }

    #[test]
    fn shares_of_containers_never_exceed_the_capacity() {
        let containers = ["a", "b", "c"].map(|name| container(name, "1", "1Gi")).into();
        let mut recommendation = Recommendation { containers, stale: Vec::new() };
        let cap = ResourceAmounts { cpu: "2".parse().ok(), memory: "2Gi".parse().ok() };
        cap_to_pod(&mut recommendation, &PodCapacity { cap, ..PodCapacity::default() });
        let sum =
            |pick: fn(&ResourceAmounts) -> Option<Quantity>, count: fn(Quantity) -> i64| -> i64 {
                recommendation.containers.iter().filter_map(|c| pick(&c.target)).map(count).sum()
            };
        assert_eq!(sum(|amounts| amounts.cpu, Quantity::milli_value), 3 * 666);
        assert_eq!(sum(|amounts| amounts.memory, Quantity::value), 3 * ((2 << 30) / 3));
    }

    #[test]
    fn a_target_stays_between_its_bounds_after_capping() {
        let cpu = |text: &str| ResourceAmounts { cpu: text.parse().ok(), memory: None };
        let with = |name: &str, lower, target, upper| ContainerRecommendation {
            lower: cpu(lower),
            target: cpu(target),
            upper: cpu(upper),
            ..container(name, target, "1Gi")
        };
        let containers = vec![with("flat", "1", "1", "1"), with("steep", "1", "9", "19")];
        let mut recommendation = Recommendation { containers, stale: Vec::new() };
        cap_to_pod(
            &mut recommendation,
            &PodCapacity { node_capacities: vec![capacity("2", "1Ti")], ..PodCapacity::default() },
        );
        let targets: Vec<String> = recommendation
            .containers
            .iter()
            .map(|container| {
                assert!(container.lower.cpu <= container.target.cpu, "{container:?}");
                assert!(container.target.cpu <= container.upper.cpu, "{container:?}");
                container.target.cpu.map(|quantity| quantity.to_string()).unwrap_or_default()
            })
            .collect();
        assert_eq!(targets, ["200m", "1800m"]);
    }
}
