//! Keeps what all containers of a pod are told to request together within what a pod may have: a node that it
//! could be on, and a limit that the operator set.

use serde::{Deserialize, Serialize};

use super::{
    explanation::{Explanation, RecommendationReason, ResourceExplanation},
    node_capacity::NodeCapacity,
    policy::ResourceAmounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::types::{
    quantity::Quantity,
    units::{Bytes, MilliCpu},
};

/// What all containers of a pod may request together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCapacity {
    /// The operator's limit.
    pub cap: ResourceAmounts,
    /// What the nodes have that would take the pod; it fits if it fits one of them. If there is none, nothing is
    /// known of nodes.
    pub node_capacities: Vec<NodeCapacity>,
}

/// The limits that hold for one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodLimits {
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<ResourceLimit>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ResourceLimit>,
}

/// The limit of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// No more than this.
    pub amount: Quantity,
    /// Who says so: [`Reason::NodeCap`] or [`Reason::PodCap`].
    pub by: RecommendationReason,
}

impl PodLimits {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl ResourceLimit {
    /// The smaller of two limits.
    fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.amount < one.amount { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

/// How one resource of a recommendation is reached, and what its amounts are counted in.
struct ResourceAccess {
    pick: fn(&mut ResourceAmounts) -> &mut Option<Quantity>,
    why: fn(&mut Explanation) -> &mut Option<ResourceExplanation>,
    count: fn(Quantity) -> i64,
    quantity: fn(i64) -> Quantity,
}

const CPU: ResourceAccess = ResourceAccess {
    pick: |amounts| &mut amounts.cpu,
    why: |explanation| &mut explanation.cpu,
    count: Quantity::milli_value,
    quantity: |amount| Quantity::cpu(MilliCpu(amount)),
};

const MEMORY: ResourceAccess = ResourceAccess {
    pick: |amounts| &mut amounts.memory,
    why: |explanation| &mut explanation.memory,
    count: Quantity::value,
    quantity: |amount| Quantity::memory(Bytes(amount)),
};

impl PodCapacity {
    /// The limits for a pod that would have these numbers: of all nodes, those of the one that needs the least cut
    /// of what is wanted.
    fn limits_for(&self, said: &Recommendation) -> PodLimits {
        let cap = PodLimits {
            cpu: self
                .cap
                .cpu
                .map(|amount| ResourceLimit { amount, by: RecommendationReason::PodCap }),
            memory: self
                .cap
                .memory
                .map(|amount| ResourceLimit { amount, by: RecommendationReason::PodCap }),
        };
        let (target, upper) =
            (PodSums::of(said, |it| &it.target), PodSums::of(said, |it| &it.upper));
        let choices = self.node_capacities.iter().map(|shape| {
            let node = |amount| Some(ResourceLimit { amount, by: RecommendationReason::NodeCap });
            let limits = PodLimits {
                cpu: ResourceLimit::tighter(cap.cpu, node(Quantity::cpu(shape.cpu))),
                memory: ResourceLimit::tighter(cap.memory, node(Quantity::memory(shape.memory))),
            };
            (target.remaining_share(limits), upper.remaining_share(limits), *shape, limits)
        });
        // Equals are told apart by their size, so that the order in which nodes are seen decides nothing.
        let best = choices.max_by(|one, other| {
            let size = |shape: NodeCapacity| (shape.cpu, shape.memory);
            let by_share = |one: f64, other: f64| one.total_cmp(&other);
            by_share(one.0, other.0)
                .then_with(|| by_share(one.1, other.1))
                .then_with(|| Ord::cmp(&size(one.2), &size(other.2)))
        });
        best.map_or(cap, |(.., limits)| limits)
    }
}

/// What all containers of a pod would request together.
struct PodSums {
    cpu: f64,
    memory: f64,
}

impl PodSums {
    fn of(said: &Recommendation, number: fn(&ContainerRecommendation) -> &ResourceAmounts) -> Self {
        let sum = |pick: fn(&ResourceAmounts) -> Option<Quantity>| {
            said.containers.iter().filter_map(|one| pick(number(one))).map(Quantity::as_f64).sum()
        };
        Self { cpu: sum(|amounts| amounts.cpu), memory: sum(|amounts| amounts.memory) }
    }

    /// How much of it is left within these limits: the shares of CPU and memory, multiplied.
    fn remaining_share(&self, limits: PodLimits) -> f64 {
        let share = |sum: f64, limit: Option<ResourceLimit>| {
            let most = limit.map_or(sum, |limit| limit.amount.as_f64());
            if sum > most { most / sum } else { 1.0 }
        };
        share(self.cpu, limits.cpu) * share(self.memory, limits.memory)
    }
}

/// Scales the numbers of all containers down in proportion where their sum is more than the room, and answers
/// what the limits are. What the policy says of single containers gives way: a pod that fits nowhere helps
/// nobody. The uncapped targets stay, and show what was wanted.
pub fn cap_to_pod(said: &mut Recommendation, room: &PodCapacity) -> PodLimits {
    let limits = room.limits_for(said);
    for (limit, lens) in [(limits.cpu, &CPU), (limits.memory, &MEMORY)] {
        if let Some(limit) = limit {
            cap_resource(said, lens, limit);
            keep_bounds_ordered(said, lens);
        }
    }
    limits
}

/// The shares of a container differ between the three numbers. A target outside of its own bounds would have
/// its pod replaced again and again, so the bounds give way.
fn keep_bounds_ordered(said: &mut Recommendation, lens: &ResourceAccess) {
    for one in &mut said.containers {
        let Some(target) = *(lens.pick)(&mut one.target) else { continue };
        if let Some(lower) = (lens.pick)(&mut one.lower).as_mut().filter(|it| **it > target) {
            *lower = target;
        }
        if let Some(upper) = (lens.pick)(&mut one.upper).as_mut().filter(|it| **it < target) {
            *upper = target;
        }
    }
}

fn cap_resource(said: &mut Recommendation, lens: &ResourceAccess, limit: ResourceLimit) {
    let numbers: [fn(&mut ContainerRecommendation) -> &mut ResourceAmounts; 3] =
        [|said| &mut said.lower, |said| &mut said.target, |said| &mut said.upper];
    let room = i128::from((lens.count)(limit.amount).max(0));
    for (index, number) in numbers.into_iter().enumerate() {
        let all = said.containers.iter_mut().filter_map(|one| *(lens.pick)(number(one)));
        let sum: i128 = all.map(|each| i128::from((lens.count)(each))).sum();
        if sum <= room {
            continue;
        }
        for one in &mut said.containers {
            let slot = (lens.pick)(number(one));
            let Some(each) = *slot else { continue };
            // Rounded down, so that the sum cannot exceed the room.
            let share = i128::from((lens.count)(each)) * room / sum;
            *slot = Some((lens.quantity)(i64::try_from(share).unwrap_or(i64::MAX)));
            let steps = (lens.why)(&mut one.explanation).as_mut();
            if let Some(why) = steps {
                [&mut why.lower, &mut why.target, &mut why.upper][index].decided_by = limit.by;
            }
        }
    }
}

/// Who held targets down, if the room did: the nodes, the operator's limit, or both.
pub fn restricted_by(said: &Recommendation) -> impl Iterator<Item = RecommendationReason> {
    let holds = |by: RecommendationReason| {
        let why = said.containers.iter().map(|one| &one.explanation);
        let mut why = why.flat_map(|why| why.cpu.iter().chain(&why.memory));
        why.any(|why| why.target.decided_by == by)
    };
    [RecommendationReason::NodeCap, RecommendationReason::PodCap]
        .into_iter()
        .filter(move |by| holds(*by))
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

    fn shape(cpu: &str, memory: &str) -> NodeCapacity {
        let quantity = |text: &str| text.parse::<Quantity>().expect("a quantity");
        NodeCapacity { cpu: quantity(cpu).to_cpu(), memory: quantity(memory).to_memory() }
    }

    #[test]
    fn a_pod_is_fitted_into_the_one_node_that_takes_the_least_from_it() {
        let nodes = [shape("32", "16Gi"), shape("8", "128Gi"), shape("24", "24Gi")];
        for (cpu, memory, fits) in [
            // Within a node of its own kind, though not within any other.
            ("30", "8Gi", ("30", "8Gi")),
            ("2", "120Gi", ("2", "120Gi")),
            // The largest of each would have it all, and no node has both.
            ("32", "128Gi", ("8", "128Gi")),
            ("36", "24Gi", ("24", "24Gi")),
        ] {
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let shapes = order.map(|index| nodes[index]).to_vec();
                let mut said = Recommendation {
                    containers: vec![container("main", cpu, memory)],
                    stale: Vec::new(),
                };
                cap_to_pod(
                    &mut said,
                    &PodCapacity { node_capacities: shapes, ..PodCapacity::default() },
                );
                let target = said.containers[0].target;
                let text = |amount: Option<Quantity>| amount.map(|it| it.to_string());
                let expected = (Some(fits.0.to_owned()), Some(fits.1.to_owned()));
                assert_eq!((text(target.cpu), text(target.memory)), expected, "{cpu} {memory}");
            }
        }
    }

    #[test]
    fn containers_share_the_room_of_their_pod_in_proportion() {
        let containers = vec![container("a", "3", "1Gi"), container("b", "1", "1Gi")];
        let mut said = Recommendation { containers, stale: Vec::new() };
        let cap = ResourceAmounts { cpu: "2".parse().ok(), memory: "4Gi".parse().ok() };
        cap_to_pod(&mut said, &PodCapacity { cap, ..PodCapacity::default() });
        let cpu: Vec<String> = said
            .containers
            .iter()
            .filter_map(|one| one.target.cpu)
            .map(|q| q.to_string())
            .collect();
        assert_eq!(cpu, ["1500m", "500m"]);
        for one in &said.containers {
            assert_eq!(one.target.memory.map(|q| q.to_string()).as_deref(), Some("1Gi"));
        }
        assert_eq!(said.containers[0].uncapped.cpu.map(|q| q.to_string()).as_deref(), Some("3"));
    }

    #[test]
    fn shares_of_the_room_never_add_up_to_more_than_the_room() {
        let containers = ["a", "b", "c"].map(|name| container(name, "1", "1Gi")).into();
        let mut said = Recommendation { containers, stale: Vec::new() };
        let cap = ResourceAmounts { cpu: "2".parse().ok(), memory: "2Gi".parse().ok() };
        cap_to_pod(&mut said, &PodCapacity { cap, ..PodCapacity::default() });
        let sum =
            |pick: fn(&ResourceAmounts) -> Option<Quantity>, count: fn(Quantity) -> i64| -> i64 {
                said.containers.iter().filter_map(|one| pick(&one.target)).map(count).sum()
            };
        assert_eq!(sum(|it| it.cpu, Quantity::milli_value), 3 * 666);
        assert_eq!(sum(|it| it.memory, Quantity::value), 3 * ((2 << 30) / 3));
    }

    #[test]
    fn a_target_stays_between_its_bounds_whatever_the_shares() {
        let cpu = |text: &str| ResourceAmounts { cpu: text.parse().ok(), memory: None };
        let with = |name: &str, lower, target, upper| ContainerRecommendation {
            lower: cpu(lower),
            target: cpu(target),
            upper: cpu(upper),
            ..container(name, target, "1Gi")
        };
        let containers = vec![with("flat", "1", "1", "1"), with("steep", "1", "9", "19")];
        let mut said = Recommendation { containers, stale: Vec::new() };
        cap_to_pod(
            &mut said,
            &PodCapacity { node_capacities: vec![shape("2", "1Ti")], ..PodCapacity::default() },
        );
        let targets: Vec<String> = said
            .containers
            .iter()
            .map(|one| {
                assert!(one.lower.cpu <= one.target.cpu, "{one:?}");
                assert!(one.target.cpu <= one.upper.cpu, "{one:?}");
                one.target.cpu.map(|it| it.to_string()).unwrap_or_default()
            })
            .collect();
        assert_eq!(targets, ["200m", "1800m"]);
    }
}
