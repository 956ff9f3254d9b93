//! Golden vectors 234 to 243, and Plimsoll's behaviour in whole passes: refusals, dead pods, guards, boosts, surges.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::{
    types::compat::Compat,
    updater::{
        Action, DesiredReplicas, GuardSettings, PersistedState, Phase, PodOutcome, Readiness,
        Settings, SkipReason, StepResult, UpdatePass,
        guard::{
            ChangeKind, PodChange, RecommenderHeartbeat, WorkloadState,
            workload_state::ExternalOverwrite,
        },
        pod_status::ResizeCondition,
    },
};
use serde_json::json;

use super::{NOW, PassCase, ago, pod, recommended, steps};
use crate::sizing::resources;

/// Returns a case with as much eviction tolerance as the stubs of upstream's tests.
fn case_with_full_tolerance(mode: &str) -> PassCase {
    let mut case = PassCase::new(Compat::Upstream, mode, 5);
    case.settings.eviction_tolerance = 1.0;
    case
}

#[test]
fn each_update_mode_evicts_resizes_or_does_nothing() {
    for (mode, resizes, evictions) in [
        ("Auto", 0, 5),
        ("Recreate", 0, 5),
        ("Initial", 0, 0),
        ("Off", 0, 0),
        ("InPlaceOrRecreate", 5, 0),
        ("InPlace", 0, 0),
    ] {
        let decision = case_with_full_tolerance(mode).decide();
        let found = (steps(&decision, "resize"), steps(&decision, "evict"));
        assert_eq!(found, (resizes, evictions), "{mode}: {decision:?}");
    }
    let mut case = case_with_full_tolerance("InPlace");
    case.settings.in_place = true;
    assert_eq!(steps(&case.decide(), "resize"), 5, "behind its gate");
    let mut case = case_with_full_tolerance("Recreate");
    case.is_admission_ready = false;
    assert_eq!(steps(&case.decide(), "evict"), 0, "row 242");
}

#[test]
fn pods_with_a_pending_resize_are_evicted_or_awaited_and_not_resized() {
    let with = |reason: &str| {
        let mut case = case_with_full_tolerance("InPlaceOrRecreate");
        for pod in &mut case.pods {
            pod.status.resize_pending =
                Some(ResizeCondition { reason: reason.into(), ..ResizeCondition::default() });
        }
        let decision = case.decide();
        (steps(&decision, "resize"), steps(&decision, "evict"))
    };
    assert_eq!(with("Infeasible"), (0, 5), "row 237");
    assert_eq!(with("Deferred"), (0, 0), "row 238");
}

/// Runs a pass in which each step of this type has this result.
fn run_pass(case: &PassCase, word: &str, outcome: StepResult) -> plimsoll_core::updater::Decision {
    case.with_subject(|subject, world| {
        let mut pass = UpdatePass::new(subject, world, &case.settings, case.recall.clone());
        while let Some(step) = pass.next() {
            let is_it = step.action.into_str() == word;
            pass.record_result(if is_it { outcome } else { StepResult::Done });
        }
        pass.finish()
    })
}

#[test]
fn a_failed_resize_becomes_an_eviction_if_the_mode_allows_it() {
    let decision =
        run_pass(&case_with_full_tolerance("InPlaceOrRecreate"), "resize", StepResult::Failed);
    assert_eq!((steps(&decision, "resize"), steps(&decision, "evict")), (5, 5), "row 239");
    let mut case = case_with_full_tolerance("InPlace");
    case.settings.in_place = true;
    let decision = run_pass(&case, "resize", StepResult::InsufficientCapacity);
    assert_eq!((steps(&decision, "resize"), steps(&decision, "evict")), (5, 0));
    case.recall = decision.state;
    assert_eq!(steps(&case.decide(), "resize"), 0, "persisted");
}

