//! Each fix in three modes: upstream's behaviour, Plimsoll's, and Plimsoll's with the fix disabled.

use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerStatus,
    scaling::{MetricError, Position, ScaleOutcome},
    types::compat::{Compat, Fix, Fixes},
    watermark::{MetricInput, conditions::ConditionType, status_update::StatusBuilder},
};
use serde_json::json;

use super::{
    DecisionCase, NOW, ago, cpu_metric, external_metric, last_condition, pods, source, spec,
};

/// Upstream's mode, Plimsoll's, and Plimsoll's without the fix.
fn fix_modes(fix: Fix) -> [Fixes; 3] {
    let ours = Fixes::for_compat(Compat::Plimsoll);
    [Fixes::for_compat(Compat::Upstream), ours, ours.without(fix)]
}

fn assert_fix<T: PartialEq + std::fmt::Debug>(fix: Fix, of: impl Fn(Fixes) -> T, expected: [T; 2]) {
    let [theirs, ours] = expected;
    let [upstream, plimsoll, without] = fix_modes(fix).map(of);
    assert_eq!(upstream, theirs, "upstream");
    assert_eq!(plimsoll, ours, "plimsoll");
    assert_eq!(without, theirs, "switched off");
}

#[test]
fn no_source_holds() {
    let of = |fixes| {
        let decision = DecisionCase::new(fixes, json!({"maxReplicas": 20}), 10, Vec::new())
            .scaled_ago(900)
            .decide();
        decision.desired
    };
    assert_fix(Fix::NoSourceHolds, of, [8, 10]);
}

#[test]
fn bounds_hold_without_metrics() {
    let of = |fixes| {
        let silent: MetricInput = source("requests", Err(MetricError::Empty("external")), (1, 2));
        let decision =
            DecisionCase::new(fixes, json!({"maxReplicas": 10}), 18, vec![silent]).decide();
        let active = last_condition(&decision, ConditionType::ScalingActive)
            .expect("condition is set")
            .holds;
        (decision.desired, active)
    };
    assert_fix(Fix::BoundsHoldWithoutMetrics, of, [(18, false), (10, false)]);
}

#[test]
fn readiness_delay_ends() {
    let of = |fixes| {
        let fields =
            json!({"readinessDelaySeconds": 30, "algorithm": "average", "maxReplicas": 20});
        let mut case =
            DecisionCase::new(fixes, fields, 2, vec![cpu_metric(&[90_000; 2], 20_000, 40_000)]);
        case.pods[0].started = Some(ago(3_610));
        case.pods[1].started = case.pods[0].started;
        case.decide().proposal.map(|combined| combined.ready_pods).ok()
    };
    assert_fix(Fix::ReadinessDelayEnds, of, [None, Some(2)]);
}

#[test]
fn unready_pods_are_unavailable() {
    let of = |fixes| {
        let fields = json!({"minAvailableReplicaPercentage": 50, "algorithm": "average"});
        let mut case =
            DecisionCase::new(fixes, fields, 8, vec![cpu_metric(&[90_000; 8], 20_000, 40_000)]);
        for pod in case.pods.iter_mut().skip(2) {
            pod.ready = Some((false, ago(5)));
        }
        case.decide().proposal.is_ok()
    };
    assert_fix(Fix::UnreadyPodsAreUnavailable, of, [true, false]);
}

#[test]
fn zero_keeps_replicas() {
    let of = |fixes| {
        let fields = json!({"maxReplicas": 20, "downscaleDelayBelowWatermarkSeconds": 600});
        let mut case = DecisionCase::new(fixes, fields, 10, vec![external_metric(0, 1_000, 2_000)])
            .scaled_ago(900);
        case.pods.truncate(9);
        case.decide().desired
    };
    assert_fix(Fix::ZeroKeepsReplicas, of, [9, 10]);
}

#[test]
fn capping_is_shown_right() {
    let of = |fixes| {
        let limits = DecisionCase::new(fixes, json!({"scaleUpLimitFactor": 30}), 10, Vec::new())
            .rules
            .limits;
        let normal = limits.apply_limits(10, 12, 10, fixes);
        (normal.downscale_capping, normal.upscale_capping)
    };
    assert_fix(Fix::CappingIsShownRight, of, [(Some(false), None), (Some(false), Some(false))]);
}

