//! Golden vectors 234 to 243, and what ours does in whole passes: refusals, dead pods, guards, boosts, surges.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::{
    types::compat::Compat,
    updater::{
        Action, GuardSettings, Outcome, Pass, Phase, Readiness, Recall, Settings, Skip, Verdict,
        Wanted,
        guard::{Heartbeat, Memory, Touch, Touched, memory::Rewritten},
        life::ResizeCondition,
    },
};
use serde_json::json;

use super::{Case, NOW, ago, pod, recommended, steps};

/// With as much tolerance as the stubs of upstream's tests.
fn tolerant(mode: &str) -> Case {
    let mut case = Case::new(Compat::Upstream, mode, 5);
    case.settings.eviction_tolerance = 1.0;
    case
}

#[test]
fn each_mode_evicts_or_resizes_or_leaves_alone() {
    for (mode, resizes, evictions) in [
        ("Auto", 0, 5),
        ("Recreate", 0, 5),
        ("Initial", 0, 0),
        ("Off", 0, 0),
        ("InPlaceOrRecreate", 5, 0),
        ("InPlace", 0, 0),
    ] {
        let decision = tolerant(mode).decide();
        let found = (steps(&decision, "resize"), steps(&decision, "evict"));
        assert_eq!(found, (resizes, evictions), "{mode}: {decision:?}");
    }
    let mut case = tolerant("InPlace");
    case.settings.in_place = true;
    assert_eq!(steps(&case.decide(), "resize"), 5, "behind its gate");
    let mut case = tolerant("Recreate");
    case.is_admission_ready = false;
    assert_eq!(steps(&case.decide(), "evict"), 0, "row 242");
}

#[test]
fn what_must_be_evicted_or_waited_for_is_not_resized() {
    let with = |reason: &str| {
        let mut case = tolerant("InPlaceOrRecreate");
        for pod in &mut case.pods {
            pod.life.resize_pending =
                Some(ResizeCondition { reason: reason.into(), ..ResizeCondition::default() });
        }
        let decision = case.decide();
        (steps(&decision, "resize"), steps(&decision, "evict"))
    };
    assert_eq!(with("Infeasible"), (0, 5), "row 237");
    assert_eq!(with("Deferred"), (0, 0), "row 238");
}

/// Makes a pass in which each step of a word comes to this.
fn play(case: &Case, word: &str, outcome: Outcome) -> plimsoll_core::updater::Decision {
    case.with(|subject, world| {
        let mut pass = Pass::begin(subject, world, &case.settings, case.recall.clone());
        while let Some(step) = pass.next() {
            let is_it = step.action.word() == word;
            pass.note(if is_it { outcome } else { Outcome::Done });
        }
        pass.end()
    })
}

#[test]
fn a_resize_that_fails_becomes_an_eviction_where_the_mode_allows_it() {
    let decision = play(&tolerant("InPlaceOrRecreate"), "resize", Outcome::Failed);
    assert_eq!((steps(&decision, "resize"), steps(&decision, "evict")), (5, 5), "row 239");
    let mut case = tolerant("InPlace");
    case.settings.in_place = true;
    let decision = play(&case, "resize", Outcome::NoCapacity);
    assert_eq!((steps(&decision, "resize"), steps(&decision, "evict")), (5, 0));
    case.recall = decision.recall;
    assert_eq!(steps(&case.decide(), "resize"), 0, "it is remembered");
}

/// Row 240 as it is in 1.8.1: the loop leaves boosted pods to those who end boosts.
#[test]
fn boosted_pods_are_left_out_until_their_boost_is_over() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        for mode in ["InPlaceOrRecreate", "Recreate", "Auto", "Off"] {
            let mut case = Case::new(compat, mode, 5);
            case.settings.startup_boost = true;
            case.spec.startup_boost = serde_json::from_value(json!({
                "cpu": {"type": "Factor", "factor": 2, "durationSeconds": 60}
            }))
            .expect("a boost");
            for pod in &mut case.pods {
                let before = r#"{"requests":{"cpu":"1"},"limits":{}}"#;
                pod.size.annotations =
                    Some([("vpaCpuStartupBoost/c1".into(), before.into())].into());
            }
            let decision = case.decide();
            assert_eq!(steps(&decision, "unboost"), 5, "{compat:?} {mode}");
            assert_eq!(decision.steps.len(), 5, "{compat:?} {mode}: nothing else");
            for pod in &mut case.pods {
                let since = NOW.earlier(Duration::from_mins(1));
                pod.life.readiness = Readiness::Ready(since);
                pod.size.ready_since = Some(since);
            }
            let decision = case.decide();
            assert_eq!(decision.steps.len(), 0, "{compat:?} {mode}: not over yet");
        }
    }
}

