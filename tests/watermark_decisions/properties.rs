//! Properties that hold for any object and any value, except for the exemptions that upstream's rules name.

use std::time::Duration;

use plimsoll_core::{
    scaling::Position,
    types::compat::{Compat, Fixes},
    watermark::{
        Decision, ForcedReason, WpaOptions, conditions::ConditionUpdate, options::Fallback,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DecisionCase, ago, external_metric, pods};
use crate::support::tier;

/// An object, its state, and its metric.
#[derive(Clone, Debug)]
struct GeneratedCase {
    fields: Value,
    wanted: i32,
    ready: usize,
    marks: (i64, i64),
    sum: i64,
    scaled: Option<u64>,
    outside: Option<u64>,
    options: WpaOptions,
    /// How long the metric has been unavailable, if it is.
    unknown: u64,
}

/// Generates options beyond the object's fields.
fn options() -> impl Strategy<Value = WpaOptions> {
    let fallback = prop::option::of((1..90_i32, 0..600_u64));
    let delay = || prop::option::of((0..600_u64).prop_map(Duration::from_secs));
    (any::<[bool; 4]>(), fallback, delay(), delay()).prop_map(
        |([partial, each_delay, to_zero, modulo], fallback, pending_counts, starting_ignored)| {
            let fallback = fallback.map(|(replicas, seconds)| Fallback {
                replicas,
                after: Duration::from_secs(seconds),
            });
            WpaOptions {
                partial_metrics: partial,
                fallback,
                delay_per_metric: each_delay,
                scale_to_zero: to_zero,
                modulo_of_result: modulo,
                pending_counts_for: pending_counts,
                starting_ignored_for: starting_ignored,
                ..WpaOptions::default()
            }
        },
    )
}

fn drawn() -> impl Strategy<Value = GeneratedCase> {
    let object = (
        1..20_i32,
        0..60_i32,
        prop_oneof![Just("absolute"), Just("average")],
        0..400_i32,
        0..200_i32,
        0..100_i32,
        1..6_i32,
        prop_oneof![Just(""), Just("highwatermark"), Just("lowwatermark")],
        prop_oneof![Just(0), 1..600_i32],
    );
    let state = (
        0..70_i32,
        1..70_usize,
        1..5_000_i64,
        0..5_000_i64,
        0..400_000_i64,
        prop::option::of(0..700_u64),
        prop::option::of(0..700_u64),
    );
    let beyond = (options(), 0..700_u64);
    (object, state, beyond).prop_map(|(object, state, (options, unknown))| {
        let (min, more, algorithm, tolerance, up, down, modulo, converge, delay) = object;
        let (wanted, ready, low, gap, sum, scaled, outside) = state;
        let fields = json!({
            "minReplicas": min, "maxReplicas": min + more, "algorithm": algorithm,
            "tolerance": format!("{tolerance}m"), "scaleUpLimitFactor": up,
            "scaleDownLimitFactor": down, "replicaScalingAbsoluteModulo": modulo,
            "convergeTowardsWatermark": converge, "tolerateZero": true,
            "upscaleDelayAboveWatermarkSeconds": delay,
            "downscaleDelayBelowWatermarkSeconds": delay,
        });
        let marks = (low, low + gap);
        GeneratedCase { fields, wanted, ready, marks, sum, scaled, outside, options, unknown }
    })
}

fn case(drawn: &GeneratedCase, sum: i64, fixes: Fixes) -> DecisionCase {
    let (low, high) = drawn.marks;
    let mut case = DecisionCase::new(
        fixes,
        drawn.fields.clone(),
        drawn.wanted,
        vec![external_metric(sum, low, high)],
    );
    case.pods = pods(drawn.ready);
    case.scale.status_replicas = drawn.wanted.max(1);
    if let Some(seconds) = drawn.scaled {
        case = case.scaled_ago(seconds);
    }
    if let Some(seconds) = drawn.outside {
        case = case
            .with_condition(&ConditionUpdate::above_high_watermark(true), seconds)
            .with_condition(&ConditionUpdate::below_low_watermark(true), seconds);
    }
    case
}

/// Applies the generated options to the case.
fn with_options(drawn: &GeneratedCase, case: DecisionCase) -> DecisionCase {
    let mut case = case.with_options(drawn.options);
    case.memory.unknown_since = Some(ago(drawn.unknown));
    case
}

fn forced(decision: &Decision) -> Option<ForcedReason> {
    decision.change.as_ref().and_then(|change| change.forced)
}

proptest! {
    #![proptest_config(tier::properties(64, 5_000))]

    #[test]
    fn a_value_above_the_high_watermark_never_removes_replicas(
        drawn in drawn(), is_upstream in any::<bool>(),
    ) {
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let case = case(&drawn, drawn.sum, Fixes::for_compat(compat));
        let decision = case.decide();
        let is_above = decision.proposal.as_ref().is_ok_and(|combined| combined.is_above);
        // The maximum takes precedence over metrics.
        if is_above && forced(&decision) != Some(ForcedReason::AboveMax) && drawn.wanted > 0 {
            prop_assert!(decision.desired >= drawn.wanted, "{decision:#?}");
        }
    }

    #[test]
    fn bounds_hold_for_any_metric_and_any_spec(
        drawn in drawn(), is_known in any::<bool>(),
    ) {
        let mut case = with_options(&drawn, case(&drawn, drawn.sum, Fixes::default()));
        if !is_known {
            case.sources[0].value = Err(plimsoll_core::scaling::MetricError::NotANumber);
        }
        let decision = case.decide();
        let limits = case.rules.limits;
        let is_within = (limits.min..=limits.max).contains(&decision.desired);
        if drawn.options.scale_to_zero && decision.desired == 0 {
            // The last replica may be removed, and a target at zero may stay there.
        } else if drawn.wanted > 0 || drawn.options.scale_to_zero {
            prop_assert!(is_within, "{decision:#?}");
        } else {
            // A target that was scaled to zero stays there.
            prop_assert_eq!(decision.desired, 0);
            prop_assert!(decision.change.is_none());
        }
    }

    #[test]
    fn no_change_exceeds_the_scale_rate(
        drawn in drawn(), is_upstream in any::<bool>(), is_known in any::<bool>(),
    ) {
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let mut case = case(&drawn, drawn.sum, Fixes::for_compat(compat));
        if !is_upstream {
            case = with_options(&drawn, case);
        }
        if !is_known {
            case.sources[0].value = Err(plimsoll_core::scaling::MetricError::NotANumber);
        }
        let decision = case.decide();
        // The minimum of replicas is removed as a whole, if the last one may be.
        let ends = case.rules.may_be_zero() && decision.desired == 0;
        if forced(&decision).is_none() && drawn.wanted > 0 && !ends {
            let limits = case.rules.limits;
            let (down, up) = (limits.downscale_limit(drawn.wanted), limits.upscale_limit(drawn.wanted));
            prop_assert!((down..=up).contains(&decision.desired), "{down}..={up}: {decision:#?}");
        }
    }

    #[test]
    fn a_larger_value_never_proposes_fewer_replicas_unless_converging(
        drawn in drawn(), more in 0..100_000_i64,
    ) {
        // Between the watermarks, an object that converges towards one of them scales against the value.
        let converges = drawn.fields["convergeTowardsWatermark"] != "";
        let proposal = |sum| {
            let case = case(&drawn, sum, Fixes::default());
            let (rows, _) = case.setting().combine(&case.sources);
            rows[0].result.clone().ok()
        };
        if let (Some(less), Some(greater)) = (proposal(drawn.sum), proposal(drawn.sum + more))
            && !(converges && [less.position, greater.position].contains(&Position::Inside))
        {
            prop_assert!(less.replicas <= greater.replicas, "{less:?} {greater:?}");
        }
        let order = |position| match position {
            Position::Below => 0,
            Position::Inside => 1,
            Position::Above => 2,
        };
        if let (Some(less), Some(greater)) = (proposal(drawn.sum), proposal(drawn.sum + more)) {
            prop_assert!(order(less.position) <= order(greater.position));
        }
    }

    #[test]
    fn an_unavailable_metric_changes_nothing_within_the_bounds(
        drawn in drawn(), is_upstream in any::<bool>(), error_case in 0..4_u8,
    ) {
        use plimsoll_core::scaling::MetricError;
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let mut case = case(&drawn, drawn.sum, Fixes::for_compat(compat));
        case.sources[0].value = Err(match error_case {
            0 => MetricError::Failed("away".to_owned()),
            1 => MetricError::Empty("external"),
            2 => MetricError::NotANumber,
            _ => MetricError::Stale { at: ago(900) },
        });
        let decision = case.decide();
        let limits = case.rules.limits;
        if is_upstream || (limits.min..=limits.max).contains(&drawn.wanted) {
            prop_assert_eq!(decision.desired, drawn.wanted);
            prop_assert!(decision.change.is_none());
        }
    }

    #[test]
    fn the_same_input_gives_the_same_decision_without_a_panic(
        drawn in drawn(), sum in any::<i64>(), low in any::<i64>(), high in any::<i64>(),
    ) {
        for compat in [Compat::Upstream, Compat::Plimsoll] {
            let mut wild = case(&drawn, sum, Fixes::for_compat(compat));
            if let Some(band) = &mut wild.sources[0].band {
                (band.low, band.high) = (low, high);
            }
            prop_assert_eq!(wild.decide(), wild.decide());
        }
    }
}
