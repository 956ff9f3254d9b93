//! One pass over an object: vectors W1 to W11, K1 to K3, and behaviour that only a whole pass shows.

use plimsoll_core::{
    scaling::{MetricError, Restriction},
    types::compat::Fixes,
    watermark::{
        Decision, ForcedReason, MetricInput,
        conditions::{ConditionType, ConditionUpdate},
    },
};
use serde_json::{Value, json};

use super::{DecisionCase, both_modes, external_metric, last_condition, source};

/// Returns a metric that proposes this many replicas for a workload of that size, or is inside of its band.
fn metric_proposing(wanted: i32, replicas: i32) -> Vec<MetricInput> {
    let high = 1_000_i64;
    let sum = i64::from(replicas) * high / i64::from(wanted);
    // Above and below the band, the value alone determines the proposal.
    vec![external_metric(sum, high - 1, high)]
}

fn is_true(decision: &Decision, fact: ConditionType) -> bool {
    last_condition(decision, fact).is_some_and(|update| update.holds)
}

fn case(fixes: Fixes, fields: Value, wanted: i32, proposed: i32) -> DecisionCase {
    let mut fields = fields;
    fields["algorithm"] = "absolute".into();
    if fields["tolerance"].is_null() {
        fields["tolerance"] = "1m".into();
    }
    DecisionCase::new(fixes, fields, wanted, metric_proposing(wanted, proposed))
}

#[test]
fn bounds_take_precedence_and_a_target_at_zero_stays_at_zero() {
    for fixes in both_modes() {
        let decision = case(fixes, json!({"minReplicas": 1, "maxReplicas": 10}), 18, 18).decide();
        assert_eq!(
            (decision.desired, is_true(&decision, ConditionType::AbleToScale)),
            (10, true),
            "W2"
        );
        let forced = decision.change.expect("too many").forced;
        assert_eq!(forced, Some(ForcedReason::AboveMax));
        let decision = case(fixes, json!({"minReplicas": 10, "maxReplicas": 12}), 6, 6).decide();
        assert_eq!(decision.desired, 10, "W3");
        assert_eq!(decision.change.expect("too few").forced, Some(ForcedReason::BelowMin));

        let mut nothing = case(fixes, json!({"maxReplicas": 10}), 1, 5);
        nothing.scale.spec_replicas = 0;
        let decision = nothing.decide();
        assert_eq!((decision.desired, &decision.change), (0, &None), "W1");
        assert_eq!(
            last_condition(&decision, ConditionType::ScalingActive)
                .expect("condition is set")
                .reason,
            "ScalingDisabled"
        );
        assert!(decision.record.restrictions.contains(&Restriction::Disabled));
    }
}

#[test]
fn forbidden_windows_count_from_now_and_growth_is_capped() {
    for fixes in both_modes() {
        let fields = json!({
            "minReplicas": 1, "maxReplicas": 5, "scaleUpLimitFactor": 150,
            "upscaleForbiddenWindowSeconds": 29, "downscaleForbiddenWindowSeconds": 31,
        });
        let case = case(fixes, fields, 3, 8).scaled_ago(30);
        let decision = case.decide();
        assert_eq!(decision.desired, 5, "W4");
        let normal = decision.limited.expect("computed");
        // One step allows seven, and the maximum is five.
        assert_eq!(normal.upscale_capping, Some(true));
        assert!(
            is_true(&decision, ConditionType::AbleToScale)
                && is_true(&decision, ConditionType::ScalingLimited)
        );
        assert_eq!(decision.proposal.as_ref().expect("computed").replicas, 8);
        let facts: std::collections::BTreeSet<_> =
            decision.conditions.iter().map(|update| update.condition_type.into_str()).collect();
        assert_eq!(facts.len(), 7, "the six, and the one of converging");
    }
}

