//! Properties of every decision, for arbitrary clusters.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{Case, NOW, external, pod, put, usage};
use crate::hpa::hpa_state::{HpaState, Recommendation, ScaleEvent, Windows};
use crate::hpa::spec::{Behavior, ScalingRules};
use crate::hpa::stabilization::{with_behavior, without_behavior};
use crate::hpa::{Fixes, Zone, assist};

const STATES: [&str; 6] = ["ready", "unready", "hot", "pending", "failed", "deleted"];

prop_compose! {
    fn behaviors()(
        is_there in any::<bool>(),
        window in proptest::option::of(0..600_i32),
        select in prop::sample::select(vec!["Max", "Min", "Disabled"]),
        value in 1..200_i32,
        period in 1..300_i32,
        kind in prop::sample::select(vec!["Pods", "Percent"]),
    ) -> Option<Value> {
        let rules = json!({"stabilizationWindowSeconds": window, "selectPolicy": select,
            "policies": [{"type": kind, "value": value, "periodSeconds": period}]});
        is_there.then(|| json!({"scaleUp": rules, "scaleDown": rules}))
    }
}

prop_compose! {
    /// A pass that is decided by metrics or by bounds; some pods are not ready, and some have no sample.
    fn cases()(
        replicas in 1..30_i32,
        min in 1..10_i32,
        more in 0..20_i32,
        target in 1..200_i32,
        pods in prop::collection::vec((0..3000_i64, prop::sample::select(STATES.to_vec()), any::<bool>()), 0..30),
        queue in prop::option::of(0..100_i64),
        history in prop::collection::vec((0..40_i32, 0..900_i64), 0..10),
        events in prop::collection::vec((1..20_i32, 0..400_i64), 0..6),
        behavior in behaviors(),
        is_fixed in any::<bool>(),
    ) -> Case {
        let mut metrics = vec![super::fixture::cpu(target)[0].clone()];
        if queue.is_some() {
            metrics.push(external("AverageValue", "3")[0].clone());
        }
        let mut case = Case::new(replicas, metrics.into()).bounds(min, min + more);
        case.pods = pods.iter().enumerate().map(|(index, (_, state, _))| {
            let mut pod = pod(index, 1000);
            if *state != "ready" {
                put(&mut pod, state);
            }
            pod
        }).collect();
        let samples = pods.iter().enumerate().filter(|(_, (_, _, is_there))| *is_there);
        case.usage = Ok(samples.map(|(index, (milli, ..))| usage(&format!("p{index}"), *milli)).collect());
        case.external = Ok(queue.into_iter().map(|value| if value > 50 { "100" } else { "1" }).collect());
        if let Some(behavior) = behavior {
            case.spec["behavior"] = behavior;
        }
        let at = |age: i64| super::fixture::ago(age);
        let event = |&(change, age): &(i32, i64)| ScaleEvent { change, at: at(age), outdated: false };
        case.memory = HpaState {
            recommendations: Some(history.iter().map(|&(replicas, age)| Recommendation { replicas, at: at(age) }).collect()),
            scale_up_events: events.iter().map(event).collect(),
            scale_down_events: events.iter().rev().map(event).collect(),
            ..HpaState::default()
        };
        case.with(if is_fixed { Fixes::ALL } else { Fixes::UPSTREAM })
    }
}

/// Annotations, each of which may be there. `NOW` is 1970-01-12T13:46:40Z.
const ANNOTATIONS: [(&str, &[&str]); 14] = [
    ("plimsoll.dev/cpu-initialization", &["0s", "30m"]),
    ("plimsoll.dev/initial-readiness", &["0s", "10m"]),
    ("plimsoll.dev/tolerance", &["0", "0.5", "1 pod", "up 3 pods, down 0"]),
    ("plimsoll.dev/pods", &["own", "selected"]),
    ("plimsoll.dev/utilization-of", &["request", "limit", "template"]),
    (
        "plimsoll.dev/schedule",
        &[
            "40 13 * * *, 10m, 5",
            "0 13 * * *, 1h, 1, 3",
            "0 13 * * *, 1h, 40, 50",
            "0 0 31 2 *, 1h, 9",
        ],
    ),
    (
        "plimsoll.dev/paused",
        &["up", "down", "all", "up at 4", "down at 4", "all until 1970-01-12T13:46:40Z"],
    ),
    ("plimsoll.dev/missing-pods", &["5%", "50%"]),
    ("plimsoll.dev/partial-metrics", &["upscale", "hold"]),
    ("plimsoll.dev/fallback-replicas", &["8 after 1", "1 after 1", "99 after 2"]),
    ("plimsoll.dev/scale-to-zero", &["true"]),
    ("plimsoll.dev/sync-period", &["5s"]),
    ("query.plimsoll.dev/rps", &["sum(x)"]),
    ("target.plimsoll.dev/rps", &["4", "value: 20"]),
];

