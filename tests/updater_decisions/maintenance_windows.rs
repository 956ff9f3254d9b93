//! The cost of maintenance windows: they are evaluated once per workload, and a pass yields while it skips many pods.

use plimsoll_core::{
    types::compat::Compat,
    updater::{NextStep, SkipReason, UpdatePass, guard::WindowState},
};

use super::{NOW, PassCase};

#[test]
fn a_pass_yields_after_a_number_of_skipped_pods_and_finds_the_same_reasons() {
    let mut case = PassCase::new(Compat::Plimsoll, "Recreate", 100);
    case.settings.guards.maintenance_windows = "0 0 31 2 * for 1h".parse().expect("valid window");
    assert_eq!(
        case.settings.guards.maintenance_windows.state_at(NOW),
        WindowState::Closed { next: None }
    );
    let settings = case.settings.clone();
    let (pauses, verdicts) = case.with_subject(|subject, world| {
        let mut pass = UpdatePass::new(subject, world, &settings, case.recall.clone());
        let mut pauses = 0;
        while pass.next_within(16) == NextStep::More {
            pauses += 1;
        }
        (pauses, pass.finish().pod_outcomes)
    });
    assert_eq!(pauses, 6);
    assert_eq!(verdicts, case.decide().pod_outcomes);
    let skip = SkipReason::OutsideWindow { until: None };
    assert!(
        verdicts
            .iter()
            .all(|outcome| *outcome == plimsoll_core::updater::PodOutcome::Skipped(skip.clone()))
    );
}
