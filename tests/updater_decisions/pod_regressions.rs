//! How a pass reacts to the effects of earlier changes: pods that got worse stop updates, of one workload first and then of
//! all.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        Decision, DisruptionBudget, Phase, PodOutcome, Readiness, SkipReason, WorkloadState,
        guard::{
            Regression, disruption_budget::ANNOTATION as LEDGER,
            workload_state::ANNOTATION as MEMORY,
        },
        pod_status::{ContainerStatus, Termination},
    },
};
use strum::VariantNames as _;

use super::{NOW, PassCase, ago, pod, recommended, steps};

fn minutes_later(minutes: u64) -> Time {
    NOW.later(Duration::from_mins(minutes))
}

/// The first pod was just changed; the updater that changed it is gone, and another one has read its state.
fn case_after_first_change(mode: &str) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, mode, 4);
    let recall = case.decide().state;
    let target = &case.spec.target_ref;
    let memory = recall.workload.write(target).expect("fits");
    case.recall.workload = WorkloadState::read(&memory, target).expect("read");
    case.recall.budget =
        DisruptionBudget::read(&recall.budget.write().expect("fits")).expect("read");
    assert_eq!(case.recall, recall, "the state survives a round trip");
    case
}

/// Adds the replacement of the first pod.
fn replace_first_pod(case: &mut PassCase) {
    let mut new = pod(9, &["cpu 2, memory 200M"]);
    new.spec.annotations = Some([("vpaUpdates".into(), "sized".into())].into());
    new.status.created = minutes_later(0);
    new.status.started = Some(NOW);
    new.status.readiness = Readiness::Unready(NOW);
    case.pods[0] = new;
}

fn decide_after(case: &mut PassCase, minutes: u64) -> Decision {
    case.now = minutes_later(minutes);
    case.decide()
}

#[test]
fn the_other_pods_follow_after_the_first_pod_is_ready() {
    let mut case = case_after_first_change("Recreate");
    replace_first_pod(&mut case);
    let until = minutes_later(2);
    let waits = decide_after(&mut case, 1);
    assert_eq!(waits.pod_outcomes[1], PodOutcome::Skipped(SkipReason::Canary { until }));
    let waits = decide_after(&mut case, 5);
    assert_eq!(
        waits.pod_outcomes[1],
        PodOutcome::Skipped(SkipReason::Canary { until }),
        "it is not ready"
    );
    case.pods[0].status.readiness = Readiness::Ready(minutes_later(5));
    let goes_on = decide_after(&mut case, 6);
    assert_eq!(steps(&goes_on, "evict"), 2, "{:?}", goes_on.pod_outcomes);
    assert_eq!(goes_on.regression, None);
}

#[test]
fn a_first_pod_that_does_not_start_or_become_ready_stops_the_workload() {
    for (phase, harm) in
        [(Phase::Pending, Regression::Pending), (Phase::Running, Regression::Unready)]
    {
        let mut case = case_after_first_change("Recreate");
        replace_first_pod(&mut case);
        case.pods[0].status.phase = phase;
        assert_eq!(decide_after(&mut case, 9).regression, None);
        let stopped = decide_after(&mut case, 11);
        assert_eq!(stopped.regression, Some(harm));
        assert_eq!(steps(&stopped, "evict"), 0);
        let until = minutes_later(11 + 60);
        assert_eq!(stopped.pod_outcomes[1], PodOutcome::Skipped(SkipReason::BreakerOpen { until }));
        case.recall = stopped.state;
        let again = decide_after(&mut case, 12);
        assert_eq!(again.regression, None, "reported once");
        assert_eq!(again.pod_outcomes[1], PodOutcome::Skipped(SkipReason::BreakerOpen { until }));
    }
}

#[test]
fn an_evicted_pod_without_a_replacement_stops_the_workload() {
    let mut case = case_after_first_change("Recreate");
    case.pods.remove(0);
    case.wanted = plimsoll_core::updater::DesiredReplicas::Known(4);
    assert_eq!(decide_after(&mut case, 9).regression, None);
    assert_eq!(decide_after(&mut case, 11).regression, Some(Regression::Missing));
    case.wanted = plimsoll_core::updater::DesiredReplicas::Known(3);
    assert_eq!(decide_after(&mut case, 11).regression, None, "the pod is not desired any more");
    assert_eq!(steps(&decide_after(&mut case, 11), "evict"), 1, "it is not awaited either");
}