/// Row 240 as of 1.8.1: the pass skips boosted pods; the boost removal handles them.
#[test]
fn boosted_pods_are_skipped_until_their_boost_ends() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        for mode in ["InPlaceOrRecreate", "Recreate", "Auto", "Off"] {
            let mut case = PassCase::new(compat, mode, 5);
            case.settings.startup_boost = true;
            case.spec.startup_boost = serde_json::from_value(json!({
                "cpu": {"type": "Factor", "factor": 2, "durationSeconds": 60}
            }))
            .expect("a boost");
            for pod in &mut case.pods {
                let before = r#"{"requests":{"cpu":"1"},"limits":{}}"#;
                pod.spec.annotations =
                    Some([("vpaCpuStartupBoost/c1".into(), before.into())].into());
            }
            let decision = case.decide();
            assert_eq!(steps(&decision, "unboost"), 5, "{compat:?} {mode}");
            assert_eq!(decision.steps.len(), 5, "{compat:?} {mode}: nothing else");
            for pod in &mut case.pods {
                let since = NOW.earlier(Duration::from_mins(1));
                pod.status.readiness = Readiness::Ready(since);
                pod.spec.ready_since = Some(since);
            }
            let decision = case.decide();
            assert_eq!(decision.steps.len(), 0, "{compat:?} {mode}: the boost has not ended");
        }
    }
}

/// Returns a case in Plimsoll's mode, without the guards that take time.
fn plimsoll_case(mode: &str, pods: usize) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, mode, pods);
    case.settings.guards.canary = None;
    case
}

/// Requests that follow a plan are resized in place whenever they are outside of its bounds, within the guards. An eviction
/// does not change them either if they are within.
#[test]
fn planned_requests_are_followed_in_place_within_the_guards() {
    for mode in ["InPlaceOrRecreate", "Recreate"] {
        let mut case = plimsoll_case(mode, 1);
        case.settings.min_replicas = 1;
        case.settings.in_place = true;
        // Twice the target is far from it and the pod is a day old, but the bounds allow it.
        case.recommendation = Some(recommended(&["cpu 500m;cpu 400m;cpu 1"]));
        case.is_planned = true;
        assert_eq!(case.skip_reasons(), Some(SkipReason::WithinPlan), "{mode}");
        case.is_planned = false;
        assert_eq!(case.skip_reasons(), None, "{mode}: the age and the difference suffice");
    }
    let mut case = plimsoll_case("InPlaceOrRecreate", 1);
    case.settings.min_replicas = 1;
    case.is_planned = true;
    case.settings.guards.external_overwrite_pause = None;
    // A step of 3 % each hour: the pod was resized an hour ago.
    let mut request = 1000;
    for hour in 0..6_u32 {
        request += 30;
        let text = format!("cpu {request}m;cpu {}m;cpu 4", request - 20);
        case.recommendation = Some(recommended(&[&text]));
        let decision = case.decide();
        assert_eq!(steps(&decision, "resize"), 1, "hour {hour}: {:?}", decision.pod_outcomes);
        case.recall = decision.state;
        case.pods[0].spec.containers[0].spec = resources(&format!("cpu {request}m, memory 100M"));
        case.pods[0].status.generation = Some(2 + i64::from(hour));
        // Once more at once: the guards hold it back.
        let text = format!("cpu {}m;cpu {}m;cpu 4", request + 30, request + 10);
        case.recommendation = Some(recommended(&[&text]));
        case.now = case.now.later(Duration::from_mins(5));
        assert!(
            matches!(case.skip_reasons(), Some(SkipReason::CoolDown { .. })),
            "hour {hour}: {:?}",
            case.skip_reasons()
        );
        case.now = case.now.later(Duration::from_mins(55));
    }
}

#[test]
fn one_pod_is_changed_first() {
    let mut case = PassCase::new(Compat::Plimsoll, "Recreate", 10);
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 1, "{:?}", decision.pod_outcomes);
    assert_eq!(decision.candidates, 10);
    let until = NOW.later(Duration::from_mins(2));
    assert!(decision.pod_outcomes.contains(&PodOutcome::Skipped(SkipReason::Canary { until })));
    case.settings.guards.canary = None;
    assert_eq!(steps(&case.decide(), "evict"), 5, "as many as the tolerance says");
}

#[test]
fn nothing_is_changed_with_stale_recommendations() {
    for (heartbeat, why) in [
        (RecommenderHeartbeat::Stale, Some(SkipReason::RecommendationsStale)),
        (RecommenderHeartbeat::Unknown, Some(SkipReason::HeartbeatUnknown)),
        (RecommenderHeartbeat::Fresh { history_loaded: false }, Some(SkipReason::HistoryNotLoaded)),
        (RecommenderHeartbeat::Absent, None),
    ] {
        for mode in ["Recreate", "InPlaceOrRecreate"] {
            let mut case = plimsoll_case(mode, 4);
            case.heartbeat = heartbeat;
            assert_eq!(case.skip_reasons(), why, "{mode} {heartbeat:?}");
        }
    }
}

