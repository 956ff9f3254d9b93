//! Behavior of upstream that is easily missed.

use serde_json::json;

use super::fixture::{Case, ago, condition, cpu, external, object, pods, reason};
use crate::{
    hpa::{Fix, Fixes},
    scaling::{Position, Restriction},
};

#[test]
fn a_stabilized_recommendation_scales_up_without_behavior_and_has_no_reason() {
    let case = Case::new(3, cpu(50)).using(&[500; 3]).bounds(1, 20).change(|case| {
        case.memory =
            serde_json::from_value(json!({"recommendations": [{"replicas": 9, "at": ago(30)}]}))
                .expect("a memory");
    });
    let decision = case.written();
    assert_eq!((decision.desired, decision.rescale_reason.as_str()), (Some(6), ""));
    assert_eq!(
        decision.events.last().map(|event| event.message.as_str()),
        Some("New size: 6; reason: ")
    );
    let with_behavior = case.change(|case| case.spec["behavior"] = json!({})).decide();
    assert_eq!(with_behavior.desired, Some(3));
}

#[test]
fn unready_workloads_scale_down_by_a_value_and_stay_by_cpu() {
    let states: Vec<(usize, &str)> = (0..5).map(|index| (index, "unready")).collect();
    let by_value =
        Case::new(5, object("Value", "10")).state(&states).change(|case| case.object = Ok("50"));
    assert_eq!(by_value.decide().desired, Some(2));
    let by_cpu = Case::new(5, cpu(50)).using(&[900; 5]).state(&states).decide();
    assert_eq!(
        (by_cpu.desired, reason(&by_cpu, "ScalingActive").as_str()),
        (None, "FailedGetResourceMetric")
    );
}

#[test]
fn a_negative_average_is_the_maximum_and_a_negative_value_the_minimum() {
    let of =
        |kind| Case::new(3, external(kind, "10")).change(|case| case.external = Ok(vec!["-5"]));
    assert_eq!(of("AverageValue").decide().desired, Some(6));
    assert_eq!(of("Value").decide().desired, Some(2));
}

#[test]
fn without_status_replicas_the_average_is_undefined() {
    let case = Case::new(3, object("AverageValue", "10")).change(|case| {
        case.object = Ok("30");
        if let Ok(scale) = &mut case.scale {
            scale.status_replicas = 0;
        }
    });
    let shown =
        |case: &Case| case.decide().evaluations.remove(0).outcome.expect("a proposal").value;
    assert_eq!(shown(&case), i64::MIN);
    assert_eq!(shown(&case.with(Fixes::ALL)), 0);
}

#[test]
fn without_metrics_a_condition_without_a_name_is_set() {
    let case = Case::new(3, json!([])).change(|case| case.no_defaults = true);
    let decision = case.written();
    assert_eq!((decision.desired, decision.error.as_deref()), (Some(2), None));
    assert_eq!(condition(&decision, ""), Some((String::new(), String::new())));
}

#[test]
fn the_observed_generation_is_dropped_by_a_pass_that_fills_the_status() {
    let status = json!({"desiredReplicas": 4, "currentReplicas": 4, "observedGeneration": 3});
    let case = Case::new(3, cpu(50)).change(|case| case.status = status);
    assert_eq!(case.decide().status.observed_generation, None);
    let unreadable = case.change(|case| {
        case.scale = Err(crate::hpa::ScaleError::Failed("no".to_owned()));
    });
    let decision = unreadable.decide();
    assert_eq!(decision.status.observed_generation, Some(3));
    assert_eq!(decision.restrictions, [Restriction::NoScale]);
}