#[test]
fn first_pass_is_no_change() {
    let of = |fixes| {
        let case =
            DecisionCase::new(fixes, json!({}), 3, vec![external_metric(1_500, 1_000, 2_000)]);
        let change = case.decide().change;
        change.map(|change| (change.to, change.reason))
    };
    assert_fix(Fix::FirstPassIsNoChange, of, [Some((3, String::new())), None]);
}

#[test]
fn missing_pods_force_nothing() {
    let of = |fixes| {
        let fields = json!({"maxReplicas": 20});
        let usage = cpu_metric(&[1_500, 1_500], 1_000, 4_000);
        let mut case = DecisionCase::new(fixes, fields, 12, vec![usage]).scaled_ago(30);
        // The quota was exhausted: the workload has no pods yet, and its selector matches those of another one.
        case.scale.status_replicas = 0;
        case.decide().desired
    };
    assert_fix(Fix::MissingPodsForceNothing, of, [1, 12]);
    // The controller of this kind never reports its replicas: the pods exist nevertheless, and 0.88 of 1 is nine of ten.
    let untold = |sum: i64| {
        move |fixes| {
            let fields = json!({"algorithm": "absolute", "maxReplicas": 40,
                                "scaleUpLimitFactor": "200", "scaleDownLimitFactor": "90"});
            let mut case =
                DecisionCase::new(fixes, fields, 10, vec![external_metric(sum, 1_000, 2_000)]);
            case.scale.status_replicas = 0;
            case.pods = pods(10);
            case.scaled_ago(3_600).decide().desired
        }
    };
    assert_fix(Fix::MissingPodsForceNothing, untold(5_000), [1, 25]);
    assert_fix(Fix::MissingPodsForceNothing, untold(880), [1, 8]);
}

#[test]
fn surge_pods_do_not_count() {
    let of = |fixes| {
        let fields = json!({"algorithm": "absolute", "scaleUpLimitFactor": "200"});
        let mut case =
            DecisionCase::new(fixes, fields, 4, vec![external_metric(2_500, 1_000, 2_000)]);
        // In the middle of a rolling update: twice as many pods, all of them ready.
        case.scale.status_replicas = 8;
        case.pods = pods(8);
        case.scaled_ago(900).decide().desired
    };
    assert_fix(Fix::SurgePodsDoNotCount, of, [10, 5]);
}

#[test]
fn dry_run_takes_no_time() {
    let of = |fixes| {
        let fields = json!({"dryRun": true, "maxReplicas": 20});
        let case =
            DecisionCase::new(fixes, fields.clone(), 4, vec![external_metric(5_000, 1_000, 2_000)])
                .scaled_ago(900);
        let decision = case.decide();
        assert!(decision.change.is_some());
        let status = WatermarkPodAutoscalerStatus::default();
        let writing = StatusBuilder {
            spec: spec(fields.clone()),
            namespace: "shop".to_owned(),
            compat: Compat::Plimsoll,
            skips_idle_events: true,

            fixes,
        };
        let status = writing.status(&status, &decision, &ScaleOutcome::DryRun, NOW);
        (status.last_scale_time.is_some(), status.scaling_events_count)
    };
    assert_fix(Fix::DryRunTakesNoTime, of, [(true, 1), (false, 0)]);
}

/// Vectors X31 to X33.
#[test]
fn replicas_are_counted_exactly() {
    for (sum, wanted, marks, position, utilisation, theirs, ours) in [
        (3_600, 7, (100, 400), Position::Above, 514, 10, 9),
        (2_000, 19, (400, 4_000), Position::Below, 105, 4, 5),
        (59_000, 7, (500, 1_000), Position::Above, 8_428, 60, 59),
    ] {
        let of = |fixes| {
            let fields = json!({"algorithm": "average", "tolerance": "20m"});
            let case = DecisionCase::new(
                fixes,
                fields,
                wanted,
                vec![external_metric(sum, marks.0, marks.1)],
            );
            let decision = case.decide();
            let proposal = decision.metrics[0].result.as_ref().expect("computed");
            assert_eq!((proposal.position, proposal.utilization), (position, utilisation));
            decision.proposal.expect("computed").replicas
        };
        assert_fix(Fix::ReplicasAreCountedExactly, of, [theirs, ours]);
    }
}
