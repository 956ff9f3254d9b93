//! Each fix three ways: what upstream does, what ours does, and ours with the fix switched off.

use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerStatus,
    scaling::Unknown,
    types::compat::{Compat, Fix, Fixes},
    watermark::{
        Position, Source,
        conditions::Fact,
        outcome::{Made, Writing},
    },
};
use serde_json::json;

use super::{Case, NOW, ago, cpu, external, last, pods, source, spec};

/// Upstream's, ours, and ours without the fix.
fn ways(fix: Fix) -> [Fixes; 3] {
    let ours = Fixes::of(Compat::Plimsoll);
    [Fixes::of(Compat::Upstream), ours, ours.without(fix)]
}

fn shown<T: PartialEq + std::fmt::Debug>(fix: Fix, of: impl Fn(Fixes) -> T, expected: [T; 2]) {
    let [theirs, ours] = expected;
    let [upstream, plimsoll, without] = ways(fix).map(of);
    assert_eq!(upstream, theirs, "upstream");
    assert_eq!(plimsoll, ours, "plimsoll");
    assert_eq!(without, theirs, "switched off");
}

#[test]
fn no_source_holds() {
    let of = |fixes| {
        let decision =
            Case::new(fixes, json!({"maxReplicas": 20}), 10, Vec::new()).scaled(900).decide();
        decision.desired
    };
    shown(Fix::NoSourceHolds, of, [8, 10]);
}

#[test]
fn bounds_hold_without_metrics() {
    let of = |fixes| {
        let silent: Source = source("requests", Err(Unknown::Empty("external")), (1, 2));
        let decision = Case::new(fixes, json!({"maxReplicas": 10}), 18, vec![silent]).decide();
        let active = last(&decision, Fact::ScalingActive).expect("said").holds;
        (decision.desired, active)
    };
    shown(Fix::BoundsHoldWithoutMetrics, of, [(18, false), (10, false)]);
}

#[test]
fn readiness_delay_ends() {
    let of = |fixes| {
        let fields =
            json!({"readinessDelaySeconds": 30, "algorithm": "average", "maxReplicas": 20});
        let mut case = Case::new(fixes, fields, 2, vec![cpu(&[90_000; 2], 20_000, 40_000)]);
        case.pods[0].started = Some(ago(3_610));
        case.pods[1].started = case.pods[0].started;
        case.decide().combined.map(|combined| combined.ready).ok()
    };
    shown(Fix::ReadinessDelayEnds, of, [None, Some(2)]);
}

#[test]
fn unready_pods_are_unavailable() {
    let of = |fixes| {
        let fields = json!({"minAvailableReplicaPercentage": 50, "algorithm": "average"});
        let mut case = Case::new(fixes, fields, 8, vec![cpu(&[90_000; 8], 20_000, 40_000)]);
        for pod in case.pods.iter_mut().skip(2) {
            pod.ready = Some((false, ago(5)));
        }
        case.decide().combined.is_ok()
    };
    shown(Fix::UnreadyPodsAreUnavailable, of, [true, false]);
}

#[test]
fn zero_keeps_replicas() {
    let of = |fixes| {
        let fields = json!({"maxReplicas": 20, "downscaleDelayBelowWatermarkSeconds": 600});
        let mut case = Case::new(fixes, fields, 10, vec![external(0, 1_000, 2_000)]).scaled(900);
        case.pods.truncate(9);
        case.decide().desired
    };
    shown(Fix::ZeroKeepsReplicas, of, [9, 10]);
}

#[test]
fn capping_is_shown_right() {
    let of = |fixes| {
        let limits =
            Case::new(fixes, json!({"scaleUpLimitFactor": 30}), 10, Vec::new()).rules.limits;
        let normal = limits.normalise(10, 12, 10, fixes);
        (normal.downscale_capping, normal.upscale_capping)
    };
    shown(Fix::CappingIsShownRight, of, [(Some(false), None), (Some(false), Some(false))]);
}

#[test]
fn first_pass_is_no_change() {
    let of = |fixes| {
        let case = Case::new(fixes, json!({}), 3, vec![external(1_500, 1_000, 2_000)]);
        let change = case.decide().change;
        change.map(|change| (change.to, change.reason))
    };
    shown(Fix::FirstPassIsNoChange, of, [Some((3, String::new())), None]);
}

#[test]
fn missing_pods_force_nothing() {
    let of = |fixes| {
        let fields = json!({"maxReplicas": 20});
        let usage = cpu(&[1_500, 1_500], 1_000, 4_000);
        let mut case = Case::new(fixes, fields, 12, vec![usage]).scaled(30);
        // The quota was away: the workload has none yet, and the selector finds those of another.
        case.scale.current = 0;
        case.decide().desired
    };
    shown(Fix::MissingPodsForceNothing, of, [1, 12]);
    // A kind whose controller never says how many it has: its pods are there all the same, and 0.88 of 1 is nine of ten.
    let untold = |sum: i64| {
        move |fixes| {
            let fields = json!({"algorithm": "absolute", "maxReplicas": 40,
                                "scaleUpLimitFactor": "200", "scaleDownLimitFactor": "90"});
            let mut case = Case::new(fixes, fields, 10, vec![external(sum, 1_000, 2_000)]);
            case.scale.current = 0;
            case.pods = pods(10);
            case.scaled(3_600).decide().desired
        }
    };
    shown(Fix::MissingPodsForceNothing, untold(5_000), [1, 25]);
    shown(Fix::MissingPodsForceNothing, untold(880), [1, 8]);
}

#[test]
fn surge_pods_do_not_count() {
    let of = |fixes| {
        let fields = json!({"algorithm": "absolute", "scaleUpLimitFactor": "200"});
        let mut case = Case::new(fixes, fields, 4, vec![external(2_500, 1_000, 2_000)]);
        // In the middle of a rolling update: twice as many, all of them ready.
        case.scale.current = 8;
        case.pods = pods(8);
        case.scaled(900).decide().desired
    };
    shown(Fix::SurgePodsDoNotCount, of, [10, 5]);
}

#[test]
fn dry_run_takes_no_time() {
    let of = |fixes| {
        let fields = json!({"dryRun": true, "maxReplicas": 20});
        let spec = &spec(fields.clone());
        let case = Case::new(fixes, fields, 4, vec![external(5_000, 1_000, 2_000)]).scaled(900);
        let decision = case.decide();
        assert!(decision.change.is_some());
        let status = WatermarkPodAutoscalerStatus::default();
        let writing = Writing {
            spec,
            namespace: "shop",
            compat: Compat::Plimsoll,
            skips_idle_events: true,
            now: NOW,
            fixes,
        };
        let status = writing.status(&status, &decision, &Made::DryRun);
        (status.last_scale_time.is_some(), status.scaling_events_count)
    };
    shown(Fix::DryRunTakesNoTime, of, [(true, 1), (false, 0)]);
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
            let case = Case::new(fixes, fields, wanted, vec![external(sum, marks.0, marks.1)]);
            let decision = case.decide();
            let proposal = decision.rows[0].outcome.as_ref().expect("computed").proposal;
            assert_eq!((proposal.position, proposal.utilisation), (position, utilisation));
            decision.combined.expect("computed").replicas
        };
        shown(Fix::ReplicasAreCountedExactly, of, [theirs, ours]);
    }
}
