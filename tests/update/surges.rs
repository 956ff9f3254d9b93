//! The second replica of a workload that has one ends, whatever becomes of the first.

use std::time::Duration;

use plimsoll_core::{
    types::compat::Compat,
    updater::{Action, Skip, Wanted, guard::memory::Surge},
};

use super::{Case, NOW, ago, recommended, spec};

/// Both replicas serve, and neither has gone.
fn surged(minutes: u64) -> Case {
    let mut case = Case::new(Compat::Plimsoll, "Recreate", 2);
    case.settings.guards.surge = true;
    case.wanted = Wanted::Pods(2);
    case.recall.memory.surge = Some(Surge { at: ago(minutes), evicted: false });
    case
}

fn ends(case: &Case) -> bool {
    let steps = case.decide().steps;
    steps.iter().any(|(step, _)| step.action == Action::EndSurge)
}

#[test]
fn a_second_replica_that_nobody_needs_any_more_is_taken_back() {
    let in_bounds = |minutes| {
        let mut case = surged(minutes);
        case.recommendation = Some(recommended(&["cpu 1, memory 100M"]));
        case
    };
    assert!(!ends(&in_bounds(59)));
    assert!(ends(&in_bounds(60)), "both pods are within bounds");
    let closed = |minutes| {
        let mut case = surged(minutes);
        case.settings.guards.windows = "0 0 31 2 * for 1h".parse().expect("a window");
        case
    };
    assert!(!ends(&closed(59)));
    assert!(ends(&closed(60)), "the window has closed");
    let mut off = surged(1);
    for mode in ["Off", "Initial"] {
        off.spec = spec(mode);
        assert!(ends(&off), "{mode}");
    }
}

#[test]
fn no_pod_goes_while_a_second_replica_is_taken_back() {
    let case = surged(60);
    let decision = case.decide();
    let words: Vec<&str> = decision.steps.iter().map(|(step, _)| step.action.word()).collect();
    assert_eq!(words, ["end_surge"]);
    assert_eq!(decision.harm, None, "it serves");
    assert_eq!(decision.recall.memory.surge, None);
    assert!(decision.verdicts.contains(&plimsoll_core::updater::Verdict::Skipped(Skip::Surging)));
    let mut later = case;
    later.recall = decision.recall;
    later.now = NOW.later(Duration::from_mins(1));
    later.pods.truncate(1);
    later.wanted = Wanted::Pods(1);
    let words: Vec<_> = later.decide().steps.iter().map(|(step, _)| step.action.word()).collect();
    assert_eq!(words, ["surge"], "it is needed still, and tried again");
}
