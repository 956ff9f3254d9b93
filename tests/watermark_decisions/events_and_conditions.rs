//! Upstream's texts written after a pass: events, conditions of a scale update, and the order of conditions.

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{
        Event, MetricError, MetricSourceType, MetricValue, RecommendResponse, STATUS_UPDATE_FAILED,
        ScaleOutcome,
    },
    types::compat::{Compat, Fixes},
    watermark::{
        Decision, MetricInput,
        conditions::{self, ConditionType, ConditionUpdate},
        monitor_gate::{Monitor, evaluate_monitor},
        status_update::StatusBuilder,
    },
};
use serde_json::{Value, json};

use super::{DecisionCase, NOW, ago, external_metric, pods, source, spec};

const COMPATS: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn status_builder(spec: &WatermarkPodAutoscalerSpec, compat: Compat) -> StatusBuilder {
    let (fixes, namespace) = (Fixes::for_compat(compat), "shop".to_owned());
    StatusBuilder { spec: spec.clone(), namespace, compat, skips_idle_events: false, fixes }
}

/// Returns reason and message of a condition.
fn reason_and_message(
    status: &WatermarkPodAutoscalerStatus,
    fact: ConditionType,
) -> (String, String) {
    let found = status
        .conditions
        .iter()
        .find(|condition| condition.kind == fact.into_str())
        .expect("condition is set");
    (found.reason.clone(), found.message.clone())
}

fn order(status: &WatermarkPodAutoscalerStatus) -> Vec<&str> {
    status.conditions.iter().map(|condition| condition.kind.as_str()).collect()
}

fn event(is_warning: bool, reason: &'static str, message: &str) -> Event {
    Event { is_warning, reason, message: message.to_owned() }
}

/// Returns a decision with this many replicas proposed, at a metric with this sum and watermarks one and two. There are
/// always four pods.
fn decision(compat: Compat, fields: &Value, wanted: i32, sum: i64) -> Decision {
    let sources = vec![external_metric(sum, 1_000, 2_000)];
    let mut case = DecisionCase::new(Fixes::for_compat(compat), fields.clone(), wanted, sources)
        .scaled_ago(3_600);
    (case.pods, case.scale.status_replicas) = (pods(4), 4);
    case.decide()
}

/// Section 6, steps 8, and section 13.3.
#[test]
fn each_outcome_of_a_scale_has_upstreams_messages() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let writing = status_builder(&spec, compat);
        let grows = decision(compat, &fields, 4, 4_000);
        let before = WatermarkPodAutoscalerStatus::default();
        let able_to_scale = |outcome: &ScaleOutcome| {
            reason_and_message(
                &writing.status(&before, &grows, outcome, NOW),
                ConditionType::AbleToScale,
            )
        };
        let pair = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let success = "the WPA controller was able to update the target scale to 6";
        assert_eq!(able_to_scale(&ScaleOutcome::Done), pair("SuccessfulScale", success));
        let scaled = event(false, "Scaling", "New size: 6; reason: requests{map[]} above target");
        assert_eq!(writing.events(&grows, &ScaleOutcome::Done, None), [scaled]);

        let refused = ScaleOutcome::Failed("a conflict".to_owned());
        let failed = "the WPA controller was unable to update the target scale: a conflict";
        assert_eq!(able_to_scale(&refused), pair("FailedScale", failed));
        let message = "New size: 6; reason: requests{map[]} above target; error: a conflict";
        assert_eq!(writing.events(&grows, &refused, None), [event(true, "FailedScale", message)]);

        let old = "the last scaling time was sufficiently old as to warrant a new scale";
        assert_eq!(able_to_scale(&ScaleOutcome::DryRun), pair("ReadyForScale", old));
        assert_eq!(writing.events(&grows, &ScaleOutcome::DryRun, None), []);
    }
}

