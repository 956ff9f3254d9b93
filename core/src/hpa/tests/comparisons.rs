//! Comparisons with another controller that decides at other times.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use serde_json::{Value, json};

use super::fixture::{Case, NOW, cpu};
use crate::hpa::{
    Decision,
    comparison::{
        Comparison::{self, Later, Same, Sampling, Unexplained, Warming},
        Shadow, ShadowRules,
    },
    hpa_state::Windows,
};
use crate::types::Time;

const RULES: ShadowRules = ShadowRules {
    period: Duration::from_secs(15),
    windows: Windows { up: Duration::ZERO, down: Duration::from_mins(5), period: Duration::ZERO },
};

/// A decision for 4 replicas with 50 % of usage, at this second after the first.
fn decision(second: u64, desired: Option<i32>) -> Decision {
    let decided = Case::new(4, cpu(50)).using(&[500, 500, 500, 500]).decide();
    Decision { at: NOW.later(Duration::from_secs(second)), desired, ..decided }
}

/// What the other controller wrote: its desired replicas, and the utilization that it saw.
fn status(desired: i32, percent: i32) -> HorizontalPodAutoscalerStatus {
    let current = json!({"averageUtilization": percent, "averageValue": "1"});
    read(&json!({"desiredReplicas": desired,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]}))
}

fn read(status: &Value) -> HorizontalPodAutoscalerStatus {
    serde_json::from_value(status.clone()).expect("a status")
}

/// The results of decisions, each with the other controller's desired replicas and utilization at that time.
fn results(shadow: &mut Shadow, from: u64, steps: &[(i32, i32, i32)]) -> Vec<Comparison> {
    let each = steps.iter().zip((from..).step_by(15));
    each.flat_map(|((ours, theirs, percent), second)| {
        shadow.compare(&decision(second, Some(*ours)), &status(*theirs, *percent), RULES)
    })
    .collect()
}

/// A shadow that has run for longer than all windows.
fn warm() -> Shadow {
    let mut shadow = Shadow::default();
    assert_eq!(results(&mut shadow, 0, &[(4, 4, 50)]), [Same]);
    shadow
}

#[test]
fn equal_decisions_are_the_same_and_those_made_later_are_later() {
    assert_eq!(
        results(&mut warm(), 600, &[(4, 4, 50), (6, 4, 50), (6, 6, 50)]),
        [Same, Later, Same]
    );
    // Within two periods and a minute.
    let steps = [(6, 4, 50), (4, 4, 50), (4, 4, 50), (4, 4, 50), (4, 4, 50), (4, 6, 50)];
    assert_eq!(results(&mut warm(), 600, &steps)[..5], [Same, Same, Same, Same, Later]);
}

#[test]
fn a_difference_has_a_cause_once_the_other_controller_had_time() {
    let late = |percent| [(6, 4, percent); 7];
    assert_eq!(results(&mut warm(), 600, &late(50)), [Unexplained], "90 seconds after the first");
    assert_eq!(results(&mut warm(), 600, &late(51)), [Sampling], "it has seen another value");
    assert_eq!(results(&mut warm(), 30, &late(50)), [Warming], "it remembers more");
    // It skipped 6, because the value moved on before it read it.
    let steps =
        [(6, 4, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50)];
    let mut results = results(&mut warm(), 600, &steps);
    results.retain(|result| *result != Same);
    assert_eq!(results, [Sampling]);
}

#[test]
fn without_a_decision_the_other_controller_has_to_have_failed_too() {
    let failed = |kind: &str, status: &str| {
        read(&json!({"desiredReplicas": 4,
            "conditions": [{"type": kind, "status": status, "reason": "FailedGetResourceMetric"}]}))
    };
    for (kind, holds, expected) in [
        ("ScalingActive", "False", &[Same][..]),
        ("AbleToScale", "False", &[Same]),
        ("ScalingActive", "True", &[]),
        ("ScalingLimited", "False", &[]),
    ] {
        let results = warm().compare(&decision(600, None), &failed(kind, holds), RULES);
        assert_eq!(results, expected, "{kind} {holds}");
    }
}

#[test]
fn a_scale_by_the_other_controller_is_observed_once() {
    let at = "2026-01-01T00:00:00Z";
    let mut shadow = Shadow::default();
    for (replicas, last_scale, expected) in [
        (4, None, None),
        // Another client changed the replicas.
        (5, None, None),
        (7, Some(at), Some((5, Time::from_secs(1_767_225_600)))),
        (7, Some(at), None),
        (8, Some(at), None),
    ] {
        let status = read(&json!({"desiredReplicas": 6, "lastScaleTime": last_scale}));
        assert_eq!(shadow.observe_scale(replicas, &status), expected, "{replicas}");
    }
}
