//! Golden vectors 144 to 154, and row 22 of the changes in 1.8.1: which pods are worth an update.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        ObservedContainers, Priority, Settings, SkipReason, UpdateReason,
        pod_status::{ContainerStatus, PodStatus, Termination},
        update_reason::{had_quick_oom, update_reason},
    },
};
use serde_json::json;

use super::{NOW, ago, pod, spec};

fn pod_status(hours: u64, oom: Option<(u64, Time)>) -> PodStatus {
    let mut pod_status = pod(0, &["cpu 1"]).status;
    pod_status.started = Some(ago(hours * 60));
    pod_status.containers = vec![ContainerStatus {
        name: "c1".into(),
        last_termination: oom.map(|(minutes, finished)| Termination {
            out_of_memory: true,
            started: finished.earlier(Duration::from_mins(minutes)),
            finished,
        }),
        ..ContainerStatus::default()
    }];
    pod_status
}

#[test]
fn a_pod_is_updated_for_its_bounds_its_drift_or_its_oom_kill() {
    let (oom, long) = (Some((2, ago(3))), Some((57, ago(3))));
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        for (row, age, outside_range, difference, threshold, oom, accepted) in [
            (144, 24, false, 0.0, 0.1, None, false),
            (145, 13, false, 0.25, 0.5, None, false),
            (146, 13, false, 4.0, 0.5, None, true),
            (147, 13, true, 0.25, 0.5, None, true),
            (148, 11, false, 0.25, 0.5, None, false),
            (149, 11, true, 0.9, 0.5, None, true),
            (150, 11, false, 0.25, 0.5, oom, true),
            (151, 11, false, 0.0, 0.1, oom, false),
            (152, 11, false, 0.0, 0.5, long, false),
            // A change of 1.8.1: an OOM kill ten days ago.
            (22, 11, false, 0.25, 0.5, Some((2, ago(14_400))), false),
        ] {
            let settings = Settings { update_threshold: threshold, ..Settings::for_compat(compat) };
            let priority = Priority {
                outside_recommended_range: outside_range,
                scale_up: true,
                resource_diff: difference,
            };
            let pod_status = pod_status(age, oom);
            let quick =
                had_quick_oom(&pod_status, &ObservedContainers::All, &spec("Auto"), &settings, NOW);
            let found = update_reason(&priority, quick, &pod_status, None, false, &settings, NOW);
            assert_eq!(found.is_ok(), accepted, "row {row}: {found:?}");
        }
    }
}

/// A plan decides whether a change is worth its price. So requests within its bounds stay at any age, and others follow it
/// at once, however small the step is.
#[test]
fn age_and_difference_do_not_count_if_requests_are_planned() {
    let settings = Settings::for_compat(Compat::Plimsoll);
    let within = Priority { outside_recommended_range: false, scale_up: true, resource_diff: 0.5 };
    let outside = Priority { outside_recommended_range: true, resource_diff: 0.03, ..within };
    for hours in [0, 13, 24 * 30] {
        let status = pod_status(hours, None);
        let reason = |priority: &Priority, quick| {
            update_reason(priority, quick, &status, Some(NOW), true, &settings, NOW)
        };
        assert_eq!(reason(&within, false), Err(SkipReason::WithinPlan), "{hours} h");
        assert_eq!(reason(&outside, false), Ok(UpdateReason::OutsideRange), "{hours} h");
        assert_eq!(reason(&within, true), Ok(UpdateReason::QuickOom), "{hours} h");
    }
    assert!(!SkipReason::WithinPlan.is_restriction());
}

#[test]
fn an_oom_kill_counts_only_in_observed_and_controlled_containers() {
    let settings = Settings::for_compat(Compat::Upstream);
    let pod_status = pod_status(11, Some((2, ago(3))));
    let quick = |observed: &ObservedContainers, policy: Option<&str>| {
        let mut spec = spec("Auto");
        let policies = policy
            .map(|name| json!({"containerPolicies": [{"containerName": name, "mode": "Off"}]}));
        spec.resource_policy =
            policies.map(|policies| serde_json::from_value(policies).expect("valid policy"));
        had_quick_oom(&pod_status, observed, &spec, &settings, NOW)
    };
    assert!(quick(&ObservedContainers::All, None));
    assert!(!quick(&ObservedContainers::Only(vec!["other".into()]), None), "row 153");
    assert!(!quick(&ObservedContainers::All, Some("c1")), "row 154");
    assert!(!quick(&ObservedContainers::All, Some("*")), "row 154");
    assert!(quick(&ObservedContainers::All, Some("other")));
}

#[test]
fn a_vpa_sets_its_own_quick_oom_threshold_only_with_the_feature_gate() {
    let pod_status = pod_status(11, Some((15, ago(3))));
    let mut spec = spec("Auto");
    spec.update_policy.as_mut().expect("set").evict_after_oom_seconds = Some(1200);
    let mut settings = Settings::for_compat(Compat::Upstream);
    assert!(!had_quick_oom(&pod_status, &ObservedContainers::All, &spec, &settings, NOW));
    settings.per_vpa_config = true;
    assert!(had_quick_oom(&pod_status, &ObservedContainers::All, &spec, &settings, NOW));
}

#[test]
fn thresholds_are_inclusive_as_in_upstream() {
    let settings = Settings::for_compat(Compat::Upstream);
    let priority = |difference| Priority { resource_diff: difference, ..Priority::default() };
    let at = |hours| {
        update_reason(&priority(0.1), false, &pod_status(hours, None), None, false, &settings, NOW)
    };
    assert_eq!(at(12), Ok(UpdateReason::Drift), "both thresholds are inclusive");
    let young =
        update_reason(&priority(0.1), false, &pod_status(11, None), None, false, &settings, NOW);
    assert_eq!(young, Err(SkipReason::TooYoung { until: NOW.later(Duration::from_hours(1)) }));
    let ageless = PodStatus { started: None, ..pod_status(12, None) };
    assert_eq!(
        update_reason(&priority(0.1), false, &ageless, None, false, &settings, NOW),
        Err(SkipReason::AgeUnknown)
    );
    // Upstream's process panics here (defect 5).
    let none = Settings { update_threshold: 0.0, ..settings };
    assert_eq!(
        update_reason(&priority(0.0), false, &pod_status(13, None), None, false, &none, NOW),
        Ok(UpdateReason::Drift)
    );
}