/// Vector W6.
#[test]
fn two_metrics_that_burst_at_once_report_a_successful_scale() {
    let fields = json!({
        "maxReplicas": 5, "upscaleForbiddenWindowSeconds": 30, "scaleUpLimitFactor": 100,
        "downscaleForbiddenWindowSeconds": 60, "downscaleDelayBelowWatermarkSeconds": 60,
        "algorithm": "absolute", "tolerance": "1m",
    });
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let sources = vec![external_metric(1_666, 999, 1_000), external_metric(1_666, 999, 1_000)];
        let case =
            DecisionCase::new(Fixes::for_compat(compat), fields.clone(), 3, sources).scaled_ago(45);
        let decision = case.decide();
        assert_eq!(decision.desired, 5);
        let status =
            status_builder(&spec, compat).status(&case.status, &decision, &ScaleOutcome::Done, NOW);
        let (reason, message) = reason_and_message(&status, ConditionType::AbleToScale);
        assert_eq!(reason, "SuccessfulScale");
        assert_eq!(message, "the WPA controller was able to update the target scale to 5");
    }
}

/// Vector K4.
#[test]
fn a_recommendation_is_written_as_one_metric_with_its_reason() {
    let fields = json!({"maxReplicas": 10, "recommender": {"url": "http://recommender:8080"}});
    let spec = spec(fields.clone());
    let name = "recommender{targetType:fake}";
    let advice = RecommendResponse {
        replicas: 4,
        observed_target: 0.5,
        reason: "it is Friday".to_owned(),
        ..RecommendResponse::default()
    };
    let metric = MetricInput {
        kind: MetricSourceType::Recommender,
        label: name.to_owned(),
        name: name.to_owned(),
        ..source(name, Ok(MetricValue::Recommendation(advice)), (1, 2))
    };
    for compat in COMPATS {
        let case =
            DecisionCase::new(Fixes::for_compat(compat), fields.clone(), 4, vec![metric.clone()]);
        let decision = case.scaled_ago(3_600).decide();
        let before = WatermarkPodAutoscalerStatus::default();
        let status =
            status_builder(&spec, compat).status(&before, &decision, &ScaleOutcome::NoChange, NOW);
        let expected = "the WPA was able to successfully calculate a replica count from \
                    recommender{targetType:fake} because: it is Friday";
        let active = reason_and_message(&status, ConditionType::ScalingActive);
        assert_eq!(active, ("ValidMetricFound".to_owned(), expected.to_owned()));
        let metrics = serde_json::to_value(&status.current_metrics).expect("JSON");
        assert_eq!(metrics.as_array().map(Vec::len), Some(1), "{metrics}");
        assert_eq!(metrics[0]["external"]["metricName"], name);
    }
}

/// Section 6, steps 9, and section 13.3.
#[test]
fn a_pass_without_a_change_has_upstreams_message_in_an_event_or_a_condition() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let loud = status_builder(&spec, compat);
        let quiet = StatusBuilder { skips_idle_events: true, ..loud.clone() };
        let last = Some(ago(3_600));
        // The common end of both messages, with the time as Go formats it.
        let tail = |replicas: i32| {
            format!(
                "not to scale Deployment/shop/web to {replicas} (last scale time was 2027-01-15 07:00:00 +0000 UTC )"
            )
        };
        let idle = decision(compat, &fields, 4, 1_500);
        let expected = format!("Decided {}", tail(4));
        let events = loud.events(&idle, &ScaleOutcome::NoChange, last);
        assert_eq!(events, [event(false, "NotScaling", &expected)]);
        let none = loud.events(&idle, &ScaleOutcome::NoChange, None);
        let expected = "Decided not to scale Deployment/shop/web to 4 (last scale time was <nil> )";
        assert_eq!(none, [event(false, "NotScaling", expected)]);
        let before = WatermarkPodAutoscalerStatus {
            last_scale_time: last.map(conditions::to_timestamp),
            ..WatermarkPodAutoscalerStatus::default()
        };
        let status = quiet.status(&before, &idle, &ScaleOutcome::NoChange, NOW);
        let message = format!(
            "the WPA was able to successfully calculate a replica count and decided {}",
            tail(4)
        );
        assert_eq!(
            reason_and_message(&status, ConditionType::ScalingActive),
            ("NotScaling".to_owned(), message)
        );
        // For a target scaled to zero no other number is reported.
        let disabled = decision(compat, &fields, 0, 4_000);
        let expected = format!("Decided {}", tail(0));
        let events = loud.events(&disabled, &ScaleOutcome::NoChange, last);
        assert_eq!(events, [event(false, "NotScaling", &expected)]);
    }
}