prop_compose! {
    /// A pass over an object with annotations; metrics may have failed before.
    fn annotated_cases()(
        case in cases(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), ANNOTATIONS.len()),
        failing in prop::option::of(0..100_i64),
        queried in prop::option::of(0..60_i64),
    ) -> Case {
        let chosen = ANNOTATIONS.iter().zip(&choices).filter_map(|((key, values), choice)| {
            values.get(choice.index(values.len() + 2)).map(|value| (*key, *value))
        });
        let mut chosen: Vec<_> = chosen.collect();
        let has = |key: &str| chosen.iter().any(|(name, _)| *name == key);
        if has("query.plimsoll.dev/rps") != has("target.plimsoll.dev/rps") {
            chosen.retain(|(key, _)| !key.ends_with("/rps"));
        }
        let mut case = case.annotated(&chosen);
        case.memory.failing_since = failing.map(super::fixture::ago);
        case.queried = Ok(queried.map(|value| if value > 30 { "100" } else { "0" }).into_iter().collect());
        case
    }
}

proptest! {
    #[test]
    fn options_that_say_the_defaults_change_nothing(mut case in cases()) {
        // The defaults of the annotation are those of the flag, but it goes before the spec.
        case.spec["behavior"]["scaleUp"]["tolerance"] = Value::Null;
        let annotated = case.clone().annotated(&[
            ("plimsoll.dev/partial-metrics", "upscale"),
            ("plimsoll.dev/scale-to-zero", "false"),
            ("plimsoll.dev/missing-pods", "0%"),
            ("plimsoll.dev/utilization-of", "request"),
            ("plimsoll.dev/cpu-initialization", "2m"),
            ("plimsoll.dev/initial-readiness", "10s"),
            ("plimsoll.dev/tolerance", "0.1"),
            ("plimsoll.dev/sync-period", "30s"),
            ("plimsoll.dev/schedule", "0 0 31 2 *, 1h, 9; 46 13 * * *, 40s, 9"),
            ("plimsoll.dev/paused", "all at 9 until 1970-01-12T13:46:40Z"),
        ]);
        prop_assert_eq!(case.written(), annotated.written());
    }

    #[test]
    fn nothing_that_an_object_is_told_removes_replicas_while_metrics_are_not_available(mut case in annotated_cases()) {
        case.usage = Err("away".to_owned());
        case.external = Err("away".to_owned());
        case.queried = Err("away".to_owned());
        let decision = case.decide();
        let current = decision.current.unwrap_or_default();
        if decision.zone != Zone::AboveMax {
            prop_assert!(decision.write.is_none_or(|write| write > current), "{:?}", decision.write);
        }
    }

    #[test]
    fn nothing_that_an_object_is_told_removes_replicas_while_one_metric_is_not_available(
        mut case in annotated_cases(), is_usage in any::<bool>(),
    ) {
        case.spec["metrics"] = json!([super::fixture::cpu(50)[0], external("AverageValue", "5")[0]]);
        if is_usage {
            case.usage = Err("away".to_owned());
        } else {
            case.external = Err("away".to_owned());
        }
        let decision = case.decide();
        let current = decision.current.unwrap_or_default();
        if decision.zone != Zone::AboveMax {
            prop_assert!(decision.write.is_none_or(|write| write > current), "{:?}", decision.write);
        }
    }

    #[test]
    fn the_bounds_of_the_spec_hold_whatever_an_object_is_told(case in annotated_cases()) {
        let (min, max) = (case.spec["minReplicas"].as_i64(), case.spec["maxReplicas"].as_i64());
        let decision = case.decide();
        let to_zero = case.options.scale_to_zero && decision.desired == Some(0);
        if let Some(desired) = decision.desired.map(i64::from).filter(|_| !to_zero) {
            prop_assert!(Some(desired) <= max && Some(desired) >= min, "{desired} of {min:?} to {max:?}");
        }
    }

    #[test]
    fn assisting_never_has_fewer_than_the_hpa_controller_proposes(case in annotated_cases()) {
        let mut native = case.clone().annotated(&[]).with(Fixes::UPSTREAM);
        let up = native.spec["behavior"]["scaleUp"].clone();
        native.spec["behavior"] = json!({"scaleDown": {"selectPolicy": "Disabled"}});
        if !up.is_null() {
            native.spec["behavior"]["scaleUp"] = up;
        }
        let (ours, native) = (case.decide(), native.decide());
        let assisted = assist(&ours, &native);
        let current = ours.current.unwrap_or_default();
        let to = assisted.desired.unwrap_or(current);
        prop_assert!(to >= ours.desired.unwrap_or(current));
        match native.desired {
            // Unknown is not less.
            None => prop_assert!(to >= current),
            Some(desired) if desired > current => prop_assert!(to >= desired),
            Some(desired) if native.zone != Zone::Metrics => prop_assert!(to >= desired || to == 0),
            Some(_) => {
                let proposed = native.stabilization.map_or(current, |window| window.recommended);
                prop_assert!(to >= proposed.min(current) || to == 0, "{to} of {proposed}");
            }
        }
        prop_assert_eq!(assisted.write, (to != current).then_some(to));
    }
}

