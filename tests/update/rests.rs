//! What is not asked for: what the server refused a moment ago, and what a namespace has no room for.

use std::time::Duration;

use plimsoll_core::{
    sizing::quota::Quota,
    types::compat::Compat,
    updater::{Decision, Outcome, Pass, Skip, Verdict},
};

use super::Case;
use crate::fit::list;

/// One pass, each step of which comes out like this.
fn play(case: &Case, outcome: Outcome) -> Decision {
    case.with(|subject, world| {
        let mut pass = Pass::begin(subject, world, &case.settings, case.recall.clone());
        while pass.next().is_some() {
            pass.note(outcome);
        }
        pass.end()
    })
}

/// How many steps each of so many passes a minute apart tries.
fn tries(case: &mut Case, outcome: Outcome, passes: usize) -> Vec<usize> {
    let mut tries = Vec::new();
    for _ in 0..passes {
        let decision = play(case, outcome);
        tries.push(decision.steps.len());
        case.recall = decision.recall;
        case.now = case.now.later(Duration::from_mins(1));
    }
    tries
}

fn ours(mode: &str, pods: usize) -> Case {
    let mut case = Case::new(Compat::Plimsoll, mode, pods);
    case.settings.guards.canary = None;
    case.settings.in_place = true;
    case
}

#[test]
fn a_budget_that_lets_no_pod_go_is_asked_more_and_more_seldom() {
    let mut case = ours("Recreate", 6);
    let tried = tries(&mut case, Outcome::Disallowed, 20);
    assert_eq!(&tried[..9], [1, 1, 1, 0, 1, 0, 0, 0, 1], "more and more seldom");
    assert_eq!(&tried[9..], [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0], "then every five minutes");
    let decision = play(&case, Outcome::Done);
    let held = |verdict: &Verdict| *verdict == Verdict::Skipped(Skip::DisruptionBudget);
    assert!(decision.verdicts.iter().all(held), "{:?}", decision.verdicts);
    case.now = case.now.later(Duration::from_mins(5));
    assert_eq!(play(&case, Outcome::Done).steps.len(), 3, "once it does, they go");
    let mut upstream = Case::new(Compat::Upstream, "Recreate", 6);
    assert_eq!(tries(&mut upstream, Outcome::Disallowed, 3), [6; 3]);
}

#[test]
fn a_pod_that_cannot_be_changed_does_not_hold_the_others_up() {
    let mut case = ours("InPlace", 4);
    let first = play(&case, Outcome::Failed);
    assert_eq!(first.steps.len(), 4, "each of them failed for itself");
    case.recall = first.recall;
    case.pods.push(super::pod(9, &["cpu 1, memory 100M"]));
    let decision = play(&case, Outcome::Done);
    let changed: Vec<_> = decision.steps.iter().map(|(step, _)| step.pod).collect();
    assert_eq!(changed, [4]);
    assert_eq!(decision.verdicts[0], Verdict::Skipped(Skip::Failed));
    case.now = case.now.later(Duration::from_mins(1));
    let again = play(&case, Outcome::Done).steps.len();
    assert_eq!(again, 3, "as many of the five as may be down at once");
}

#[test]
fn what_was_not_done_leaves_nothing_behind_but_that_it_was_tried() {
    for outcome in [Outcome::Disallowed, Outcome::Failed, Outcome::NotBooked] {
        let case = ours("Recreate", 6);
        let recall = play(&case, outcome).recall;
        assert_eq!(recall.memory, case.recall.memory, "{outcome:?}");
        assert_eq!(recall.ledger, case.recall.ledger, "{outcome:?}");
    }
}

#[test]
fn nothing_is_changed_for_what_the_namespace_has_no_room_for() {
    // Each of the pods asks for 1 CPU and should have 2.
    let quota = |used: &str| Quota {
        name: "team".into(),
        hard: list("cpu 10"),
        used: list(used),
        scopes: Vec::new(),
    };
    for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
        let mut case = ours(mode, 4);
        // A pod that takes the place of another one needs room beside it.
        case.quotas = vec![quota(if mode == "Recreate" { "cpu 8" } else { "cpu 9" })];
        assert_eq!(case.why(), None, "{mode}: there is room for one more");
        case.quotas = vec![quota("cpu 9500m")];
        match case.why() {
            Some(Skip::QuotaExceeded(why)) => assert!(why.contains("ResourceQuota team"), "{why}"),
            other => panic!("{mode}: {other:?}"),
        }
        case.recommendation = Some(super::recommended(&["cpu 500m, memory 100M"]));
        assert_eq!(case.why(), None, "{mode}: what shrinks is never held back");
    }
}