/// A case of ours, without the guards that take their time.
fn ours(mode: &str, pods: usize) -> Case {
    let mut case = Case::new(Compat::Plimsoll, mode, pods);
    case.settings.guards.canary = None;
    case
}

#[test]
fn one_pod_goes_first() {
    let mut case = Case::new(Compat::Plimsoll, "Recreate", 10);
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 1, "{:?}", decision.verdicts);
    assert_eq!(decision.candidates, 10);
    let until = NOW.later(Duration::from_mins(2));
    assert!(decision.verdicts.contains(&Verdict::Skipped(Skip::Canary { until })));
    case.settings.guards.canary = None;
    assert_eq!(steps(&case.decide(), "evict"), 5, "as many as the tolerance says");
}

#[test]
fn nothing_is_changed_on_numbers_that_are_not_fresh() {
    for (heartbeat, why) in [
        (Heartbeat::Stale, Some(Skip::RecommendationsStale)),
        (Heartbeat::Unknown, Some(Skip::HeartbeatUnknown)),
        (Heartbeat::Fresh { history_loaded: false }, Some(Skip::HistoryNotLoaded)),
        (Heartbeat::Absent, None),
    ] {
        for mode in ["Recreate", "InPlaceOrRecreate"] {
            let mut case = ours(mode, 4);
            case.heartbeat = heartbeat;
            assert_eq!(case.why(), why, "{mode} {heartbeat:?}");
        }
    }
}

#[test]
fn without_an_admission_controller_pods_are_resized_but_not_evicted() {
    let mut case = ours("Recreate", 4);
    case.is_admission_ready = false;
    assert_eq!(case.why(), Some(Skip::AdmissionUnready));
    case.spec = super::spec("InPlaceOrRecreate");
    assert_eq!(case.why(), None);
}

#[test]
fn a_dead_pod_does_not_hold_a_rollout_and_a_starting_one_is_let_start() {
    let mut case = ours("Recreate", 4);
    case.pods[0].life.readiness = Readiness::Unready(ago(60));
    case.pods[1].life.readiness = Readiness::Unready(ago(60));
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 2, "only those that do not serve");
    assert_eq!(decision.verdicts[0], Verdict::Changed("evict"));
    assert_eq!(decision.verdicts[2], Verdict::Skipped(Skip::Budget { alive: 2, wanted: 4 }));
    case.pods[0].life.readiness = Readiness::Unready(ago(1));
    assert_eq!(case.why(), Some(Skip::Budget { alive: 2, wanted: 4 }));
    case.pods[1].life.readiness = Readiness::Ready(ago(1));
    assert_eq!(case.why(), Some(Skip::Starting));
}

#[test]
fn a_disruption_budget_is_asked_once_a_group_and_costs_nothing() {
    let case = ours("Recreate", 10);
    let decision = play(&case, "evict", Outcome::Disallowed);
    assert_eq!(decision.steps.len(), 1);
    assert!(
        decision
            .verdicts
            .iter()
            .all(|verdict| *verdict == Verdict::Skipped(Skip::DisruptionBudget))
    );
    let Recall { memory, ledger, .. } = &decision.recall;
    assert_eq!((memory, ledger), (&case.recall.memory, &case.recall.ledger), "nothing is booked");
    let mut upstream = tolerant("Recreate");
    upstream.recall = case.recall;
    assert_eq!(play(&upstream, "evict", Outcome::Disallowed).steps.len(), 5);
}

#[test]
fn what_may_have_been_done_is_not_given_back() {
    let case = ours("Recreate", 4);
    let of = |outcome| steps(&play(&case, "evict", outcome), "evict");
    assert_eq!((of(Outcome::Failed), of(Outcome::Unsure)), (4, 2), "half of them may be down");
    let decision = play(&ours("InPlaceOrRecreate", 4), "resize", Outcome::Unsure);
    assert_eq!(steps(&decision, "evict"), 0, "what may be resized is not evicted");
}

