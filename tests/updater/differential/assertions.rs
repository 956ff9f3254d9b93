//! Says whether two updaters did the same: the deeds of each pass, and what they tell Prometheus.

use std::collections::{BTreeSet, HashSet};

use super::compare::{EXPECTED_DIFFERENCES, Findings};
use super::exported_metrics::{families, is_expected_extra_count, values};
use super::scenario::{Scenario, ScenarioWorkload};
use super::{PARTS, UpdaterActions, WORKLOADS};

/// Two updaters that are compared: upstream's, and another.
#[derive(Clone, Copy, Debug)]
pub struct ComparedPair {
    /// Who they are, for messages.
    pub who: &'static str,
    /// Whether the other one is ours. Else nothing of it is listed.
    pub is_ours: bool,
    /// Whether the scenario is the usual one, in which everything happens that is counted. Another seed need not draw it.
    pub is_usual: bool,
}

// === impl Against ===

impl ComparedPair {
    /// Panics with what differs in what both did in the parts, outside of the list.
    pub fn assert_same(self, scenario: &Scenario, plays: &[[&UpdaterActions; 2]]) {
        self.assert_same_deeds(scenario, plays);
        self.assert_same_metrics(scenario, plays);
    }

    #[expect(clippy::print_stdout, reason = "what was found, and how much there was")]
    fn assert_same_deeds(self, scenario: &Scenario, plays: &[[&UpdaterActions; 2]]) {
        let who = self.who;
        let mut listed = [0; EXPECTED_DIFFERENCES.len()];
        assert_eq!(plays.len(), PARTS.len(), "{who}: parts");
        for ([theirs, ours], part) in plays.iter().zip(&PARTS) {
            let sides = [&*theirs.asked, &*ours.asked];
            let how = (part.passes.made, part.unboosts);
            let found = Findings::of(scenario, sides, &theirs.urgencies, how);
            let flags = part.flags;
            println!(
                "{who} {flags:?}: {:?}; {} VPAs in order, {} with ties",
                found.deeds, found.ordered, found.tied
            );
            let count = found.unlisted.len();
            let first: Vec<_> = found.unlisted.iter().take(5).map(String::as_str).collect();
            assert!(count == 0, "{who} {flags:?}: {count} differences\n{}", first.concat());
            assert!(found.tied < WORKLOADS / 10, "{} have no order", found.tied);
            assert!(found.ordered > WORKLOADS / 8, "only {} have an order", found.ordered);
            for (name, least) in
                [("evict 201", 20), ("evict 429", 3), ("resize 200", 20), ("resize 422", 3)]
            {
                let seen = found.deeds.get(name).copied().unwrap_or_default();
                assert!(seen >= least, "{flags:?}: only {seen} of {name}: {:?}", found.deeds);
            }
            for (all, more) in listed.iter_mut().zip(found.listed) {
                *all += more;
            }
            assert!(ours.elsewhere.is_empty(), "{who} {flags:?}: {:?}", ours.elsewhere);
        }
        for (listed, found) in EXPECTED_DIFFERENCES.iter().zip(listed) {
            println!("{who}: {found} times: {}", listed.reason);
            let is_drawn = self.is_ours && self.is_usual;
            assert!(found > 0 || !is_drawn, "is not found any more: {}", listed.reason);
        }
    }

    fn assert_same_metrics(self, scenario: &Scenario, plays: &[[&UpdaterActions; 2]]) {
        let who = self.who;
        for ([theirs, ours], part) in plays.iter().zip(&PARTS) {
            let flags = part.flags;
            // The end of a boost is rehearsed as often as each thinks fit, because it never comes to pass.
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
            let all: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let differ: Vec<_> = all
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
                "{who} {flags:?}: {} differ\n{differ:#?}\n{}",
                differ.len(),
                of.concat()
            );
        }
        let [theirs, ours] =
            [0, 1].map(|side| families(plays.iter().map(move |play| &*play[side].metrics)));
        assert_eq!(theirs, ours, "{who}: families");
        // One is about resizes that are known to be impossible, which not every seed draws.
        let least = if self.is_usual { 14 } else { 13 };
        assert!((least..=14).contains(&theirs.len()), "{theirs:#?}");
    }
}
