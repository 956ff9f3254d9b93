//! Every number can be recomputed from its explanation alone.

use plimsoll_core::{
    api::{ResourceList, vpa::ContainerPolicy},
    recommender::{
        Percentiles, ResourceExplanation, Settings, VpaSettings,
        explanation::{EstimateStep, Explanation},
        recommend,
    },
    types::quantity::Quantity,
};
use proptest::prelude::*;

use super::{minute, properties};
use crate::support::tier;

/// Rounds a float to an amount by the model's documented rule.
fn cut(value: f64) -> i64 {
    if value.is_nan() { 0 } else { value.clamp(0.0, 1e14) as i64 }
}

fn multiple(value: i64, of: i64) -> i64 {
    (value + of - 1) / of * of
}

/// A second implementation of the chain, from its description, with only the explanation's fields as inputs.
pub struct Recomputed {
    pub target: Quantity,
    pub lower: Quantity,
    pub upper: Quantity,
    pub uncapped: Quantity,
}

/// Recomputes the numbers of an explanation.
pub fn recompute(explanation: &ResourceExplanation, is_cpu: bool) -> Recomputed {
    let amount = |step: &EstimateStep| {
        let read = step.largest_replica.unwrap_or(step.read);
        let base = cut(if is_cpu { read * 1000.0 } else { read });
        let mut amount = base + cut(base as f64 * explanation.margin);
        if let Some(throttled) = explanation.throttled {
            amount = cut(amount as f64 * throttled.factor);
        }
        if let Some(stretch) = step.stretch {
            let factor = 1.0 + stretch.weight / explanation.evidence.confidence;
            amount = cut(amount as f64
                * match stretch.exponent {
                    1 => factor,
                    -2 => 1.0 / (factor * factor),
                    other => panic!("exponent {other} is not documented"),
                });
        }
        amount.max(explanation.floor.amount)
    };
    let print = |amount: i64| {
        let mut amount = multiple(amount, explanation.rounding.multiple);
        if explanation.rounding.whole_cores {
            amount = multiple(amount, 1000);
        }
        let text = match (is_cpu, explanation.rounding.humanized) {
            (true, _) => format!("{amount}m"),
            (false, false) => amount.to_string(),
            (false, true) => humanized(amount),
        };
        text.parse::<Quantity>().expect("a quantity")
    };
    let hold = |mut value: Quantity| {
        if let Some(min) = explanation.cap.min {
            value = value.max(min);
        }
        explanation.cap.max.map_or(value, |max| value.min(max))
    };
    let target = amount(&explanation.target);
    let mut upper = amount(&explanation.upper);
    if let Some(factor) = explanation.upper_bound_factor {
        upper = upper.min(cut(target as f64 * factor.max(1.0)));
    }
    Recomputed {
        target: hold(print(target)),
        lower: hold(print(amount(&explanation.lower))),
        upper: hold(print(upper)),
        uncapped: print(target),
    }
}

fn humanized(amount: i64) -> String {
    let units = [("Ti", 1_i64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    match units.into_iter().find(|(_, unit)| amount >= *unit) {
        Some((suffix, unit)) => format!("{:.2}{suffix}", amount as f64 / unit as f64),
        None => amount.to_string(),
    }
}

fn check(explanation: Option<&ResourceExplanation>, numbers: [Option<Quantity>; 4], is_cpu: bool) {
    let again = recompute(explanation.expect("has an explanation"), is_cpu);
    let again = [again.target, again.lower, again.upper, again.uncapped];
    assert_eq!(again.map(Some), numbers, "{explanation:?}");
}

fn limit(most: i64) -> impl Strategy<Value = Option<Quantity>> {
    prop::option::of((0..most).prop_map(|milli| format!("{milli}m").parse().expect("a quantity")))
}

fn policy() -> impl Strategy<Value = ContainerPolicy> {
    let memory = 4_000_000_000_000;
    (limit(8000), limit(memory), limit(8000), limit(memory)).prop_map(|(a, b, c, d)| {
        ContainerPolicy {
            container_name: "*".into(),
            min_allowed: ResourceList::cpu_and_memory(a, b),
            max_allowed: ResourceList::cpu_and_memory(c, d),
            ..ContainerPolicy::default()
        }
    })
}

fn percentiles() -> impl Strategy<Value = Percentiles> {
    (0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64).prop_map(|(lower, target, upper)| Percentiles {
        lower,
        target,
        upper,
        ..Percentiles::default()
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let limits = (limit(8000), limit(4_000_000_000_000), prop::option::of(0.5..9.0_f64));
    let rounding = (1..300_i64, 1..70_000_000_i64, any::<bool>(), any::<bool>());
    let floors = (0.0..900.0_f64, 0.0..900.0_f64, 0.0..2.0_f64);
    let estimates = (percentiles(), percentiles(), properties::fixes(), any::<bool>());
    (limits, rounding, floors, estimates).prop_map(
        |((max_cpu, max_memory, factor), (millis, bytes, humanize, integer), floors, estimates)| {
            Settings {
                max_cpu,
                max_memory,
                upper_bound_factor: factor,
                round_millicores: millis,
                round_bytes: bytes,
                humanize_memory: humanize,
                integer_cpu: integer,
                pod_floor_millicores: floors.0,
                pod_floor_mebibytes: floors.1,
                margin: floors.2,
                cpu: estimates.0,
                memory: estimates.1,
                fixes: estimates.2,
                per_replica_peaks: estimates.3,
                ..Settings::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn targets_and_bounds_follow_from_the_explanation_alone(
        events in properties::events(),
        settings in settings(),
        policy in prop::option::of(policy()),
        whole in any::<bool>(),
        second in any::<bool>(),
        now in 0..40_000_u32,
    ) {
        let mut history = properties::history(&events, &settings);
        let rules = VpaSettings::default().rules(None, &settings);
        if second {
            history.container_mut("second", minute(0), &rules);
        }
        let vpa_settings = VpaSettings {
            policies: policy.into_iter().collect(),
            integer_cpu_containers: whole.then(|| "app".into()).into_iter().collect(),
            ..VpaSettings::default()
        };
        let recommendation = recommend(&vpa_settings, &history, &settings, minute(now));
        prop_assert!(!recommendation.containers.is_empty());
        for container in recommendation.containers {
            // Through JSON text, so that only printed values are used.
            let text = serde_json::to_string(&container.explanation).expect("can be written");
            let explanation: Explanation = serde_json::from_str(&text).expect("can be read");
            let all = [container.target, container.lower, container.upper, container.uncapped];
            check(explanation.cpu.as_ref(), all.map(|amounts| amounts.cpu), true);
            check(explanation.memory.as_ref(), all.map(|amounts| amounts.memory), false);
        }
    }
}