#[test]
fn without_an_admission_controller_pods_are_resized_but_not_evicted() {
    let mut case = plimsoll_case("Recreate", 4);
    case.is_admission_ready = false;
    assert_eq!(case.skip_reasons(), Some(SkipReason::AdmissionUnready));
    case.spec = super::spec("InPlaceOrRecreate");
    assert_eq!(case.skip_reasons(), None);
}

#[test]
fn an_unready_pod_does_not_block_a_rollout_and_a_starting_pod_is_awaited() {
    let mut case = plimsoll_case("Recreate", 4);
    case.pods[0].status.readiness = Readiness::Unready(ago(60));
    case.pods[1].status.readiness = Readiness::Unready(ago(60));
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 2, "only those that are not ready");
    assert_eq!(decision.pod_outcomes[0], PodOutcome::Changed("evict"));
    assert_eq!(
        decision.pod_outcomes[2],
        PodOutcome::Skipped(SkipReason::Budget { alive: 2, wanted: 4 })
    );
    case.pods[0].status.readiness = Readiness::Unready(ago(1));
    assert_eq!(case.skip_reasons(), Some(SkipReason::Budget { alive: 2, wanted: 4 }));
    case.pods[1].status.readiness = Readiness::Ready(ago(1));
    assert_eq!(case.skip_reasons(), Some(SkipReason::Starting));
}

#[test]
fn a_pdb_rejection_stops_a_group_and_costs_no_budget() {
    let case = plimsoll_case("Recreate", 10);
    let decision = run_pass(&case, "evict", StepResult::BlockedByBudget);
    assert_eq!(decision.steps.len(), 1);
    assert!(
        decision
            .pod_outcomes
            .iter()
            .all(|verdict| *verdict == PodOutcome::Skipped(SkipReason::DisruptionBudget))
    );
    let PersistedState { workload: memory, budget: ledger, .. } = &decision.state;
    assert_eq!(
        (memory, ledger),
        (&case.recall.workload, &case.recall.budget),
        "nothing is recorded"
    );
    let mut upstream = case_with_full_tolerance("Recreate");
    upstream.recall = case.recall;
    assert_eq!(run_pass(&upstream, "evict", StepResult::BlockedByBudget).steps.len(), 5);
}

#[test]
fn a_change_with_an_unknown_outcome_stays_charged() {
    let case = plimsoll_case("Recreate", 4);
    let of = |outcome| steps(&run_pass(&case, "evict", outcome), "evict");
    assert_eq!(
        (of(StepResult::Failed), of(StepResult::Indeterminate)),
        (4, 2),
        "half of them may be down"
    );
    let decision =
        run_pass(&plimsoll_case("InPlaceOrRecreate", 4), "resize", StepResult::Indeterminate);
    assert_eq!(steps(&decision, "evict"), 0, "a pod that may have been resized is not evicted");
}

#[test]
fn nothing_is_changed_if_the_intent_cannot_be_persisted() {
    let case = plimsoll_case("InPlaceOrRecreate", 4);
    let decision = run_pass(&case, "resize", StepResult::PersistFailed);
    assert_eq!(steps(&decision, "evict"), 0, "nor is it evicted instead");
    assert_eq!(decision.pod_outcomes[0], PodOutcome::Skipped(SkipReason::PersistFailed));
    case.with_subject(|subject, world| {
        let mut pass = UpdatePass::new(subject, world, &case.settings, case.recall.clone());
        let step = pass.next().expect("has a step");
        assert!(step.needs_persisting);
        let touch =
            pass.state().workload.pod_change("uid-0").cloned().expect("exists in the input");
        assert_eq!((touch.at, touch.what), (NOW, ChangeKind::Resized));
    });
}

#[test]
fn hourly_budgets_end_a_pass() {
    let mut case = plimsoll_case("Recreate", 200);
    case.settings.eviction_tolerance = 1.0;
    case.settings.guards.max_unproven_evictions = None;
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 40, "a fifth of the namespace");
    assert!(decision.pod_outcomes.contains(&PodOutcome::Skipped(SkipReason::NamespaceBudget)));
    case.settings.guards.max_unproven_evictions = Some(10);
    assert_eq!(steps(&case.decide(), "evict"), 10, "none is known to have helped since");
    case.recall = PersistedState::default();
    assert_eq!(steps(&case.decide(), "evict"), 1, "none is known to have helped, ever");
}