#[test]
fn restrictions_are_returned_as_data() {
    let decide = |case: Case| case.decide().restrictions;
    let recently = json!({"recommendations": [{"replicas": 6, "at": ago(60)}]});
    let slow = json!({"scaleUp": {"stabilizationWindowSeconds": 60,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}, "scaleDown": {"selectPolicy": "Disabled"}});
    let high = || Case::new(3, cpu(50)).using(&[900; 3]);
    let low = || Case::new(5, cpu(50)).using(&[200; 5]);
    let with_behavior = |case: Case| case.change(|case| case.spec["behavior"] = slow.clone());
    let remember = |case: Case| {
        case.change(|case| {
            case.memory = serde_json::from_value(recently.clone()).expect("a memory");
        })
    };
    assert_eq!(decide(high()), []);
    assert_eq!(decide(Case::new(3, cpu(50)).using(&[500; 3])), [Restriction::WithinTolerance]);
    assert_eq!(decide(Case::new(3, cpu(50)).using(&[900])), [Restriction::Padding]);
    assert_eq!(decide(high().bounds(2, 4)), [Restriction::Max]);
    assert_eq!(decide(low().bounds(4, 6)), [Restriction::Min]);
    assert_eq!(decide(with_behavior(high())), [Restriction::ScaleUpLimit]);
    assert_eq!(decide(with_behavior(low())), [Restriction::ScaleDownLimit]);
    assert_eq!(decide(remember(low())), [Restriction::StabilizedDown]);
    assert_eq!(decide(Case::new(3, cpu(50))), [Restriction::MetricUnknown]);
    let two = json!([cpu(50)[0], external("Value", "1")[0]]);
    assert_eq!(decide(Case::new(5, two).using(&[200; 5])), [Restriction::PartialMetrics]);
    assert_eq!(decide(Case::new(0, cpu(50))), [Restriction::Disabled]);
    let many = Case::new(9, cpu(50)).change(|case| case.pods = pods(9));
    assert_eq!(decide(many), [Restriction::Max]);
    let without = high().with(Fixes::ALL.without(Fix::WindowOnlyHolds));
    assert_eq!(decide(without), []);
}

#[test]
fn a_decision_is_recorded_with_its_reasons() {
    let decision = Case::new(3, cpu(50)).using(&[900, 900]).bounds(2, 4).written();
    let record = serde_json::to_value(&decision).expect("JSON");
    let proposal = &record["evaluations"][0]["outcome"]["Ok"];
    assert_eq!(proposal["groups"]["reasons"], json!({"p2": "no_sample"}));
    assert_eq!((&proposal["ratio"], &proposal["paddedRatio"]), (&json!(1.8), &json!(1.2)));
    assert_eq!(record["limited"]["by"], "nothing");
    assert_eq!((&record["zone"], &record["desired"]), (&json!("metrics"), &json!(4)));
}

#[test]
fn the_record_that_all_kinds_share_has_each_metric_with_its_target() {
    let metrics = json!([cpu(50)[0], external("Value", "1")[0]]);
    let (decision, record) = Case::new(3, metrics).using(&[900; 3]).decide_and_record();
    assert_eq!((record.current, record.proposed, record.desired), (Some(3), Some(6), Some(6)));
    assert_eq!(record.restrictions, decision.restrictions);
    let [utilization, failed] = &record.metrics[..] else { panic!("{record:?}") };
    let bounds = utilization.bounds.expect("a target");
    assert_eq!((utilization.label.as_str(), utilization.value), ("cpu", Some(90_000.0)));
    assert_eq!((bounds.low, bounds.high), (50_000, 50_000));
    assert_eq!((bounds.tolerated_low, bounds.tolerated_high), (45_000, 55_000));
    assert_eq!((utilization.position, utilization.is_chosen), (Some(Position::Above), true));
    let unknown = failed.unknown.as_ref().expect("it has no value");
    assert_eq!((failed.value, unknown.reason), (None, "FailedGetExternalMetric"));
    let status = record.status(record.at);
    assert_eq!((status.from, status.to), (3, 6));
    assert_eq!(status.sources[0].position, "above");
    let unreadable = Case::new(3, cpu(50)).change(|case| {
        case.scale = Err(crate::hpa::ScaleError::Failed("no".to_owned()));
    });
    let (_, record) = unreadable.decide_and_record();
    assert_eq!((record.current, record.desired), (None, None));
    assert_eq!(record.restrictions, [Restriction::NoScale]);
}
