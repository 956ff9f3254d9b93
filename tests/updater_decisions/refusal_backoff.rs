//! Requests that are not sent: those the server just refused, and those that exceed a namespace's quota.

use std::time::Duration;

use plimsoll_core::{
    sizing::quota::Quota,
    types::compat::Compat,
    updater::{Decision, PodOutcome, SkipReason, StepResult, UpdatePass},
};

use super::PassCase;
use crate::sizing::list;

/// Runs a pass, each step of which has this result.
fn run_pass(case: &PassCase, outcome: StepResult) -> Decision {
    case.with_subject(|subject, world| {
        let mut pass = UpdatePass::new(subject, world, &case.settings, case.recall.clone());
        while pass.next().is_some() {
            pass.record_result(outcome);
        }
        pass.finish()
    })
}

/// Returns how many steps each of this many passes, a minute apart, tries.
fn attempts_per_pass(case: &mut PassCase, outcome: StepResult, passes: usize) -> Vec<usize> {
    let mut tries = Vec::new();
    for _ in 0..passes {
        let decision = run_pass(case, outcome);
        tries.push(decision.steps.len());
        case.recall = decision.state;
        case.now = case.now.later(Duration::from_mins(1));
    }
    tries
}

fn plimsoll_case(mode: &str, pods: usize) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, mode, pods);
    case.settings.guards.canary = None;
    case.settings.in_place = true;
    case
}

#[test]
fn a_pdb_that_blocks_evictions_is_retried_with_growing_intervals() {
    let mut case = plimsoll_case("Recreate", 6);
    let tried = attempts_per_pass(&mut case, StepResult::BlockedByBudget, 20);
    assert_eq!(&tried[..9], [1, 1, 1, 0, 1, 0, 0, 0, 1], "at growing intervals");
    assert_eq!(&tried[9..], [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0], "then every five minutes");
    let decision = run_pass(&case, StepResult::Done);
    let held = |verdict: &PodOutcome| *verdict == PodOutcome::Skipped(SkipReason::DisruptionBudget);
    assert!(decision.pod_outcomes.iter().all(held), "{:?}", decision.pod_outcomes);
    case.now = case.now.later(Duration::from_mins(5));
    assert_eq!(
        run_pass(&case, StepResult::Done).steps.len(),
        3,
        "once the PDB allows it, they are evicted"
    );
    let mut upstream = PassCase::new(Compat::Upstream, "Recreate", 6);
    assert_eq!(attempts_per_pass(&mut upstream, StepResult::BlockedByBudget, 3), [6; 3]);
}

#[test]
fn a_pod_that_cannot_be_changed_does_not_block_the_others() {
    let mut case = plimsoll_case("InPlace", 4);
    let first = run_pass(&case, StepResult::Failed);
    assert_eq!(first.steps.len(), 4, "each of them failed for itself");
    case.recall = first.state;
    case.pods.push(super::pod(9, &["cpu 1, memory 100M"]));
    let decision = run_pass(&case, StepResult::Done);
    let changed: Vec<_> = decision.steps.iter().map(|(step, _)| step.pod).collect();
    assert_eq!(changed, [4]);
    assert_eq!(decision.pod_outcomes[0], PodOutcome::Skipped(SkipReason::Failed));
    case.now = case.now.later(Duration::from_mins(1));
    let again = run_pass(&case, StepResult::Done).steps.len();
    assert_eq!(again, 3, "as many of the five as may be unavailable at once");
}

#[test]
fn a_change_that_was_not_made_only_records_the_attempt() {
    for outcome in [StepResult::BlockedByBudget, StepResult::Failed, StepResult::PersistFailed] {
        let case = plimsoll_case("Recreate", 6);
        let recall = run_pass(&case, outcome).state;
        assert_eq!(recall.workload, case.recall.workload, "{outcome:?}");
        assert_eq!(recall.budget, case.recall.budget, "{outcome:?}");
    }
}

#[test]
fn nothing_is_changed_beyond_the_resource_quota() {
    // Each of the pods requests 1 CPU and has a target of 2.
    let quota = |used: &str| Quota {
        name: "team".into(),
        hard: list("cpu 10"),
        used: list(used),
        scopes: Vec::new(),
    };
    for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
        let mut case = plimsoll_case(mode, 4);
        // A replacement pod needs quota in addition to the evicted one.
        case.quotas = vec![quota(if mode == "Recreate" { "cpu 8" } else { "cpu 9" })];
        assert_eq!(case.skip_reasons(), None, "{mode}: the quota fits one more");
        case.quotas = vec![quota("cpu 9500m")];
        match case.skip_reasons() {
            Some(SkipReason::QuotaExceeded(why)) => {
                assert!(why.contains("ResourceQuota team"), "{why}");
            }
            other => panic!("{mode}: {other:?}"),
        }
        case.recommendation = Some(super::recommended(&["cpu 500m, memory 100M"]));
        assert_eq!(case.skip_reasons(), None, "{mode}: a smaller pod is never blocked");
    }
}
