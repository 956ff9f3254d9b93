//! Requests that a HorizontalPodAutoscaler scales by.

use plimsoll_core::{
    coordination::{
        Resource, ScalePoint, ScalePointSource, SharedRequest, SharedRequestRule,
        change_timing::Replicas,
    },
    types::compat::Compat,
    updater::{Action, PodOutcome, SkipReason},
};
use proptest::prelude::*;

use super::{PassCase, pod, recommended};

fn shared(resource: Resource, rule: SharedRequestRule) -> SharedRequest {
    let scale_point = ScalePoint { milli: 300, source: ScalePointSource::Template };
    SharedRequest {
        hpa: "web".into(),
        resource,
        container: None,
        scale_point: Some(scale_point),
        rule,
        replicas: Replicas { current: 2, min: 2, max: 2, proposed: Some(2), ..Replicas::default() },
        lacks_replicas: false,
        target: None,
    }
}

fn held(resource: Resource) -> SharedRequest {
    shared(resource, SharedRequestRule::Held)
}

/// Two pods with these requests, and this recommendation.
fn case(mode: &str, requests: &str, recommendation: &str, shared: &[SharedRequest]) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, mode, 2);
    case.pods = vec![pod(0, &[requests]), pod(1, &[requests])];
    case.recommendation = Some(recommended(&[recommendation]));
    case.shared_requests = shared.to_vec();
    case
}

/// The requests that resizes write, as text.
fn resized(case: &PassCase) -> Vec<String> {
    let steps = case.decide().steps.into_iter();
    let text = |action: Action| match action {
        Action::Resize { sized_containers, .. } => {
            let amounts = sized_containers.iter().flat_map(|one| one.requests.iter());
            let amounts = amounts.map(|(name, amount)| format!("{name} {amount}"));
            Some(amounts.collect::<Vec<_>>().join(", "))
        }
        _ => None,
    };
    steps.filter_map(|(step, _)| text(step.action)).collect()
}

fn skips(case: &PassCase) -> Vec<SkipReason> {
    let outcomes = case.decide().pod_outcomes.into_iter();
    let skip = |outcome| match outcome {
        PodOutcome::Skipped(skip) => Some(skip),
        PodOutcome::Changed(_) => None,
    };
    outcomes.filter_map(skip).collect()
}

const REQUESTS: &str = "cpu 500m, memory 100M";
const BOTH: &str = "cpu 200m, memory 300M; cpu 200m, memory 300M; cpu 300m, memory 300M";
const ONLY_CPU: &str = "cpu 200m, memory 100M; cpu 200m, memory 100M; cpu 300m, memory 300M";

#[test]
fn a_held_resource_stays_while_the_others_are_changed() {
    let mode = "InPlaceOrRecreate";
    let free = case(mode, REQUESTS, BOTH, &[]);
    assert_eq!(resized(&free)[0], "cpu 200m, memory 300M");
    let case = case(mode, REQUESTS, BOTH, &[held(Resource::Cpu)]);
    assert_eq!(resized(&case)[0], "memory 300M");
}

#[test]
fn pods_that_only_the_held_resource_would_change_are_skipped_with_the_way_out() {
    for mode in ["Recreate", "InPlaceOrRecreate"] {
        let case = case(mode, REQUESTS, ONLY_CPU, &[held(Resource::Cpu)]);
        let skips = skips(&case);
        assert_eq!(skips.len(), 2, "{mode}");
        for skip in skips {
            let SkipReason::HpaSameResource(text) = &skip else { panic!("{mode}: {skip:?}") };
            assert!(text.contains("HorizontalPodAutoscaler web"), "{text}");
            assert!(text.contains("averageValue: 300m"), "{text}");
            assert!(skip.is_restriction() && skip.into_str() == "hpa_same_resource");
        }
    }
}

#[test]
fn a_pod_that_needs_no_update_is_not_reported_as_held() {
    let near = "cpu 500m, memory 100M; cpu 200m, memory 50M; cpu 900m, memory 300M";
    let skips = skips(&case("Recreate", REQUESTS, near, &[held(Resource::Cpu)]));
    let is_near = |skip: &SkipReason| matches!(skip, SkipReason::NearTarget { .. });
    assert!(skips.iter().all(is_near), "{skips:?}");
}

#[test]
fn the_message_is_about_the_resource_that_would_change() {
    let shared = [held(Resource::Memory), held(Resource::Cpu)];
    let skips = skips(&case("Recreate", REQUESTS, ONLY_CPU, &shared));
    let [SkipReason::HpaSameResource(text), _] = &skips[..] else { panic!("{skips:?}") };
    assert!(text.contains("utilization of cpu requests"), "{text}");
}

#[test]
fn a_floor_lets_the_request_fall_only_to_the_scale_point() {
    let floor = shared(Resource::Cpu, SharedRequestRule::AtLeast(316));
    let case = case("InPlaceOrRecreate", REQUESTS, ONLY_CPU, &[floor]);
    assert_eq!(resized(&case)[0], "cpu 316m, memory 100M");
}

#[test]
fn a_raised_request_is_actuated_in_place_and_an_idle_workload_gets_the_recommendation() {
    let requests = "cpu 350m, memory 100M";
    let cpu = |rule| case("InPlaceOrRecreate", requests, ONLY_CPU, &[shared(Resource::Cpu, rule)]);
    for (rule, expected) in [
        (SharedRequestRule::AtMaxReplicas(460), "cpu 460m, memory 100M"),
        (SharedRequestRule::Idle, "cpu 200m, memory 100M"),
    ] {
        let case = cpu(rule);
        let steps = case.decide().steps;
        let is_resize = |action: &Action| matches!(action, Action::Resize { .. });
        assert!(steps.iter().all(|(step, _)| is_resize(&step.action)), "{rule:?}: {steps:?}");
        assert_eq!(resized(&case)[0], expected);
    }
}

proptest! {
    /// Whatever the recommendation, no step writes the held resource, and the other gets what it would get without the hold.
    #[test]
    fn no_step_changes_a_held_resource(cpu in 1_u32..2_000, memory in 1_u32..1_000, mode in 0_usize..2) {
        let mode = ["InPlaceOrRecreate", "Recreate"][mode];
        let amounts = format!("cpu {cpu}m, memory {memory}M");
        let recommendation = format!("{amounts}; {amounts}; {amounts}");
        let held = case(mode, REQUESTS, &recommendation, &[held(Resource::Cpu)]);
        for written in resized(&held) {
            prop_assert!(!written.contains("cpu"), "{}", written);
            prop_assert_eq!(written, format!("memory {memory}M"));
        }
        // An eviction is for the other resource.
        let is_near = (f64::from(memory) - 100.0).abs() < 1.0;
        let has_steps = !held.decide().steps.is_empty();
        prop_assert!(!(is_near && has_steps));
    }
}
