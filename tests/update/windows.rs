//! What change windows cost: they are evaluated once for a workload, and a long line of skipped pods pauses.

use plimsoll_core::{
    types::compat::Compat,
    updater::{Next, Pass, Skip, guard::WindowState},
};

use super::{Case, NOW};

#[test]
fn a_pass_pauses_after_so_many_skipped_pods_and_finds_the_same_reasons() {
    let mut case = Case::new(Compat::Plimsoll, "Recreate", 100);
    case.settings.guards.windows = "0 0 31 2 * for 1h".parse().expect("a window");
    assert_eq!(case.settings.guards.windows.at(NOW), WindowState::Closed { next: None });
    let settings = case.settings.clone();
    let (pauses, verdicts) = case.with(|subject, world| {
        let mut pass = Pass::begin(subject, world, &settings, case.recall.clone());
        let mut pauses = 0;
        while pass.next_within(16) == Next::More {
            pauses += 1;
        }
        (pauses, pass.end().verdicts)
    });
    assert_eq!(pauses, 6);
    assert_eq!(verdicts, case.decide().verdicts);
    let skip = Skip::OutsideWindow { until: None };
    assert!(
        verdicts.iter().all(|it| *it == plimsoll_core::updater::Verdict::Skipped(skip.clone()))
    );
}
