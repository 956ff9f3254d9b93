//! Each named fix of an updater decision: upstream's behaviour, Plimsoll's, and that disabling the fix restores upstream's.

use plimsoll_core::{
    sizing::{ContainerRef, SizedContainer},
    types::compat::{Compat, Fix, Fixes},
    updater::{
        GuardSettings, PodSizing, Readiness, Settings,
        guard::{ChangeKind, PodChange, RejectedBy, infeasible::recommended_targets},
        pod_status::ResizeCondition,
    },
};
use serde_json::json;

use super::{PassCase, ago, recommended, steps};
use crate::sizing::list;

/// Runs a scenario in upstream's mode, in Plimsoll's without guards, and in the latter without the fix.
fn compare<T: PartialEq + std::fmt::Debug>(fix: Fix, scenario: impl Fn(Settings) -> T) -> (T, T) {
    let upstream = scenario(Settings::for_compat(Compat::Upstream));
    let ours = |fixes| Settings {
        fixes,
        guards: GuardSettings::NONE,
        ..Settings::for_compat(Compat::Plimsoll)
    };
    let fixed = scenario(ours(Fixes::for_compat(Compat::Plimsoll)));
    let without = scenario(ours(Fixes::for_compat(Compat::Plimsoll).without(fix)));
    assert_eq!(without, upstream, "--disable-fix {fix}");
    assert_ne!(fixed, upstream, "{fix} changes nothing here");
    (upstream, fixed)
}

fn case(settings: Settings, mode: &str, pods: usize) -> PassCase {
    let mut case = PassCase::new(settings.compat, mode, pods);
    case.settings = Settings { in_place: true, ..settings };
    case
}

fn changed_pods(case: &PassCase) -> (usize, usize) {
    let decision = case.decide();
    (steps(&decision, "resize"), steps(&decision, "evict"))
}

fn pending(reason: &str, minutes: u64) -> ResizeCondition {
    let since = Some(ago(minutes));
    ResizeCondition { reason: reason.into(), since, ..ResizeCondition::default() }
}

#[test]
fn only_ready_pods_are_alive() {
    let found = compare(Fix::OnlyReadyPodsAreAlive, |settings| {
        let mut case = case(settings, "Recreate", 4);
        for pod in &mut case.pods[..2] {
            pod.status.readiness = Readiness::Unready(ago(1));
            // The pods have the recommended requests and are still starting.
            pod.spec.containers[0].spec = crate::sizing::resources("cpu 2, memory 200M");
        }
        changed_pods(&case).1
    });
    assert_eq!(found, (2, 0), "two of four are ready, and upstream evicts these two");
}

#[test]
fn unknown_owners_have_replicas() {
    let found =
        compare(Fix::UnknownOwnersHaveReplicas, |settings| {
            let mut case = case(settings, "Recreate", 5);
            for pod in &mut case.pods {
                pod.status.owner = pod.status.owner.take().map(|owner| {
                    plimsoll_core::updater::PodOwner { kind: "CloneSet".into(), ..owner }
                });
            }
            changed_pods(&case).1
        });
    assert_eq!(found, (5, 2));
}

#[test]
fn boost_lifts_unboost_only() {
    let found = compare(Fix::BoostLiftsUnboostOnly, |settings| {
        let mut case = case(settings, "Recreate", 1);
        case.pods[0].spec.annotations =
            Some([("vpaCpuStartupBoost/c1".into(), "{}".into())].into());
        changed_pods(&case).1
    });
    assert_eq!(found, (1, 0), "the only pod of a group that should have two");
}

#[test]
fn resize_timeouts_by_condition() {
    let found = compare(Fix::ResizeTimeoutsByCondition, |settings| {
        let mut case = case(settings, "InPlaceOrRecreate", 4);
        // A pod of this name was resized yesterday; this one has been waiting for a minute.
        case.recall.resizes_first_seen.insert("web-0".into(), ago(24 * 60));
        case.pods
            .iter_mut()
            .for_each(|pod| pod.status.resize_pending = Some(pending("Deferred", 1)));
        changed_pods(&case)
    });
    assert_eq!(found, ((0, 1), (0, 0)));
}

#[test]
fn each_kind_of_resize_is_awaited_for_its_own_timeout() {
    let evicted = |is_pending: bool, reason: &str, minutes: u64| {
        let guards = GuardSettings::NONE;
        let settings = Settings { guards, ..Settings::for_compat(Compat::Plimsoll) };
        let mut case = case(settings, "InPlaceOrRecreate", 4);
        for pod in &mut case.pods {
            let condition = Some(pending(reason, minutes));
            if is_pending {
                pod.status.resize_pending = condition;
            } else {
                pod.status.resize_in_progress = condition;
            }
        }
        changed_pods(&case).1 > 0
    };
    for (is_pending, reason, timeout) in
        [(true, "Deferred", 5), (false, "Error", 5), (false, "", 60)]
    {
        assert!(!evicted(is_pending, reason, timeout - 1), "{reason:?}: too early");
        assert!(evicted(is_pending, reason, timeout + 1), "{reason:?}: too late");
    }
}

