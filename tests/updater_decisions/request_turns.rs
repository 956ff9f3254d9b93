//! Requests that replicas follow: when they are changed, and that a change that has begun goes on.

use std::time::Duration;

use plimsoll_core::{
    coordination::{
        RecordedTarget, Resource, Retargetable, SharedRequest, SharedRequestRule, TargetChange,
        change_timing::{MIN_CHANGE_INTERVAL, Replicas},
    },
    types::{Time, compat::Compat},
    updater::{
        DesiredReplicas, PodOutcome, Readiness, StepResult, UpdatePass,
        guard::GuardSettings,
        pod_status::{ContainerStatus, Termination},
    },
};

use super::{NOW, PassCase, pod, recommended, steps};

const ABOVE: &str = "cpu 200m, memory 100M; cpu 150m, memory 50M; cpu 300m, memory 300M";
const BELOW: &str = "cpu 900m, memory 100M; cpu 800m, memory 50M; cpu 1, memory 300M";
const DRIFT: &str = "cpu 400m, memory 100M; cpu 100m, memory 50M; cpu 900m, memory 300M";

/// Two replicas, as many as the metrics ask for.
fn steady() -> Replicas {
    Replicas {
        current: 2,
        min: 1,
        max: 10,
        proposed: Some(2),
        changed: None,
        down_window: Duration::from_mins(5),
    }
}

fn shared(resource: Resource, replicas: Replicas, lacks_replicas: bool) -> SharedRequest {
    SharedRequest {
        hpa: "web".into(),
        resource,
        container: None,
        scale_point: None,
        rule: SharedRequestRule::AtLeast(1),
        replicas,
        lacks_replicas,
        target: None,
    }
}

fn case(mode: &str, recommendation: &str, replicas: Replicas) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, mode, 2);
    case.pods = (0..2).map(|number| pod(number, &["cpu 500m, memory 100M"])).collect();
    case.recommendation = Some(recommended(&[recommendation]));
    case.shared_requests = vec![shared(Resource::Cpu, replicas, false)];
    case
}

/// Why the first pod is not changed, or what is done.
fn outcome(case: &PassCase) -> &'static str {
    match case.decide().pod_outcomes.remove(0) {
        PodOutcome::Skipped(skip) => skip.into_str(),
        PodOutcome::Changed(action) => action,
    }
}

#[test]
fn a_request_is_changed_while_replicas_do_not_move_and_raised_from_below_its_bounds_sooner() {
    let moved = Replicas { changed: Some(NOW.earlier(Duration::from_mins(4))), ..steady() };
    let before = Replicas { changed: Some(NOW.earlier(Duration::from_mins(5))), ..steady() };
    let moving = Replicas { proposed: Some(3), ..steady() };
    let at_min = Replicas { proposed: Some(1), min: 2, ..steady() };
    let unknown = Replicas { proposed: None, ..steady() };
    for (replicas, above, drift, below) in [
        (steady(), "evict", "evict", "evict"),
        (before, "evict", "evict", "evict"),
        (moved, "replicas_changed", "replicas_changed", "replicas_changed"),
        (moving, "replicas_will_change", "replicas_will_change", "replicas_will_change"),
        (at_min, "evict", "evict", "evict"),
        (unknown, "proposal_unknown", "proposal_unknown", "evict"),
    ] {
        for (recommendation, expected) in [(ABOVE, above), (DRIFT, drift), (BELOW, below)] {
            let found = outcome(&case("Recreate", recommendation, replicas));
            assert_eq!(found, expected, "{replicas:?} {recommendation}");
        }
    }
}

#[test]
fn a_request_is_changed_once_in_twelve_hours_unless_it_is_too_low() {
    for (age, above, below) in [
        (MIN_CHANGE_INTERVAL.saturating_sub(Duration::from_secs(1)), "changed_recently", "evict"),
        (MIN_CHANGE_INTERVAL, "evict", "evict"),
    ] {
        for (recommendation, expected) in [(ABOVE, above), (BELOW, below)] {
            let mut case = case("Recreate", recommendation, steady());
            case.recall.workload.record_request_change(Resource::Cpu, NOW.earlier(age));
            // Created since, so it is not left of that change.
            for pod in &mut case.pods {
                pod.status.created = NOW.earlier(MIN_CHANGE_INTERVAL / 2);
            }
            assert_eq!(outcome(&case), expected, "{age:?} {recommendation}");
            // The change of another resource does not count.
            case.recall.workload.turns.clear();
            case.recall.workload.record_request_change(Resource::Memory, NOW);
            assert_eq!(outcome(&case), "evict");
        }
    }
}