#[test]
fn maintenance_windows_block_changes() {
    let mut case = plimsoll_case("Recreate", 4);
    case.settings.guards.maintenance_windows = "0 3 * * * for 1h".parse().expect("valid window");
    let until = case.settings.guards.maintenance_windows.next_opening(NOW);
    assert_eq!(case.skip_reasons(), Some(SkipReason::OutsideWindow { until }));
    case.now = until.expect("the window opens");
    assert_eq!(case.skip_reasons(), None);
}

#[test]
fn a_server_without_resize_support_gets_evictions_or_nothing() {
    let mut case = plimsoll_case("InPlaceOrRecreate", 4);
    case.can_resize = false;
    assert_eq!(case.decide().steps[0].0.action.into_str(), "evict");
    case.spec = super::spec("InPlace");
    case.settings.in_place = true;
    assert_eq!(case.skip_reasons(), Some(SkipReason::NoResize));
}

#[test]
fn values_overwritten_by_another_writer_stop_changes_until_the_vpa_changes() {
    let mut case = plimsoll_case("InPlaceOrRecreate", 4);
    case.recall = case.decide().state;
    for pod in &mut case.pods {
        pod.status.generation = Some(2);
    }
    case.now = NOW.later(Duration::from_mins(1));
    let decision = case.decide();
    assert!(
        decision.externally_overwritten,
        "the spec is as it was, and newer than what was written"
    );
    assert_eq!(decision.pod_outcomes[3], PodOutcome::Skipped(SkipReason::ExternallyOverwritten));
    case.recall = decision.state;
    assert!(!case.decide().externally_overwritten, "reported once");
    assert_eq!(
        case.decide().pod_outcomes[3],
        PodOutcome::Skipped(SkipReason::ExternallyOverwritten)
    );
    case.recall.workload.rewritten = Some(ExternalOverwrite { at: NOW, generation: Some(0) });
    assert_ne!(
        case.decide().pod_outcomes[3],
        PodOutcome::Skipped(SkipReason::ExternallyOverwritten),
        "it is another VPA"
    );
}

#[test]
fn a_completed_resize_is_not_an_external_overwrite() {
    let mut case = plimsoll_case("InPlaceOrRecreate", 4);
    let decision = case.decide();
    for (step, _) in &decision.steps {
        let Action::Resize { sized_containers: sizes, .. } = &step.action else {
            panic!("{step:?}")
        };
        let pod = &mut case.pods[step.pod];
        pod.status.generation = Some(2);
        for (container, size) in pod.spec.containers.iter_mut().zip(sizes) {
            container.spec = size.apply_to(&container.spec);
        }
    }
    case.recall = decision.state;
    case.now = NOW.later(Duration::from_mins(1));
    let decision = case.decide();
    assert!(!decision.externally_overwritten);
    assert!(matches!(decision.pod_outcomes[0], PodOutcome::Skipped(SkipReason::NearTarget { .. })));
}

#[test]
fn a_pod_with_an_earlier_recommendation_is_not_an_external_overwrite() {
    let one_at_a_time = || {
        let mut case = plimsoll_case("Recreate", 4);
        case.settings.eviction_tolerance = 0.25;
        case
    };
    let mut case = one_at_a_time();
    // Admission gives each replacement pod the recommendation of that moment.
    let replace = |case: &mut PassCase, minutes: u64, request: &str| {
        case.now = NOW.later(Duration::from_mins(minutes));
        let decision = case.decide();
        assert_eq!(steps(&decision, "evict"), 1, "{minutes}: {:?}", decision.pod_outcomes);
        let place = decision.steps[0].0.pod;
        case.recall = decision.state;
        let mut new = pod(10 + place, &[request]);
        new.spec.annotations = Some(BTreeMap::from([("vpaUpdates".into(), "c1".into())]));
        let created = case.now.later(Duration::from_secs(1));
        new.status.created = created;
        new.status.readiness = Readiness::Ready(created);
        new.spec.ready_since = Some(created);
        case.pods[place] = new;
        decision.externally_overwritten
    };
    assert!(!replace(&mut case, 0, "cpu 2, memory 200M"));
    case.recommendation = Some(recommended(&["cpu 4, memory 400M"]));
    assert!(!replace(&mut case, 5, "cpu 4, memory 400M"));
    case.now = NOW.later(Duration::from_mins(10));
    let decision = case.decide();
    assert!(
        !decision.externally_overwritten,
        "the first one has what was recommended when it was made"
    );
    // In a rollout with a constant recommendation, requests written by something else are detected.
    let mut case = one_at_a_time();
    assert!(!replace(&mut case, 0, "cpu 2, memory 200M"));
    assert!(!replace(&mut case, 5, "cpu 8, memory 800M"));
    case.now = NOW.later(Duration::from_mins(10));
    assert!(case.decide().externally_overwritten);
}

