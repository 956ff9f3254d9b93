//! What holds for any object and any value, each after the exemptions that upstream's rules name.

use plimsoll::{
    compat::{Compat, Fixes},
    watermark::{Decision, Forced, Position, conditions::Said},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Case, external, pods};

/// An object, what it has, and what its metric says.
#[derive(Clone, Debug)]
struct Drawn {
    fields: Value,
    wanted: i32,
    ready: usize,
    marks: (i64, i64),
    sum: i64,
    scaled: Option<u64>,
    outside: Option<u64>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
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
    (object, state).prop_map(|(object, state)| {
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
        Drawn { fields, wanted, ready, marks: (low, low + gap), sum, scaled, outside }
    })
}

fn case(drawn: &Drawn, sum: i64, fixes: Fixes) -> Case {
    let (low, high) = drawn.marks;
    let mut case =
        Case::new(fixes, drawn.fields.clone(), drawn.wanted, vec![external(sum, low, high)]);
    case.pods = pods(drawn.ready);
    case.scale.current = drawn.wanted.max(1);
    if let Some(seconds) = drawn.scaled {
        case = case.scaled(seconds);
    }
    if let Some(seconds) = drawn.outside {
        case = case.said(&Said::above(true), seconds).said(&Said::below(true), seconds);
    }
    case
}

fn forced(decision: &Decision) -> Option<Forced> {
    decision.change.as_ref().and_then(|change| change.forced)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn above_the_high_mark_there_are_never_fewer_than_now(
        drawn in drawn(), is_upstream in any::<bool>(),
    ) {
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let case = case(&drawn, drawn.sum, Fixes::of(compat));
        let decision = case.decide();
        let is_above = decision.combined.as_ref().is_ok_and(|combined| combined.is_above);
        // The most goes before the metrics.
        if is_above && forced(&decision) != Some(Forced::AboveMax) && drawn.wanted > 0 {
            prop_assert!(decision.desired >= drawn.wanted, "{decision:#?}");
        }
    }

    #[test]
    fn bounds_hold_whatever_the_metric_says(drawn in drawn(), is_known in any::<bool>()) {
        let mut case = case(&drawn, drawn.sum, Fixes::default());
        if !is_known {
            case.sources[0].asked = Err(plimsoll::replicas::Unknown::NotANumber);
        }
        let decision = case.decide();
        // Who was scaled to nothing stays there.
        if drawn.wanted > 0 {
            let limits = case.rules.limits;
            prop_assert!((limits.min..=limits.max).contains(&decision.desired), "{decision:#?}");
        } else {
            prop_assert_eq!(decision.desired, 0);
            prop_assert!(decision.change.is_none());
        }
    }

    #[test]
    fn no_change_is_faster_than_may_be(drawn in drawn(), is_upstream in any::<bool>()) {
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let case = case(&drawn, drawn.sum, Fixes::of(compat));
        let decision = case.decide();
        if forced(&decision).is_none() && drawn.wanted > 0 {
            let limits = case.rules.limits;
            let (down, up) = (limits.down_to(drawn.wanted), limits.up_to(drawn.wanted));
            prop_assert!((down..=up).contains(&decision.desired), "{down}..={up}: {decision:#?}");
        }
    }

    #[test]
    fn a_larger_value_never_asks_for_fewer(drawn in drawn(), more in 0..100_000_i64) {
        // Between the marks replicas may go either way, so only what is outside on the same side is compared.
        let proposal = |sum| {
            let case = case(&drawn, sum, Fixes::default());
            let (rows, _) = case.setting().combine(&case.sources);
            rows[0].outcome.clone().ok().map(|asked| asked.proposal)
        };
        if let (Some(less), Some(greater)) = (proposal(drawn.sum), proposal(drawn.sum + more))
            && less.position == greater.position
            && less.position != Position::Inside
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
    fn what_is_not_known_changes_nothing_inside_of_the_bounds(
        drawn in drawn(), is_upstream in any::<bool>(), how in 0..4_u8,
    ) {
        use plimsoll::replicas::Unknown;
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let mut case = case(&drawn, drawn.sum, Fixes::of(compat));
        case.sources[0].asked = Err(match how {
            0 => Unknown::Failed("away".to_owned()),
            1 => Unknown::Empty("external"),
            2 => Unknown::NotANumber,
            _ => Unknown::Stale { at: super::ago(900) },
        });
        let decision = case.decide();
        let limits = case.rules.limits;
        if is_upstream || (limits.min..=limits.max).contains(&drawn.wanted) {
            prop_assert_eq!(decision.desired, drawn.wanted);
            prop_assert!(decision.change.is_none());
        }
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_none_panics(
        drawn in drawn(), sum in any::<i64>(), low in any::<i64>(), high in any::<i64>(),
    ) {
        for compat in [Compat::Upstream, Compat::Plimsoll] {
            let mut wild = case(&drawn, sum, Fixes::of(compat));
            if let Some(band) = &mut wild.sources[0].band {
                (band.low, band.high) = (low, high);
            }
            prop_assert_eq!(wild.decide(), wild.decide());
        }
    }
}