/// Sections 8.4 and 13.3: the error of the source alone comes first, then the full message.
#[test]
fn an_unavailable_metric_has_two_events_with_upstreams_messages() {
    let fields = json!({"maxReplicas": 10});
    let spec = spec(fields.clone());
    for compat in COMPATS {
        let silent = MetricInput {
            selector: "app=web".to_owned(),
            ..source("requests", Err(MetricError::Empty("external")), (1, 2))
        };
        let decision =
            DecisionCase::new(Fixes::for_compat(compat), fields.clone(), 4, vec![silent]).decide();
        let events = status_builder(&spec, compat).events(&decision, &ScaleOutcome::NoChange, None);
        let inner = "unable to get external metric shop/requests/app=web: no metrics returned from external metrics API";
        let outer =
            format!("failed to compute replicas based on external metric requests: {inner}");
        let first = event(true, "FailedGetExternalMetric", inner);
        let second = event(true, "FailedComputeMetricsReplicas", &outer);
        assert_eq!(events, [first, second]);
    }
}

/// Section 13.3: which of the two reasons is reported when a status update fails.
#[test]
fn a_failed_status_update_has_the_reason_of_what_was_to_be_written() {
    let fields = json!({"maxReplicas": 10});
    let grows = decision(Compat::Upstream, &fields, 4, 4_000);
    let refused = ScaleOutcome::Failed("a conflict".to_owned());
    assert_eq!(StatusBuilder::status_failure_reason(&grows, &refused), "FailedUpdateReplicas");
    assert_eq!(
        StatusBuilder::status_failure_reason(&grows, &ScaleOutcome::Done),
        "FailedUpdateStatus"
    );
    assert_eq!(STATUS_UPDATE_FAILED, "FailedUpdateStatus");
    let silent = source("requests", Err(MetricError::Empty("external")), (1, 2));
    let silent =
        DecisionCase::new(Fixes::for_compat(Compat::Upstream), fields, 4, vec![silent]).decide();
    assert_eq!(
        StatusBuilder::status_failure_reason(&silent, &ScaleOutcome::NoChange),
        "FailedUpdateReplicas"
    );
}

/// Vectors M1 and F7: an object with a healthy monitor, no metrics, and no replicas.
#[test]
fn the_latest_condition_is_first_even_within_one_second() {
    let fields = json!({"minReplicas": 3, "maxReplicas": 5});
    let spec = spec(fields.clone());
    let case = DecisionCase::new(Fixes::for_compat(Compat::Upstream), fields, 0, Vec::new());
    let mut status = WatermarkPodAutoscalerStatus::default();
    let well = evaluate_monitor("bar/baz", &Monitor::State("OK".to_owned()), false);
    assert_eq!(well.blocked, None);
    conditions::set_condition(&mut status, &well.condition, NOW);
    let decision = case.decide();
    assert_eq!((decision.desired, &decision.change), (0, &None));
    let status = status_builder(&spec, Compat::Upstream).status(
        &status,
        &decision,
        &ScaleOutcome::NoChange,
        NOW,
    );
    assert_eq!(
        order(&status),
        [
            "ScalingActive",
            "ScalingLimited",
            "BelowLowWatermark",
            "AboveHighWatermark",
            "AbleToScale",
            "DryRun",
            "ScalingBlocked",
        ]
    );
    assert_eq!(reason_and_message(&status, ConditionType::ScalingActive).0, "ScalingDisabled");
    assert!(conditions::condition_since(&status, ConditionType::AbleToScale).holds);
    assert!(conditions::condition_since(&status, ConditionType::ScalingLimited).holds);
}

/// Vector F6.
#[test]
fn a_blocking_monitor_is_the_first_condition() {
    let mut status = WatermarkPodAutoscalerStatus::default();
    let [inactive, _] = ConditionUpdate::unprocessed();
    conditions::set_condition(&mut status, &inactive, NOW);
    let missing = evaluate_monitor("bar/baz", &Monitor::Unreadable("gone".to_owned()), false);
    conditions::set_condition(&mut status, &missing.condition, NOW);
    assert_eq!(order(&status), ["ScalingBlocked", "ScalingActive"]);
    let first = &status.conditions[0].message;
    assert_eq!(first, "monitor bar/baz not found, blocking the WPA from proceeding");
}