#[test]
fn an_evicted_pod_in_a_stale_cache_is_not_evicted_again_and_not_available() {
    let mut case = plimsoll_case("Recreate", 4);
    let touch = |number: usize, at| PodChange {
        uid: format!("uid-{number}").into(),
        at,
        what: ChangeKind::Evicted,
        wrote: None,
        generation: None,
        restarts: 0,
    };
    case.recall.workload = WorkloadState {
        touches: vec![touch(0, ago(1)), touch(1, ago(1))],
        ..WorkloadState::default()
    };
    let decision = case.decide();
    assert_eq!(decision.pod_outcomes[0], PodOutcome::Skipped(SkipReason::Terminating));
    assert_eq!(
        decision.pod_outcomes[2],
        PodOutcome::Skipped(SkipReason::Budget { alive: 2, wanted: 4 })
    );
    case.recall.workload.touches = vec![touch(0, ago(11)), touch(1, ago(11))];
    assert_eq!(case.skip_reasons(), None, "that eviction was never made");
}

#[test]
fn a_single_replica_gets_a_second_one_before_its_eviction() {
    let mut case = plimsoll_case("Recreate", 1);
    assert_eq!(case.skip_reasons(), Some(SkipReason::BelowMinReplicas { live: 1 }));
    case.settings.guards = GuardSettings { surge: true, ..case.settings.guards };
    let decision = case.decide();
    assert_eq!(decision.steps.len(), 1);
    assert_eq!(decision.steps[0].0.action, Action::Surge);
    assert_eq!(decision.pod_outcomes[0], PodOutcome::Skipped(SkipReason::Surging));
    // The second pod starts.
    case.recall = decision.state;
    case.wanted = DesiredReplicas::Known(2);
    let mut second = super::pod(1, &["cpu 2, memory 200M"]);
    second.status.created = NOW;
    second.status.readiness = Readiness::Unready(NOW);
    case.pods.push(second);
    case.now = NOW.later(Duration::from_mins(1));
    assert_eq!(case.skip_reasons(), Some(SkipReason::Surging));
    case.pods[1].status.readiness = Readiness::Ready(case.now);
    let mut late = case.clone();
    late.pods[1].status.readiness = Readiness::Unready(NOW);
    late.now = NOW.later(Duration::from_mins(15));
    let given_up = late.decide();
    assert_eq!(given_up.steps[0].0.action, Action::EndSurge);
    assert_eq!(given_up.regression, Some(plimsoll_core::updater::guard::Regression::Unready));
    assert_eq!(given_up.state.workload.surge, None);
    late.pods.clear();
    assert!(late.decide().steps.is_empty(), "there is no pod to size");
    let actions: Vec<&str> =
        case.decide().steps.iter().map(|(step, _)| step.action.into_str()).collect();
    assert_eq!(actions, ["evict", "end_surge"]);
}

#[test]
fn passes_without_pods_or_with_unowned_pods_do_not_panic() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        for mode in ["Off", "Recreate", "InPlace", "InPlaceOrRecreate"] {
            let mut case = PassCase::new(compat, mode, 0);
            assert!(case.decide().steps.is_empty());
            case = PassCase::new(compat, mode, 2);
            case.pods[0].status.owner = None;
            case.pods[1].status.phase = Phase::Pending;
            case.recommendation = Some(recommended(&[]));
            assert!(case.decide().steps.is_empty(), "{compat:?} {mode}");
            case.recommendation = None;
            assert!(case.decide().steps.is_empty(), "{compat:?} {mode}");
        }
    }
    assert_eq!(Settings::default(), Settings::for_compat(Compat::Plimsoll));
}