#[test]
fn what_cannot_be_booked_is_not_done() {
    let case = ours("InPlaceOrRecreate", 4);
    let decision = play(&case, "resize", Outcome::NotBooked);
    assert_eq!(steps(&decision, "evict"), 0, "nor is it evicted instead");
    assert_eq!(decision.verdicts[0], Verdict::Skipped(Skip::NotBooked));
    case.with(|subject, world| {
        let mut pass = Pass::begin(subject, world, &case.settings, case.recall.clone());
        let step = pass.next().expect("a step");
        assert!(step.is_booked);
        let touch = pass.recall().memory.touch("uid-0").cloned().expect("stands there before");
        assert_eq!((touch.at, touch.what), (NOW, Touched::Resized));
    });
}

#[test]
fn budgets_of_an_hour_end_a_pass() {
    let mut case = ours("Recreate", 200);
    case.settings.eviction_tolerance = 1.0;
    case.settings.guards.unproven = None;
    let decision = case.decide();
    assert_eq!(steps(&decision, "evict"), 40, "a fifth of the namespace");
    assert!(decision.verdicts.contains(&Verdict::Skipped(Skip::NamespaceBudget)));
    case.settings.guards.unproven = Some(10);
    assert_eq!(steps(&case.decide(), "evict"), 10, "none is known to have helped since");
    case.recall = Recall::default();
    assert_eq!(steps(&case.decide(), "evict"), 1, "none is known to have helped, ever");
}

#[test]
fn change_windows_hold_changes() {
    let mut case = ours("Recreate", 4);
    case.settings.guards.windows = "0 3 * * * for 1h".parse().expect("a window");
    let until = case.settings.guards.windows.next(NOW);
    assert_eq!(case.why(), Some(Skip::OutsideWindow { until }));
    case.now = until.expect("opens");
    assert_eq!(case.why(), None);
}

#[test]
fn a_server_without_resizes_gets_evictions_or_nothing() {
    let mut case = ours("InPlaceOrRecreate", 4);
    case.can_resize = false;
    assert_eq!(case.decide().steps[0].0.action.word(), "evict");
    case.spec = super::spec("InPlace");
    case.settings.in_place = true;
    assert_eq!(case.why(), Some(Skip::NoResize));
}

#[test]
fn somebody_who_writes_other_values_stops_changes_until_the_vpa_is_changed() {
    let mut case = ours("InPlaceOrRecreate", 4);
    case.recall = case.decide().recall;
    for pod in &mut case.pods {
        pod.life.generation = Some(2);
    }
    case.now = NOW.later(Duration::from_mins(1));
    let decision = case.decide();
    assert!(decision.rewritten, "the spec is as it was, and newer than what was written");
    assert_eq!(decision.verdicts[3], Verdict::Skipped(Skip::Rewritten));
    case.recall = decision.recall;
    assert!(!case.decide().rewritten, "it is told once");
    assert_eq!(case.decide().verdicts[3], Verdict::Skipped(Skip::Rewritten));
    case.recall.memory.rewritten = Some(Rewritten { at: NOW, generation: Some(0) });
    assert_ne!(case.decide().verdicts[3], Verdict::Skipped(Skip::Rewritten), "the VPA is another");
}

#[test]
fn a_resize_that_came_through_is_not_taken_for_somebody_elses() {
    let mut case = ours("InPlaceOrRecreate", 4);
    let decision = case.decide();
    for (step, _) in &decision.steps {
        let Action::Resize { sizes, .. } = &step.action else { panic!("{step:?}") };
        let pod = &mut case.pods[step.pod];
        pod.life.generation = Some(2);
        for (container, size) in pod.size.containers.iter_mut().zip(sizes) {
            container.spec = size.applied(&container.spec);
        }
    }
    case.recall = decision.recall;
    case.now = NOW.later(Duration::from_mins(1));
    let decision = case.decide();
    assert!(!decision.rewritten);
    assert!(matches!(decision.verdicts[0], Verdict::Skipped(Skip::NearTarget { .. })));
}

