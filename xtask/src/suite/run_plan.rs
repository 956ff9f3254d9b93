//! The plan of a run: the lanes of each phase and their order.

use std::collections::BTreeMap;

use super::config::{Phase, Suite};
use super::lane::Lane;
use super::test_event::Test;

/// All lanes, by phase.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pure: Vec<Lane>,
    cluster: Vec<Lane>,
    alone: Vec<Lane>,
}

// === impl Plan ===

impl Plan {
    /// Assigns tests to lanes; `known` has the last duration of each test in seconds.
    pub fn of(suite: &Suite, tests: &[Test], known: &BTreeMap<String, f64>, cores: usize) -> Self {
        let mut plan = Self::default();
        // Some pure tests wait for a program that they have started.
        let at_once = cores + 1;
        // A lane is a process, so each binary has its own.
        let mut lanes: BTreeMap<(Phase, &str, usize), Lane> = BTreeMap::new();
        for test in tests {
            let rule = suite.lane(&test.full);
            let (phase, name, threads) = rule.map_or((Phase::Pure, "pure", at_once), |rule| {
                (rule.phase, &*rule.name, rule.threads)
            });
            if phase == Phase::Alone {
                plan.alone.push(Lane::alone(test.clone()));
                continue;
            }
            let lane = lanes.entry((phase, name, test.binary)).or_insert_with(|| Lane {
                name: name.to_owned(),
                binary: test.binary,
                threads: threads.max(2),
                tests: Vec::new(),
            });
            lane.tests.push(test.clone());
        }
        for ((phase, ..), lane) in lanes {
            match phase {
                Phase::Pure => plan.pure.push(lane),
                Phase::Cluster | Phase::Alone => plan.cluster.push(lane),
            }
        }
        // The longest lanes start first, so that no long one remains at the end.
        let cost = |lane: &Lane| -> f64 {
            let known = lane.tests.iter().filter_map(|test| known.get(&test.full));
            known.sum::<f64>() / lane.threads as f64
        };
        for lanes in [&mut plan.pure, &mut plan.cluster, &mut plan.alone] {
            lanes.sort_by(|one, other| cost(other).total_cmp(&cost(one)));
        }
        plan
    }

    /// The lanes of a phase, in the order of their start.
    pub fn lanes(&self, phase: Phase) -> &[Lane] {
        match phase {
            Phase::Pure => &self.pure,
            Phase::Cluster => &self.cluster,
            Phase::Alone => &self.alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(binary: usize, name: &str) -> Test {
        Test { binary, name: name.to_owned(), full: name.to_owned() }
    }

    #[test]
    fn tests_are_assigned_to_lanes_and_the_slowest_lane_starts_first() {
        let suite = Suite::parse(
            r#"
            area = []
            [[lane]]
            name = "quick"
            phase = "cluster"
            threads = 6
            tests = ["quick::"]
            [[lane]]
            name = "slow"
            phase = "cluster"
            threads = 3
            tests = ["slow::"]
            [[lane]]
            name = "alone"
            phase = "alone"
            tests = ["freeze::"]
            "#,
        );
        let tests = [
            test(0, "quick::a"),
            test(0, "slow::a"),
            test(0, "slow::b"),
            test(0, "pure::a"),
            test(1, "unit::a"),
            test(0, "freeze::a"),
            test(0, "freeze::b"),
        ];
        let known = [("quick::a", 5.0), ("slow::a", 50.0), ("freeze::b", 3.0), ("unit::a", 1.0)];
        let known = known.map(|(name, seconds)| (name.to_owned(), seconds)).into();
        let plan = Plan::of(&suite.expect("TOML"), &tests, &known, 2);
        let lanes = |phase| -> Vec<(String, usize, usize)> {
            let lanes = plan.lanes(phase).iter();
            lanes.map(|lane| (lane.name.clone(), lane.threads, lane.tests.len())).collect()
        };
        let named = |name: &str, threads, tests| (name.to_owned(), threads, tests);
        assert_eq!(lanes(Phase::Pure), [named("pure", 3, 1), named("pure", 3, 1)]);
        assert_eq!(plan.lanes(Phase::Pure)[0].binary, 1, "the slower one is first");
        assert_eq!(lanes(Phase::Cluster), [named("slow", 3, 2), named("quick", 6, 1)]);
        assert_eq!(lanes(Phase::Alone), [named("freeze::b", 2, 1), named("freeze::a", 2, 1)]);
    }
}