#[test]
fn the_other_resources_are_changed_meanwhile() {
    let moving = Replicas { proposed: Some(3), ..steady() };
    let both = "cpu 200m, memory 300M; cpu 150m, memory 250M; cpu 300m, memory 400M";
    for (replicas, expected) in [(steady(), "cpu 200m, memory 300M"), (moving, "memory 300M")] {
        let case = case("InPlaceOrRecreate", both, replicas);
        let decision = case.decide();
        let (step, _) = &decision.steps[0];
        let plimsoll_core::updater::Action::Resize { sized_containers, .. } = &step.action else {
            panic!("{step:?}")
        };
        let amounts = sized_containers[0].requests.iter();
        let amounts: Vec<_> = amounts.map(|(name, amount)| format!("{name} {amount}")).collect();
        assert_eq!(amounts.join(", "), expected);
        let changed = decision.state.workload.request_changed(Resource::Cpu);
        assert_eq!(changed.is_some(), replicas == steady(), "only its own change is recorded");
    }
}

#[test]
fn at_the_maximum_with_too_few_replicas_requests_are_only_raised_in_place() {
    let at_max = Replicas { current: 10, proposed: Some(15), ..steady() };
    for (mode, recommendation, expected) in [
        ("InPlaceOrRecreate", BELOW, "resize"),
        ("InPlaceOrRecreate", ABOVE, "at_max_replicas"),
        ("Recreate", BELOW, "at_max_replicas"),
        ("Recreate", ABOVE, "at_max_replicas"),
    ] {
        let mut case = case(mode, recommendation, at_max);
        case.shared_requests = vec![shared(Resource::Cpu, at_max, true)];
        assert_eq!(outcome(&case), expected, "{mode} {recommendation}");
        case.can_resize = false;
        assert_eq!(outcome(&case), "at_max_replicas", "{mode} {recommendation}");
    }
}

#[test]
fn a_change_that_has_begun_goes_on_and_the_next_one_waits() {
    let mut case = case("Recreate", ABOVE, steady());
    let first = case.decide();
    assert_eq!(steps(&first, "evict"), 1, "one pod is changed first");
    assert_eq!(first.state.workload.request_changed(Resource::Cpu), Some(NOW));
    case.recall = first.state;
    let created_at = |number, requests: &str, created: Time| {
        let mut pod = pod(number, &[requests]);
        pod.status.created = created;
        pod.status.started = Some(created);
        pod.status.readiness = Readiness::Ready(created.later(Duration::from_secs(30)));
        pod.spec.ready_since = Some(created.later(Duration::from_secs(30)));
        pod
    };
    let sized = "cpu 200m, memory 100M";
    case.pods[0] = created_at(2, sized, NOW.later(Duration::from_mins(1)));
    // It is left of the time before, although not by much.
    case.pods[1].status.created = NOW.earlier(Duration::from_secs(30));
    case.now = NOW.later(Duration::from_mins(10));
    // The replicas changed in the meantime, and a proposal differs.
    let changed = Some(NOW.later(Duration::from_mins(9)));
    let moving = Replicas { changed, proposed: Some(3), ..steady() };
    case.shared_requests = vec![shared(Resource::Cpu, moving, false)];
    let second = case.decide();
    assert_eq!(second.pod_outcomes[1], PodOutcome::Changed("evict"), "{second:?}");
    assert_eq!(second.state.workload.request_changed(Resource::Cpu), Some(NOW));
    case.recall = second.state;
    // Both have the new size, and another one is recommended.
    case.shared_requests = vec![shared(Resource::Cpu, steady(), false)];
    case.pods[1] = created_at(3, sized, NOW.later(Duration::from_mins(11)));
    case.recommendation =
        Some(recommended(&["cpu 100m, memory 100M; cpu 50m, memory 50M; cpu 150m, memory 300M"]));
    for (after, expected) in
        [(Duration::from_hours(2), "changed_recently"), (MIN_CHANGE_INTERVAL, "evict")]
    {
        case.now = NOW.later(after);
        assert_eq!(outcome(&case), expected, "{after:?}");
    }
}

#[test]
fn a_pod_that_is_out_of_memory_does_not_wait() {
    let moving = Replicas { proposed: Some(3), ..steady() };
    let raised = "cpu 500m, memory 200M; cpu 100m, memory 50M; cpu 900m, memory 300M";
    let mut case = case("Recreate", raised, moving);
    case.shared_requests = vec![shared(Resource::Memory, moving, false)];
    assert_eq!(outcome(&case), "replicas_will_change");
    case.pods[0].status.containers = vec![ContainerStatus {
        name: "c1".into(),
        last_termination: Some(Termination {
            started: NOW.earlier(Duration::from_mins(3)),
            finished: NOW.earlier(Duration::from_mins(1)),
            out_of_memory: true,
        }),
        ..ContainerStatus::default()
    }];
    assert_eq!(outcome(&case), "evict");
}

/// Requests within a range around a scale point of 250m, with a target of 50 % of 500m in the template.
fn within(resource: Resource, written: i32) -> SharedRequest {
    let target = RecordedTarget {
        resource,
        container: None,
        scale_point: 250,
        template: 500,
        original: 50,
        written,
    };
    SharedRequest {
        rule: SharedRequestRule::Within { min: 264, max: 500 },
        target: Some(Ok(Retargetable { target, was_reset: false, is_recorded: true })),
        ..shared(resource, steady(), false)
    }
}