#[test]
fn a_resize_restarts_a_container_only_for_the_resources_in_its_resize_policy() {
    for (on_cpu, on_memory, wanted, expected) in [
        (true, false, "cpu 2, memory 1Gi", true),
        (true, false, "cpu 1, memory 2Gi", false),
        (false, true, "cpu 2, memory 1Gi", false),
        (false, true, "cpu 1, memory 2Gi", true),
        (false, false, "cpu 2, memory 2Gi", false),
    ] {
        let mut pod = super::pod(0, &["cpu 1, memory 1Gi"]);
        let restarts = &mut pod.spec.containers[0].resize_restarts;
        (restarts.on_cpu, restarts.on_memory) = (on_cpu, on_memory);
        let size = SizedContainer {
            requests: list(wanted),
            ..SizedContainer::unchanged(ContainerRef::Main(0))
        };
        let restarts = PodSizing::restarts_containers(&pod.spec, &[size]);
        assert_eq!(restarts, expected, "on CPU {on_cpu}, on memory {on_memory}: {wanted}");
    }
}

#[test]
fn deferred_resizes_wait() {
    let found = compare(Fix::DeferredResizesWait, |settings| {
        let mut case = case(settings, "InPlace", 4);
        case.pods
            .iter_mut()
            .for_each(|pod| pod.status.resize_pending = Some(pending("Deferred", 1)));
        changed_pods(&case).0
    });
    assert_eq!(found, (4, 0), "the same patch, in every pass");
}

#[test]
fn infeasible_resizes_expire() {
    let found = compare(Fix::InfeasibleResizesExpire, |settings| {
        let mut case = case(settings, "InPlace", 4);
        let before = recommended_targets(&recommended(&["cpu 2, memory 200M"]));
        for number in 0..4 {
            let uid = format!("uid-{number}");
            let refusals = &mut case.recall.workload.refusals;
            refusals.record(&uid, RejectedBy::Node, before.clone(), ago(61));
        }
        changed_pods(&case).0
    });
    assert_eq!(found, (0, 2));
}

#[test]
fn resize_renews_age() {
    let found = compare(Fix::ResizeRenewsAge, |settings| {
        let mut case = case(settings, "InPlaceOrRecreate", 4);
        for pod in &case.pods {
            case.recall.workload.record(PodChange {
                uid: pod.spec.uid.clone(),
                at: ago(60),
                what: ChangeKind::Resized,
                wrote: None,
                generation: None,
                restarts: 0,
            });
        }
        changed_pods(&case).0
    });
    assert_eq!(found, (2, 0), "within bounds, and resized an hour ago");
}

#[test]
fn requirements_hold_evictions_only() {
    let found = compare(Fix::RequirementsHoldEvictionsOnly, |settings| {
        let mut case = case(settings, "InPlaceOrRecreate", 4);
        let policy = case.spec.update_policy.as_mut().expect("set");
        policy.eviction_requirements = serde_json::from_value(json!([
            {"resources": ["cpu"], "changeRequirement": "TargetLowerThanRequests"}
        ]))
        .expect("valid requirements");
        changed_pods(&case)
    });
    assert_eq!(found, ((0, 0), (2, 0)));
}

#[test]
fn only_possible_resizes() {
    let found = compare(Fix::OnlyPossibleResizes, |settings| {
        let mut case = case(settings, "InPlaceOrRecreate", 4);
        for pod in &mut case.pods {
            // No requests: any request would make the pod Burstable.
            pod.spec.containers[0].spec = plimsoll_core::sizing::Resources::default();
        }
        changed_pods(&case)
    });
    assert_eq!(found, ((2, 0), (0, 2)), "the server refuses each resize");
}

#[test]
fn no_recommendation_no_update() {
    let found = compare(Fix::NoRecommendationNoUpdate, |settings| {
        let mut case = case(settings, "Recreate", 4);
        case.settings.update_threshold = 0.0;
        case.recommendation = None;
        case.spec.update_policy = None;
        case.spec.resource_policy = serde_json::from_value(json!({"containerPolicies": [
            {"containerName": "c1", "minAllowed": {"cpu": "4"}}
        ]}))
        .ok();
        changed_pods(&case).1
    });
    assert_eq!(found, (2, 0));
}