fn oom_killed(minutes: u64, restarts: u32) -> ContainerStatus {
    let finished = minutes_later(minutes);
    let started = finished.earlier(Duration::from_mins(1));
    ContainerStatus {
        name: "c1".into(),
        restarts,
        backing_off: false,
        last_termination: Some(Termination { out_of_memory: true, started, finished }),
    }
}

#[test]
fn a_resize_that_causes_an_oom_kill_stops_the_workload_and_that_pod_is_raised() {
    let mut case = PassCase::new(Compat::Plimsoll, "InPlaceOrRecreate", 4);
    case.recommendation = Some(recommended(&["cpu 1, memory 50M"]));
    let first = case.decide();
    assert_eq!(steps(&first, "resize"), 1);
    case.recall = first.state;
    case.pods[0].status.generation = Some(2);
    case.pods[0].spec.containers[0].spec = crate::sizing::resources("cpu 1, memory 50M");
    case.pods[0].status.containers = vec![oom_killed(3, 1)];
    let stopped = decide_after(&mut case, 4);
    assert_eq!(stopped.regression, Some(Regression::OutOfMemory));
    assert!(stopped.steps.is_empty());
    // Soon its recommendation rises.
    case.recall = stopped.state;
    case.recommendation = Some(recommended(&["cpu 1, memory 80M"]));
    let helped = decide_after(&mut case, 5);
    assert_eq!(helped.pod_outcomes[0], PodOutcome::Changed("resize"));
    assert_eq!(helped.steps.len(), 1, "{:?}", helped.pod_outcomes);
}

#[test]
fn pods_that_were_unhealthy_before_do_not_stop_the_workload() {
    let mut case = PassCase::new(Compat::Plimsoll, "InPlaceOrRecreate", 4);
    for pod in &mut case.pods {
        pod.status.containers = vec![ContainerStatus {
            restarts: 7,
            last_termination: Some(Termination {
                out_of_memory: true,
                started: ago(40),
                finished: ago(20),
            }),
            ..ContainerStatus::default()
        }];
    }
    case.recall = case.decide().state;
    case.pods[0].status.generation = Some(2);
    case.pods[0].spec.containers[0].spec = crate::sizing::resources("cpu 2, memory 200M");
    case.pods[0].status.containers = vec![oom_killed(3, 8)];
    let goes_on = decide_after(&mut case, 4);
    assert_eq!(goes_on.regression, None);
    assert!(steps(&goes_on, "resize") > 0, "{:?}", goes_on.pod_outcomes);
}

#[test]
fn regressions_of_several_workloads_stop_all_updates() {
    let mut ledger = DisruptionBudget::default();
    for number in 0..5 {
        let mut case = case_after_first_change("Recreate");
        case.namespace = format!("team-{number}");
        replace_first_pod(&mut case);
        case.recall.budget = ledger;
        ledger = decide_after(&mut case, 11).state.budget;
    }
    let mut healthy = PassCase::new(Compat::Plimsoll, "Recreate", 4);
    healthy.recall.budget = ledger;
    let stopped = decide_after(&mut healthy, 12);
    let until = minutes_later(11 + 60);
    assert_eq!(
        stopped.pod_outcomes[0],
        PodOutcome::Skipped(SkipReason::ClusterBreakerOpen { until })
    );
    assert_eq!(steps(&decide_after(&mut healthy, 72), "evict"), 1);
}

#[test]
fn persisted_annotations_have_distinct_keys() {
    assert_ne!(LEDGER, MEMORY);
    assert!(LEDGER.starts_with("plimsoll.dev/") && MEMORY.starts_with("plimsoll.dev/"));
}

#[test]
fn skip_reason_names_are_unique() {
    let mut names = SkipReason::VARIANTS.to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SkipReason::VARIANTS.len());
    for skip in [
        SkipReason::Mode,
        SkipReason::Canary { until: NOW },
        SkipReason::PassEnded,
        SkipReason::Failed,
    ] {
        assert!(
            SkipReason::VARIANTS.contains(&skip.into_str()) && !skip.to_string().is_empty(),
            "{skip:?}"
        );
    }
}