/// The targets before each step of a pass whose steps succeed, and those after it.
fn targets(case: &PassCase) -> (Vec<Vec<i32>>, Vec<i32>) {
    let percent =
        |changes: Vec<TargetChange>| changes.iter().map(|change| change.percent).collect();
    case.with_subject(|subject, context| {
        let mut pass = UpdatePass::new(subject, context, &case.settings, case.recall.clone());
        let mut before = Vec::new();
        while let Some(step) = pass.next() {
            before.push(percent(pass.targets_before(&step)));
            pass.record_result(StepResult::Done);
        }
        (before, percent(pass.outdated_targets()))
    })
}

/// A case of four pods that are changed in one pass, as far as the disruption budget of the workload allows.
fn wave(mode: &str, recommendation: &str) -> PassCase {
    let mut case = case(mode, recommendation, steady());
    case.pods = (0..4).map(|number| pod(number, &["cpu 500m, memory 100M"])).collect();
    case.wanted = DesiredReplicas::Known(4);
    case.settings.guards = GuardSettings::NONE;
    case.shared_requests = vec![within(Resource::Cpu, 50)];
    case
}

#[test]
fn before_each_step_the_target_belongs_to_the_lower_mean_request() {
    // The mean after the step: 450m, 400m.
    let lowered = "cpu 300m, memory 100M; cpu 250m, memory 50M; cpu 400m, memory 300M";
    let raised = "cpu 480m, memory 100M; cpu 450m, memory 50M; cpu 500m, memory 300M";
    for mode in ["Recreate", "InPlaceOrRecreate"] {
        let (before, after) = targets(&wave(mode, lowered));
        assert_eq!(before[..2], [[56], [63]], "{mode}");
        assert!(after.is_empty(), "pods are changing");
        let mut case = wave(mode, raised);
        case.pods = (0..4).map(|number| pod(number, &["cpu 300m, memory 100M"])).collect();
        case.shared_requests = vec![within(Resource::Cpu, 83)];
        // The mean before the step: 300m, 345m.
        assert_eq!(targets(&case).0[..2], [[83], [72]], "{mode}");
    }
}

#[test]
fn a_step_that_does_not_change_the_request_or_is_of_another_rule_needs_no_target() {
    let memory = "cpu 500m, memory 300M; cpu 300m, memory 250M; cpu 900m, memory 400M";
    let (before, _) = targets(&wave("InPlaceOrRecreate", memory));
    assert!(!before.is_empty() && before.iter().all(Vec::is_empty), "{before:?}");
    let mut case = wave("InPlaceOrRecreate", BELOW);
    case.shared_requests = vec![shared(Resource::Cpu, steady(), false)];
    assert!(targets(&case).0.iter().all(Vec::is_empty));
    case.shared_requests.clear();
    assert!(targets(&case).0.iter().all(Vec::is_empty));
}

#[test]
fn a_pod_that_is_evicted_for_another_resource_gets_the_current_recommendation_of_both() {
    let both = "cpu 300m, memory 300M; cpu 250m, memory 250M; cpu 400m, memory 400M";
    for (mode, expected) in [("Recreate", vec![56]), ("InPlaceOrRecreate", vec![])] {
        let mut case = wave(mode, both);
        // The change of the request waits, and memory does not.
        case.shared_requests[0].replicas.proposed = Some(9);
        let (before, _) = targets(&case);
        assert_eq!(before[0], expected, "{mode}");
    }
}

#[test]
fn once_no_pod_changes_the_target_belongs_to_the_mean_request() {
    let sized = "cpu 400m, memory 100M; cpu 300m, memory 50M; cpu 500m, memory 300M";
    let mut case = wave("Recreate", sized);
    case.pods = (0..4).map(|number| pod(number, &["cpu 400m, memory 100M"])).collect();
    assert_eq!(targets(&case), (vec![], vec![63]));
    case.shared_requests = vec![within(Resource::Cpu, 63)];
    assert_eq!(targets(&case), (vec![], vec![]));
    case.shared_requests =
        vec![SharedRequest { rule: SharedRequestRule::Held, ..within(Resource::Cpu, 50) }];
    assert_eq!(targets(&case), (vec![], vec![]), "the rule is another one");
    let mut unwritten = within(Resource::Cpu, 50);
    if let Some(Ok(found)) = &mut unwritten.target {
        found.is_recorded = false;
    }
    case.shared_requests = vec![unwritten];
    assert_eq!(targets(&case), (vec![], vec![]), "no step has written a target");
    case.shared_requests = vec![within(Resource::Cpu, 50)];
    case.wanted = DesiredReplicas::Known(5);
    assert_eq!(targets(&case), (vec![], vec![]), "a pod is missing");
    case.wanted = DesiredReplicas::Known(4);
    case.pods[0].status.readiness = Readiness::Unready(NOW);
    assert_eq!(targets(&case), (vec![], vec![]), "a pod is not ready");
}