#[test]
fn a_downscale_within_its_delay_is_postponed() {
    for fixes in both_modes() {
        let fields = json!({
            "minReplicas": 1, "maxReplicas": 10, "upscaleForbiddenWindowSeconds": 30,
            "downscaleForbiddenWindowSeconds": 45, "downscaleDelayBelowWatermarkSeconds": 60,
        });
        let waiting = case(fixes, fields, 3, 1)
            .scaled_ago(90)
            .with_condition(&ConditionUpdate::below_low_watermark(true), 45);
        let decision = waiting.decide();
        assert_eq!((decision.desired, &decision.change), (3, &None), "W5");
        assert_eq!(decision.proposal.as_ref().expect("computed").replicas, 1);
        assert_eq!(decision.limited.expect("computed").downscale_capping, Some(true));
        assert!(
            is_true(&decision, ConditionType::AbleToScale)
                && is_true(&decision, ConditionType::ScalingLimited)
        );
        assert!(decision.record.restrictions.contains(&Restriction::Delay));
    }
}

#[test]
fn two_metrics_that_burst_at_once_are_followed_immediately() {
    for fixes in both_modes() {
        let fields = json!({
            "maxReplicas": 5, "upscaleForbiddenWindowSeconds": 30, "scaleUpLimitFactor": 100,
            "downscaleForbiddenWindowSeconds": 60, "downscaleDelayBelowWatermarkSeconds": 60,
            "tolerance": "1m",
        });
        let mut sources = metric_proposing(3, 5);
        sources.extend(metric_proposing(3, 5));
        let decision = DecisionCase::new(fixes, fields, 3, sources).scaled_ago(45).decide();
        assert_eq!(decision.desired, 5, "W6");
        assert!(!is_true(&decision, ConditionType::ScalingLimited));
        let change = decision.change.expect("grows");
        assert_eq!(change.reason, "requests{map[]} above target");
    }
}

#[test]
fn converging_ignores_delays_but_not_windows() {
    for fixes in both_modes() {
        let case = |window| {
            let fields = json!({
                "maxReplicas": 15, "upscaleForbiddenWindowSeconds": 60,
                "downscaleForbiddenWindowSeconds": window,
                "downscaleDelayBelowWatermarkSeconds": 60,
                "convergeTowardsWatermark": "highwatermark",
            });
            // Inside of the band, and so far below the high watermark that four are enough.
            DecisionCase::new(fixes, fields, 5, vec![external_metric(760, 700, 1_000)])
                .scaled_ago(45)
                .decide()
        };
        let decision = case(30);
        assert_eq!(decision.desired, 4, "W7");
        assert_eq!(
            decision.change.expect("fits").reason,
            "Metric within watermarks, attempting to scale to converge towards watermark"
        );
        let decision = case(60);
        assert_eq!((decision.desired, &decision.change), (5, &None), "W8");
        assert_eq!(
            last_condition(&decision, ConditionType::AbleToScale).expect("condition is set").reason,
            "BackoffBoth"
        );
    }
}

#[test]
fn a_metric_below_its_watermark_for_long_enough_is_followed() {
    for fixes in both_modes() {
        let fields = json!({
            "maxReplicas": 10, "upscaleForbiddenWindowSeconds": 30, "scaleDownLimitFactor": 50,
            "downscaleForbiddenWindowSeconds": 45, "downscaleDelayBelowWatermarkSeconds": 60,
        });
        let decision = case(fixes, fields, 8, 5)
            .scaled_ago(90)
            .with_condition(&ConditionUpdate::below_low_watermark(true), 61)
            .decide();
        assert_eq!(
            (decision.desired, is_true(&decision, ConditionType::ScalingLimited)),
            (5, false),
            "W9"
        );
    }
}

#[test]
fn surge_pods_of_a_rolling_update_neither_add_nor_keep_replicas() {
    for fixes in both_modes() {
        let mut surging = case(fixes, json!({"maxReplicas": 40}), 25, 25).scaled_ago(120);
        surging.scale.status_replicas = 50;
        let decision = surging.decide();
        assert_eq!((decision.desired, &decision.change), (25, &None), "W10");
        assert!(!is_true(&decision, ConditionType::AbleToScale));

        let fields = json!({
            "maxReplicas": 40, "downscaleForbiddenWindowSeconds": 60, "scaleDownLimitFactor": 30,
            "downscaleDelayBelowWatermarkSeconds": 60,
        });
        let mut surging = case(fixes, fields, 25, 20)
            .scaled_ago(120)
            .with_condition(&ConditionUpdate::below_low_watermark(true), 120);
        surging.scale.status_replicas = 50;
        assert_eq!(surging.decide().desired, 20, "W11");
    }
}

