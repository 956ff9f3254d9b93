//! Surge for single-replica workloads: the second replica is removed, whatever happens to the first.

use std::time::Duration;

use plimsoll_core::{
    types::compat::Compat,
    updater::{Action, DesiredReplicas, SkipReason, guard::workload_state::Surge},
};

use super::{NOW, PassCase, ago, recommended, spec};

/// Both replicas are ready, and neither has been removed.
fn case_with_surge(minutes: u64) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, "Recreate", 2);
    case.settings.guards.surge = true;
    case.wanted = DesiredReplicas::Known(2);
    case.recall.workload.surge = Some(Surge { at: ago(minutes), evicted: false });
    case
}

fn ends_surge(case: &PassCase) -> bool {
    let steps = case.decide().steps;
    steps.iter().any(|(step, _)| step.action == Action::EndSurge)
}

#[test]
fn a_second_replica_that_is_not_needed_any_more_is_removed() {
    let in_bounds = |minutes| {
        let mut case = case_with_surge(minutes);
        case.recommendation = Some(recommended(&["cpu 1, memory 100M"]));
        case
    };
    assert!(!ends_surge(&in_bounds(59)));
    assert!(ends_surge(&in_bounds(60)), "both pods are within bounds");
    let closed = |minutes| {
        let mut case = case_with_surge(minutes);
        case.settings.guards.maintenance_windows =
            "0 0 31 2 * for 1h".parse().expect("valid window");
        case
    };
    assert!(!ends_surge(&closed(59)));
    assert!(ends_surge(&closed(60)), "the window has closed");
    let mut off = case_with_surge(1);
    for mode in ["Off", "Initial"] {
        off.spec = spec(mode);
        assert!(ends_surge(&off), "{mode}");
    }
}

#[test]
fn no_pod_is_evicted_while_a_second_replica_is_removed() {
    let case = case_with_surge(60);
    let decision = case.decide();
    let actions: Vec<&str> =
        decision.steps.iter().map(|(step, _)| step.action.into_str()).collect();
    assert_eq!(actions, ["end_surge"]);
    assert_eq!(decision.regression, None, "it is ready");
    assert_eq!(decision.state.workload.surge, None);
    assert!(
        decision
            .pod_outcomes
            .contains(&plimsoll_core::updater::PodOutcome::Skipped(SkipReason::Surging))
    );
    let mut later = case;
    later.recall = decision.state;
    later.now = NOW.later(Duration::from_mins(1));
    later.pods.truncate(1);
    later.wanted = DesiredReplicas::Known(1);
    let actions: Vec<_> =
        later.decide().steps.iter().map(|(step, _)| step.action.into_str()).collect();
    assert_eq!(actions, ["surge"], "it is needed still, and tried again");
}
