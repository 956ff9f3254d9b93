//! The score: how much of the requests is needed, and how few containers are at risk.

use super::{
    report::{Level, Score, Totals},
    survey::Resource,
};

/// Sums that the score is computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreParts {
    cpu: Requested,
    memory: Requested,
    /// Containers whose risk is known.
    containers: usize,
    critical: usize,
    high: usize,
}

/// What is requested and not needed of one resource, by amount and by money.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Requested {
    amount: f64,
    wasted: f64,
    cost: f64,
    wasted_cost: f64,
}

impl ScoreParts {
    /// Adds the requests and targets of all pods, and what the requests and the targets cost, if that is
    /// known.
    pub fn add_requests(
        &mut self,
        resource: Resource,
        request: f64,
        target: f64,
        costs: Option<(f64, f64)>,
    ) {
        let sums = match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
        };
        sums.amount += request;
        sums.wasted += (request - target).max(0.0);
        if let Some((cost, new_cost)) = costs {
            sums.cost += cost;
            sums.wasted_cost += (cost - new_cost).max(0.0);
        }
    }

    /// Adds a container by its highest risk.
    pub fn add_container(&mut self, risk: Level) {
        self.containers += usize::from(risk > Level::Unsaid);
        self.critical += usize::from(risk == Level::Critical);
        self.high += usize::from(risk == Level::High);
    }

    /// The score; `None` if nothing is known of any container.
    pub fn score(&self) -> Option<Score> {
        if self.containers == 0 {
            return None;
        }
        let wasted = self.wasted();
        let at_risk = (self.critical as f64 + 0.5 * self.high as f64) / self.containers as f64;
        let value = (100.0 * (1.0 - wasted) * (1.0 - at_risk)).round() as u32;
        Some(Score { value, wasted, at_risk })
    }

    /// The share of requests that is not needed. CPU and memory are weighted by what they cost, or equally if
    /// the cost of one of them is unknown.
    fn wasted(&self) -> f64 {
        let used = [self.cpu, self.memory].into_iter().filter(|sums| sums.amount > 0.0);
        let used: Vec<Requested> = used.collect();
        if used.is_empty() {
            return 0.0;
        }
        if used.iter().all(|sums| sums.cost > 0.0) {
            let sum = |of: fn(&Requested) -> f64| used.iter().map(of).sum::<f64>();
            return sum(|sums| sums.wasted_cost) / sum(|sums| sums.cost);
        }
        used.iter().map(|sums| sums.wasted / sums.amount).sum::<f64>() / used.len() as f64
    }
}

/// Whether the share of requests that is not needed is one of their cost: prices may be known for one
/// resource only.
pub fn is_weighted_by_cost(totals: &Totals) -> bool {
    let used = [totals.cpu, totals.memory].into_iter().filter(|sums| sums.requested > 0);
    let costs: Vec<_> = used.map(|sums| sums.cost).collect();
    !costs.is_empty() && costs.iter().all(|cost| cost.is_some_and(|cost| cost > 0.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A resource with its request, its target and what both cost.
    type Requests = (Resource, f64, f64, Option<(f64, f64)>);

    fn parts(requests: &[Requests], risks: &[Level]) -> ScoreParts {
        let mut parts = ScoreParts::default();
        for (resource, request, target, costs) in requests {
            parts.add_requests(*resource, *request, *target, *costs);
        }
        for risk in risks {
            parts.add_container(*risk);
        }
        parts
    }

    #[test]
    fn golden_vectors() {
        let (cpu, memory, ok) = (Resource::Cpu, Resource::Memory, Level::Ok);
        for (name, parts, value, wasted, at_risk) in [
            ("all is well", parts(&[(cpu, 10.0, 10.0, None)], &[ok]), 100, 0.0, 0.0),
            // (0.5 + 0.2) / 2 = 0.35.
            (
                "weighted equally",
                parts(&[(cpu, 10.0, 5.0, None), (memory, 100.0, 80.0, None)], &[ok]),
                65,
                0.35,
                0.0,
            ),
            // (15 + 3) / (30 + 10) = 0.45.
            (
                "weighted by money",
                parts(
                    &[
                        (cpu, 10.0, 5.0, Some((30.0, 15.0))),
                        (memory, 100.0, 70.0, Some((10.0, 7.0))),
                    ],
                    &[ok],
                ),
                55,
                0.45,
                0.0,
            ),
            (
                "memory has no price",
                parts(&[(cpu, 10.0, 5.0, Some((30.0, 15.0))), (memory, 100.0, 80.0, None)], &[ok]),
                65,
                0.35,
                0.0,
            ),
            (
                "too little wastes nothing",
                parts(&[(cpu, 5.0, 50.0, None), (cpu, 5.0, 0.0, None)], &[ok]),
                50,
                0.5,
                0.0,
            ),
            // (1 + 0.5) / 4 = 0.375.
            (
                "at risk",
                parts(&[(cpu, 1.0, 1.0, None)], &[Level::Critical, Level::High, Level::Medium, ok]),
                63,
                0.0,
                0.375,
            ),
            // 0.5 x 0.5 = 0.25.
            ("both", parts(&[(cpu, 2.0, 1.0, None)], &[Level::High]), 25, 0.5, 0.5),
            (
                "unknown containers do not count",
                parts(&[], &[Level::High, Level::Unsaid]),
                50,
                0.0,
                0.5,
            ),
        ] {
            assert_eq!(parts.score(), Some(Score { value, wasted, at_risk }), "{name}");
        }
        assert_eq!(parts(&[(cpu, 2.0, 1.0, None)], &[Level::Unsaid]).score(), None);
        assert_eq!(ScoreParts::default().score(), None);
    }

    #[test]
    fn costs_are_weights_only_if_all_are_known() {
        use crate::rightsizing::report::ResourceTotals;
        let of = |requested, cost| ResourceTotals { requested, cost, ..ResourceTotals::default() };
        for (cpu, memory, expected) in [
            (of(1000, Some(30.0)), of(5, Some(10.0)), true),
            (of(1000, Some(30.0)), of(0, None), true),
            (of(1000, Some(30.0)), of(5, None), false),
            (of(1000, Some(30.0)), of(5, Some(0.0)), false),
            (of(0, None), of(0, None), false),
        ] {
            let totals = Totals { cpu, memory, ..Totals::default() };
            assert_eq!(is_weighted_by_cost(&totals), expected, "{totals:?}");
        }
    }

    proptest! {
        #[test]
        fn a_score_is_from_0_to_100(
            requests in prop::collection::vec((any::<bool>(), 0.0..1e12_f64, 0.0..1e12_f64, prop::option::of(0.0..0.1_f64)), 0..20),
            critical in 0..5_usize,
            high in 0..5_usize,
            ok in 0..5_usize,
        ) {
            let mut parts = ScoreParts::default();
            for (is_cpu, request, target, price) in requests {
                let resource = if is_cpu { Resource::Cpu } else { Resource::Memory };
                let costs = price.map(|price| (request * price, target * price));
                parts.add_requests(resource, request, target, costs);
            }
            for (level, count) in [(Level::Critical, critical), (Level::High, high), (Level::Ok, ok)] {
                for _ in 0..count {
                    parts.add_container(level);
                }
            }
            if let Some(score) = parts.score() {
                prop_assert!(score.value <= 100);
                prop_assert!((0.0..=1.0).contains(&score.wasted) && (0.0..=1.0).contains(&score.at_risk));
                let mut worse = parts;
                worse.add_container(Level::Critical);
                prop_assert!(worse.score().is_some_and(|worse| worse.value <= score.value));
            }
        }
    }
}