proptest! {
    #[test]
    fn bounds_always_hold(case in cases()) {
        let (min, max) = (case.spec["minReplicas"].as_i64(), case.spec["maxReplicas"].as_i64());
        let decision = case.decide();
        if let Some(desired) = decision.desired.map(i64::from) {
            prop_assert!(Some(desired) <= max && Some(desired) >= min, "{desired} of {min:?} to {max:?}");
        }
        if let (Some(write), Some(current)) = (decision.write, decision.current) {
            prop_assert_ne!(write, current);
        }
    }

    #[test]
    fn missing_metrics_never_scale_down(mut case in cases()) {
        let known = case.decide();
        if let Ok(usage) = &mut case.usage {
            usage.clear();
        }
        case.external = Err("no".to_owned());
        let blind = case.decide();
        if known.zone == Zone::Metrics {
            prop_assert_eq!(blind.write, None);
        }
    }

    #[test]
    fn one_failed_metric_never_scales_down(mut case in cases()) {
        case.spec["metrics"] = json!([super::fixture::cpu(50)[0], external("Value", "5")[0]]);
        case.memory.recommendations = Some(Vec::new());
        case.external = Err("no".to_owned());
        let decision = case.decide();
        if decision.zone == Zone::Metrics {
            prop_assert!(decision.write.is_none_or(|write| Some(write) > decision.current));
        }
    }

    #[test]
    fn the_same_input_gives_the_same_decision(case in cases()) {
        let (first, second) = (case.written(), case.written());
        prop_assert_eq!(&first, &second);
        let json = |memory: &HpaState| serde_json::to_string(memory).expect("JSON");
        let read: HpaState = serde_json::from_str(&json(&first.memory)).expect("a state");
        prop_assert_eq!(read, second.memory, "memory survives being written down");
    }

    #[test]
    fn memory_stays_bounded(
        recommended in prop::collection::vec(0..50_i32, 1..400),
        up in 0..120_i32,
        down in 0..600_i32,
        has_behavior in any::<bool>(),
    ) {
        let rules = |window| ScalingRules { stabilization_window_seconds: Some(window), ..ScalingRules::default() };
        let behavior = Behavior { scale_up: rules(up), scale_down: rules(down) };
        let window = Duration::from_secs(u64::from(down.unsigned_abs()));
        let mut memory = HpaState::default();
        for (pass, wanted) in recommended.into_iter().enumerate() {
            let now = NOW.later(Duration::from_secs(15 * pass as u64));
            if has_behavior {
                with_behavior(&mut memory, wanted, 5, &behavior, window, now);
            } else {
                without_behavior(&mut memory, wanted, 5, window, now, Fixes::ALL);
            }
            let most = up.max(down) / 15 + 2;
            prop_assert!(memory.recommendations().len() <= usize::try_from(most).unwrap_or(0));
        }
    }

    #[test]
    fn a_compacted_memory_decides_the_same(case in cases(), later in 0..600_u64) {
        let spec: k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerSpec =
            serde_json::from_value(case.spec.clone()).expect("a spec");
        let spec = crate::hpa::Spec::read(&spec).expect("amounts");
        let windows = Windows::of(spec.behavior.as_ref(), case.config.downscale_stabilization);
        let compact = case.memory.compact(windows, NOW);
        prop_assert!(compact.recommendations().len() <= case.memory.recommendations().len());
        let after = case.clone().change(|case| case.memory = compact.clone()).decide();
        let before = case.decide();
        prop_assert_eq!((before.desired, before.restrictions), (after.desired, after.restrictions));
        // This also holds for any later pass.
        let now = NOW.later(Duration::from_secs(later));
        let (mut whole, mut small) = (case.memory.clone(), compact);
        let window = case.config.downscale_stabilization;
        let mut held = [0; 2];
        for (held, memory) in held.iter_mut().zip([&mut whole, &mut small]) {
            *held = match &spec.behavior {
                Some(behavior) => with_behavior(memory, 3, 9, behavior, window, now).stabilized,
                None => without_behavior(memory, 3, 9, window, now, case.fixes).stabilized,
            };
        }
        prop_assert_eq!(held[0], held[1]);
    }
}
