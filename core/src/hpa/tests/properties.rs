//! Properties of every decision, for arbitrary clusters.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{Case, NOW, external, pod, put, usage};
use crate::hpa::hpa_state::{HpaState, Recommendation, ScaleEvent, Windows};
use crate::hpa::spec::{Behavior, ScalingRules};
use crate::hpa::stabilization::{with_behavior, without_behavior};
use crate::hpa::{Fixes, Zone};

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
