//! Keeps what all containers of a pod are told to request together within what a pod may have: the largest
//! node, or a limit that the operator set.

use super::{
    explanation::{Explanation, Reason, ResourceExplanation},
    policy::Amounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::{
    quantity::Quantity,
    units::{Bytes, MilliCpu},
};

/// What all containers of a pod may request together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Room {
    /// CPU.
    pub cpu: Option<Limit>,
    /// Memory.
    pub memory: Option<Limit>,
}

/// The limit of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// No more than this.
    pub amount: Quantity,
    /// Who says so: [`Reason::NodeCap`] or [`Reason::PodCap`].
    pub by: Reason,
}

impl Limit {
    /// The smaller of two limits.
    pub fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.amount < one.amount { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

/// How one resource of a recommendation is reached, and what its amounts are counted in.
struct Lens {
    pick: fn(&mut Amounts) -> &mut Option<Quantity>,
    why: fn(&mut Explanation) -> &mut Option<ResourceExplanation>,
    count: fn(Quantity) -> i64,
    quantity: fn(i64) -> Quantity,
}

const CPU: Lens = Lens {
    pick: |amounts| &mut amounts.cpu,
    why: |explanation| &mut explanation.cpu,
    count: Quantity::milli_value,
    quantity: |amount| Quantity::cpu(MilliCpu(amount)),
};

const MEMORY: Lens = Lens {
    pick: |amounts| &mut amounts.memory,
    why: |explanation| &mut explanation.memory,
    count: Quantity::value,
    quantity: |amount| Quantity::memory(Bytes(amount)),
};

/// Scales the numbers of all containers down in proportion where their sum is more than the room. What the
/// policy says of single containers gives way: a pod that fits nowhere helps nobody. The uncapped targets
/// stay, and show what was wanted.
pub fn fit(said: &mut Recommendation, room: Room) {
    for (limit, lens) in [(room.cpu, &CPU), (room.memory, &MEMORY)] {
        if let Some(limit) = limit {
            fit_one(said, lens, limit);
            keep_in_order(said, lens);
        }
    }
}

/// The shares of a container differ between the three numbers. A target outside of its own bounds would have
/// its pod replaced again and again, so the bounds give way.
fn keep_in_order(said: &mut Recommendation, lens: &Lens) {
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

fn fit_one(said: &mut Recommendation, lens: &Lens, limit: Limit) {
    let numbers: [fn(&mut ContainerRecommendation) -> &mut Amounts; 3] =
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

/// Who held a target down, if the room did.
pub fn restricted_by(said: &Recommendation) -> Option<Reason> {
    let by = |why: &Option<ResourceExplanation>| {
        let by = why.as_ref().map(|why| why.target.decided_by);
        by.filter(|by| matches!(by, Reason::NodeCap | Reason::PodCap))
    };
    said.containers
        .iter()
        .find_map(|one| by(&one.explanation.cpu).or_else(|| by(&one.explanation.memory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, cpu: &str, memory: &str) -> ContainerRecommendation {
        let amounts = Amounts { cpu: cpu.parse().ok(), memory: memory.parse().ok() };
        ContainerRecommendation {
            container: name.into(),
            target: amounts,
            lower: amounts,
            upper: amounts,
            uncapped: amounts,
            explanation: Explanation::default(),
        }
    }

    #[test]
    fn containers_share_the_room_of_their_pod_in_proportion() {
        let containers = vec![container("a", "3", "1Gi"), container("b", "1", "1Gi")];
        let mut said = Recommendation { containers, stale: Vec::new() };
        let limit =
            |text: &str| text.parse().ok().map(|amount| Limit { amount, by: Reason::PodCap });
        fit(&mut said, Room { cpu: limit("2"), memory: limit("4Gi") });
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
    fn a_target_stays_between_its_bounds_whatever_the_shares() {
        let cpu = |text: &str| Amounts { cpu: text.parse().ok(), memory: None };
        let with = |name: &str, lower, target, upper| ContainerRecommendation {
            lower: cpu(lower),
            target: cpu(target),
            upper: cpu(upper),
            ..container(name, target, "1Gi")
        };
        let containers = vec![with("flat", "1", "1", "1"), with("steep", "1", "9", "19")];
        let mut said = Recommendation { containers, stale: Vec::new() };
        let limit = "2".parse().ok().map(|amount| Limit { amount, by: Reason::NodeCap });
        fit(&mut said, Room { cpu: limit, memory: None });
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
