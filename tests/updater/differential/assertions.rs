//! Asserts that two updaters did the same: the actions of each pass, and the exported metrics.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::compare::{EXPECTED_DIFFERENCES, Findings};
use super::exported_metrics::{families, is_expected_extra_count, values};
use super::scenario::{Scenario, ScenarioWorkload};
use super::{PARTS, UpdaterActions, WORKLOADS};

/// Two updaters to compare: upstream's and another one.
#[derive(Clone, Copy, Debug)]
pub struct ComparedPair {
    /// Name of the pair, for messages.
    pub label: &'static str,
    /// Whether the other one is Plimsoll's. Otherwise no difference is expected.
    pub is_ours: bool,
    /// Whether this is the default scenario, each part of which covers everything that is counted. Other seeds may not.
    pub is_usual: bool,
}

// === impl ComparedPair ===

impl ComparedPair {
    /// Panics with the differences between both in all parts, except for the expected ones.
    pub fn assert_same(self, scenario: &Scenario, runs: &[[&UpdaterActions; 2]]) {
        self.assert_same_actions(scenario, runs);
        self.assert_same_metrics(scenario, runs);
    }

    #[expect(clippy::print_stdout, reason = "prints the findings and their number")]
    fn assert_same_actions(self, scenario: &Scenario, runs: &[[&UpdaterActions; 2]]) {
        let label = self.label;
        let mut listed = [0; EXPECTED_DIFFERENCES.len()];
        let (mut ordered, mut actions) = (0, BTreeMap::new());
        assert_eq!(runs.len(), PARTS.len(), "{label}: parts");
        for ([theirs, ours], part) in runs.iter().zip(&PARTS) {
            let sides = [&*theirs.asked, &*ours.asked];
            let options = (part.passes.recorded, part.unboosts);
            let found = Findings::of(scenario, sides, &theirs.urgencies, options);
            let flags = part.flags;
            println!(
                "{label} {flags:?}: {:?}; {} VPAs in order, {} with ties",
                found.actions, found.ordered, found.tied
            );
            let count = found.unlisted.len();
            let first: Vec<_> = found.unlisted.iter().take(5).map(String::as_str).collect();
            assert!(count == 0, "{label} {flags:?}: {count} differences\n{}", first.concat());
            assert!(found.tied < WORKLOADS / 10, "{} have no order", found.tied);
            ordered += found.ordered;
            for (name, count) in &found.actions {
                *actions.entry(name.clone()).or_insert(0) += count;
            }
            if self.is_usual {
                assert!(found.ordered > WORKLOADS / 8, "only {} have an order", found.ordered);
                assert_covered(&found.actions, &format!("{flags:?}"));
            }
            for (total, more) in listed.iter_mut().zip(found.listed) {
                *total += more;
            }
            assert!(ours.elsewhere.is_empty(), "{label} {flags:?}: {:?}", ours.elsewhere);
        }
        assert!(ordered > WORKLOADS / 8, "only {ordered} have an order");
        assert_covered(&actions, "all parts");
        for (listed, found) in EXPECTED_DIFFERENCES.iter().zip(listed) {
            println!("{label}: {found} times: {}", listed.reason);
            let is_drawn = self.is_ours && self.is_usual;
            assert!(found > 0 || !is_drawn, "expected difference not found: {}", listed.reason);
        }
    }

    fn assert_same_metrics(self, scenario: &Scenario, runs: &[[&UpdaterActions; 2]]) {
        let label = self.label;
        for ([theirs, ours], part) in runs.iter().zip(&PARTS) {
            let flags = part.flags;
            // Each side retries the removal of a boost at its own pace, because a dry run never completes it.
            let boosted = scenario.subjects.iter().filter(|subject| {
                part.unboosts && subject.kinds.iter().any(|kind| kind.is_boosted)
            });
            let boosted: HashSet<&str> = boosted.map(|subject| &*subject.workload.name).collect();
            let counts = |series: &str| {
                let vpa = series.split_once("vpa_name=\"").map_or("", |(_, name)| name);
                let vpa = vpa.split(['"', '-']).next().unwrap_or_default();
                !(series.contains("_in_place_") && boosted.contains(vpa))
            };
            let (one, other) = (values(&theirs.metrics), values(&ours.metrics));
            let all_series: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let differ: Vec<_> = all_series
                .into_iter()
                .filter(|series| counts(series))
                .map(|series| (series, one.get(series), other.get(series)))
                .filter(|(series, one, other)| {
                    one != other && !is_expected_extra_count(series, *one, *other)
                })
                .collect();
            assert!(one.len() > WORKLOADS / 2, "only {} series", one.len());
            let of: Vec<String> = scenario
                .subjects
                .iter()
                .filter(|subject| {
                    let name = format!("vpa_name=\"{}", subject.workload.name);
                    differ.iter().any(|(series, ..)| series.contains(&name))
                })
                .map(ScenarioWorkload::described)
                .collect();
            assert!(
                differ.is_empty(),
                "{label} {flags:?}: {} differ\n{differ:#?}\n{}",
                differ.len(),
                of.concat()
            );
        }
        let [theirs, ours] =
            [0, 1].map(|side| families(runs.iter().map(move |run| &*run[side].metrics)));
        assert_eq!(theirs, ours, "{label}: families");
        // One family is about infeasible resizes, which not every seed produces.
        let least = if self.is_usual { 14 } else { 13 };
        assert!((least..=14).contains(&theirs.len()), "{theirs:#?}");
    }
}

/// Asserts that each kind of action was compared often enough.
fn assert_covered(actions: &BTreeMap<String, usize>, label: &str) {
    for (name, least) in
        [("evict 201", 20), ("evict 429", 3), ("resize 200", 20), ("resize 422", 3)]
    {
        let occurrences = actions.get(name).copied().unwrap_or_default();
        assert!(occurrences >= least, "{label}: only {occurrences} of {name}: {actions:?}");
    }
}