#[test]
fn a_pod_that_got_what_was_recommended_then_is_not_taken_for_somebody_elses() {
    let one_at_a_time = || {
        let mut case = ours("Recreate", 4);
        case.settings.eviction_tolerance = 0.25;
        case
    };
    let mut case = one_at_a_time();
    // Admission gives each pod that takes the place of another what is recommended at that time.
    let replace = |case: &mut Case, minutes: u64, request: &str| {
        case.now = NOW.later(Duration::from_mins(minutes));
        let decision = case.decide();
        assert_eq!(steps(&decision, "evict"), 1, "{minutes}: {:?}", decision.verdicts);
        let place = decision.steps[0].0.pod;
        case.recall = decision.recall;
        let mut new = pod(10 + place, &[request]);
        new.size.annotations = Some(BTreeMap::from([("vpaUpdates".into(), "c1".into())]));
        let made = case.now.later(Duration::from_secs(1));
        new.life.created = made;
        new.life.readiness = Readiness::Ready(made);
        new.size.ready_since = Some(made);
        case.pods[place] = new;
        decision.rewritten
    };
    assert!(!replace(&mut case, 0, "cpu 2, memory 200M"));
    case.recommendation = Some(recommended(&["cpu 4, memory 400M"]));
    assert!(!replace(&mut case, 5, "cpu 4, memory 400M"));
    case.now = NOW.later(Duration::from_mins(10));
    let decision = case.decide();
    assert!(!decision.rewritten, "the first one has what was recommended when it was made");
    // Of a wave that wants the same all the time, it is seen who writes something else.
    let mut case = one_at_a_time();
    assert!(!replace(&mut case, 0, "cpu 2, memory 200M"));
    assert!(!replace(&mut case, 5, "cpu 8, memory 800M"));
    case.now = NOW.later(Duration::from_mins(10));
    assert!(case.decide().rewritten);
}

#[test]
fn a_pod_that_was_evicted_and_is_still_seen_is_neither_evicted_again_nor_alive() {
    let mut case = ours("Recreate", 4);
    let touch = |number: usize, at| Touch {
        uid: format!("uid-{number}").into(),
        at,
        what: Touched::Evicted,
        wrote: None,
        generation: None,
        restarts: 0,
    };
    case.recall.memory =
        Memory { touches: vec![touch(0, ago(1)), touch(1, ago(1))], ..Memory::default() };
    let decision = case.decide();
    assert_eq!(decision.verdicts[0], Verdict::Skipped(Skip::Leaving));
    assert_eq!(decision.verdicts[2], Verdict::Skipped(Skip::Budget { alive: 2, wanted: 4 }));
    case.recall.memory.touches = vec![touch(0, ago(11)), touch(1, ago(11))];
    assert_eq!(case.why(), None, "that eviction was never made");
}

#[test]
fn a_single_replica_gets_a_second_one_before_it_goes() {
    let mut case = ours("Recreate", 1);
    assert_eq!(case.why(), Some(Skip::BelowMinReplicas { live: 1 }));
    case.settings.guards = GuardSettings { surge: true, ..case.settings.guards };
    let decision = case.decide();
    assert_eq!(decision.steps.len(), 1);
    assert_eq!(decision.steps[0].0.action, Action::Surge);
    assert_eq!(decision.verdicts[0], Verdict::Skipped(Skip::Surging));
    // The second one starts.
    case.recall = decision.recall;
    case.wanted = Wanted::Pods(2);
    let mut second = super::pod(1, &["cpu 2, memory 200M"]);
    second.life.created = NOW;
    second.life.readiness = Readiness::Unready(NOW);
    case.pods.push(second);
    case.now = NOW.later(Duration::from_mins(1));
    assert_eq!(case.why(), Some(Skip::Surging));
    case.pods[1].life.readiness = Readiness::Ready(case.now);
    let mut late = case.clone();
    late.pods[1].life.readiness = Readiness::Unready(NOW);
    late.now = NOW.later(Duration::from_mins(15));
    let given_up = late.decide();
    assert_eq!(given_up.steps[0].0.action, Action::EndSurge);
    assert_eq!(given_up.harm, Some(plimsoll_core::updater::guard::Harm::Unready));
    assert_eq!(given_up.recall.memory.surge, None);
    late.pods.clear();
    assert!(late.decide().steps.is_empty(), "nobody is there to be sized");
    let words: Vec<&str> = case.decide().steps.iter().map(|(step, _)| step.action.word()).collect();
    assert_eq!(words, ["evict", "end_surge"]);
}

#[test]
fn no_pod_at_all_and_pods_of_nobody_are_no_reason_to_panic() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        for mode in ["Off", "Recreate", "InPlace", "InPlaceOrRecreate"] {
            let mut case = Case::new(compat, mode, 0);
            assert!(case.decide().steps.is_empty());
            case = Case::new(compat, mode, 2);
            case.pods[0].life.owner = None;
            case.pods[1].life.phase = Phase::Pending;
            case.recommendation = Some(recommended(&[]));
            assert!(case.decide().steps.is_empty(), "{compat:?} {mode}");
            case.recommendation = None;
            assert!(case.decide().steps.is_empty(), "{compat:?} {mode}");
        }
    }
    assert_eq!(Settings::default(), Settings::of(Compat::Plimsoll));
}