#[test]
fn the_largest_proposal_wins_and_is_named() {
    for fixes in both_modes() {
        let of = |name: &str, replicas: i64| {
            let sum = replicas * 1_000 / 5;
            source(
                name,
                Ok(plimsoll_core::scaling::MetricValue::Sum { sum, at: None }),
                (999, 1_000),
            )
        };
        let sources = vec![of("one", 10), of("other", 8)];
        let fields = json!({"tolerance": "1m", "scaleUpLimitFactor": 100});
        let decision = DecisionCase::new(fixes, fields, 5, sources).decide();
        let combined = decision.proposal.as_ref().expect("computed");
        assert_eq!((combined.replicas, &*combined.metric_name), (10, "one{map[]}"), "K1 and K3");
        let chosen: Vec<bool> = decision.metrics.iter().map(|row| row.is_chosen).collect();
        assert_eq!(chosen, [true, false]);
    }
}

#[test]
fn one_unavailable_metric_blocks_all_changes() {
    let silent = || source("deadbeef", Err(MetricError::Failed("cause".to_owned())), (1, 2));
    for fixes in both_modes() {
        let mut sources = metric_proposing(3, 8);
        sources.push(silent());
        let case = DecisionCase::new(fixes, json!({"maxReplicas": 10}), 3, sources);
        let decision = case.decide();
        assert_eq!((decision.desired, &decision.change), (3, &None), "K2");
        assert!(decision.metrics[0].result.is_ok(), "the other metric is reported nevertheless");
        let condition =
            last_condition(&decision, ConditionType::ScalingActive).expect("condition is set");
        assert_eq!((condition.holds, &*condition.reason), (false, "FailedGetExternalMetric"));
        assert!(
            last_condition(&decision, ConditionType::BelowLowWatermark).is_none(),
            "delays continue"
        );
        assert_eq!(decision.record.restrictions, [Restriction::MetricUnknown]);
    }
}

#[test]
fn restrictions_have_names_from_a_fixed_list() {
    let fixes = both_modes()[1];
    let fields = json!({
        "maxReplicas": 12, "scaleUpLimitFactor": 30, "dryRun": true,
        "upscaleForbiddenWindowSeconds": 60,
    });
    let restrictions = |case: &DecisionCase| -> Vec<&'static str> {
        case.decide().record.restrictions.into_iter().map(|reason| reason.into_str()).collect()
    };
    let far = case(fixes, fields.clone(), 10, 30);
    // One step would allow thirteen, and the maximum is twelve.
    assert_eq!(restrictions(&far), ["upscale_capping", "max", "dry_run"]);
    assert_eq!(restrictions(&far.scaled_ago(30)), ["upscale_capping", "max", "forbidden_window"]);
    let mut wide = fields.clone();
    wide["scaleUpLimitFactor"] = 100.into();
    assert_eq!(restrictions(&case(fixes, wide, 10, 14)), ["max", "dry_run"]);
    let inside =
        DecisionCase::new(fixes, fields.clone(), 10, vec![external_metric(1_000, 900, 1_100)]);
    assert_eq!(restrictions(&inside), ["within_bounds"]);
    let mut few = fields;
    few["minAvailableReplicaPercentage"] = 50.into();
    let mut few = case(fixes, few, 10, 14);
    for (number, pod) in few.pods.iter_mut().enumerate().skip(2) {
        *pod = super::pending_pod(number, 60);
    }
    assert_eq!(restrictions(&few), ["availability"]);
}

#[test]
fn a_proposal_beyond_rate_and_bound_reports_the_one_that_limits_it() {
    for fixes in both_modes() {
        let of = |max: i32, wanted, proposed| {
            let case = case(fixes, json!({"minReplicas": 1, "maxReplicas": max}), wanted, proposed);
            case.decide().record.restrictions
        };
        // One step adds at most half of the replicas.
        let at_the_most = of(12, 10, 40);
        assert!(at_the_most.contains(&Restriction::UpscaleCapping), "{at_the_most:?}");
        assert!(at_the_most.contains(&Restriction::Max), "{at_the_most:?}");
        let on_the_way = of(20, 10, 40);
        assert!(on_the_way.contains(&Restriction::UpscaleCapping), "{on_the_way:?}");
        assert!(!on_the_way.contains(&Restriction::Max), "{on_the_way:?}");
    }
}
