//! The status written for an object after a decision, and its events.

use std::time::Duration;

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::{MetricError, ScaleDecision, ScaleOutcome},
    types::compat::{Compat, Fixes},
    watermark::{
        conditions::{self, ConditionType},
        status_update::StatusBuilder,
    },
};
use serde_json::{Value, json};

use super::{DecisionCase, NOW, external_metric, source, spec};

fn fields() -> Value {
    json!({
        "minReplicas": 1, "maxReplicas": 10,
        "metrics": [{"type": "External", "external": {
            "metricName": "requests", "metricSelector": {"matchLabels": {"app": "web"}},
            "highWatermark": "2", "lowWatermark": "1",
        }}],
    })
}

fn status_builder(spec: &WatermarkPodAutoscalerSpec, compat: Compat) -> StatusBuilder {
    let (fixes, namespace) = (Fixes::for_compat(compat), "shop".to_owned());
    StatusBuilder { spec: spec.clone(), namespace, compat, skips_idle_events: false, fixes }
}

/// Runs a pass with a metric of this sum that ends with this outcome.
fn reconcile(
    compat: Compat,
    before: &WatermarkPodAutoscalerStatus,
    sum: i64,
    outcome: &ScaleOutcome,
    seconds: u64,
) -> (WatermarkPodAutoscalerStatus, Vec<String>) {
    let mut case = DecisionCase::new(
        Fixes::for_compat(compat),
        fields(),
        4,
        vec![external_metric(sum, 1_000, 2_000)],
    );
    case.now = NOW.later(Duration::from_secs(seconds));
    case.status = before.clone();
    case.memory = before.decision.as_ref().map(ScaleDecision::from_status).unwrap_or_default();
    let decision = case.decide();
    let spec = spec(fields());
    let writing = status_builder(&spec, compat);
    let status = writing.status(before, &decision, outcome, case.now);
    let events = writing.events(&decision, outcome, None);
    let lines = events.into_iter().map(|event| format!("{}: {}", event.reason, event.message));
    (status, lines.collect())
}

fn condition_reason(status: &WatermarkPodAutoscalerStatus, fact: ConditionType) -> &str {
    let found = status.conditions.iter().find(|condition| condition.kind == fact.into_str());
    found.map_or("none", |condition| &condition.reason)
}

#[test]
fn a_successful_scale_is_counted_and_reported() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        let (status, events) = reconcile(
            compat,
            &WatermarkPodAutoscalerStatus::default(),
            3_000,
            &ScaleOutcome::Done,
            0,
        );
        assert_eq!((status.current_replicas, status.desired_replicas), (4, 6));
        assert_eq!(status.last_scale_time.as_ref().map(conditions::from_timestamp), Some(NOW));
        assert_eq!(status.scaling_events_count, 1);
        assert_eq!(condition_reason(&status, ConditionType::AbleToScale), "SuccessfulScale");
        assert_eq!(status.conditions.len(), 7);
        assert_eq!(events, ["Scaling: New size: 6; reason: requests{map[]} above target"]);
        assert_eq!(
            serde_json::to_value(&status.current_metrics).expect("JSON"),
            json!([{"type": "External", "external": {
                "metricName": "requests", "metricSelector": {"matchLabels": {"app": "web"}},
                "currentValue": "3",
            }}])
        );
    }
}

#[test]
fn a_failed_scale_does_not_use_windows_and_is_reported() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        let refused = ScaleOutcome::Failed("a conflict".to_owned());
        let before = WatermarkPodAutoscalerStatus { desired_replicas: 9, ..Default::default() };
        let (status, events) = reconcile(compat, &before, 3_000, &refused, 0);
        assert_eq!((status.current_replicas, status.desired_replicas), (4, 9));
        assert_eq!((status.last_scale_time.clone(), status.scaling_events_count), (None, 0));
        assert_eq!(condition_reason(&status, ConditionType::AbleToScale), "FailedScale");
        assert_eq!(
            events,
            ["FailedScale: New size: 6; reason: requests{map[]} above target; error: a conflict"]
        );
    }
}

#[test]
fn a_dry_run_uses_windows_only_in_upstreams_mode() {
    let counts = [Compat::Upstream, Compat::Plimsoll].map(|compat| {
        let none = WatermarkPodAutoscalerStatus::default();
        let (status, events) = reconcile(compat, &none, 3_000, &ScaleOutcome::DryRun, 0);
        assert_eq!(status.desired_replicas, 6, "the proposal is exported");
        assert_eq!(events, [""; 0]);
        (status.last_scale_time.is_some(), status.scaling_events_count)
    });
    assert_eq!(counts, [(true, 1), (false, 0)]);
}

#[test]
fn an_unchanged_condition_keeps_its_time_and_a_quiet_pass_writes_the_same_status() {
    let none = WatermarkPodAutoscalerStatus::default();
    let (first, _) = reconcile(Compat::Plimsoll, &none, 3_000, &ScaleOutcome::Done, 0);
    let (inside, events) = reconcile(Compat::Plimsoll, &first, 1_500, &ScaleOutcome::NoChange, 15);
    let message =
        "NotScaling: Decided not to scale Deployment/shop/web to 4 (last scale time was <nil> )";
    assert_eq!(events, [message]);
    assert_eq!(condition_reason(&inside, ConditionType::AbleToScale), "BackoffBoth");
    let (again, _) = reconcile(Compat::Plimsoll, &inside, 1_500, &ScaleOutcome::NoChange, 30);
    let without_values = |status: &WatermarkPodAutoscalerStatus| {
        let decision = status
            .decision
            .clone()
            .map(plimsoll_core::api::scale_decision::ScaleDecisionStatus::without_values);
        WatermarkPodAutoscalerStatus { decision, ..status.clone() }
    };
    assert_eq!(without_values(&again), without_values(&inside));
    // Upstream sets AbleToScale in between, so the time is always that of the last pass.
    let since = |status: &WatermarkPodAutoscalerStatus| {
        conditions::condition_since(status, ConditionType::AbleToScale).at.as_secs() - NOW.as_secs()
    };
    let (theirs, _) = reconcile(Compat::Upstream, &inside, 1_500, &ScaleOutcome::NoChange, 30);
    assert_eq!((since(&again), since(&theirs)), (15, 30));
}

#[test]
fn an_unavailable_metric_keeps_the_status_and_sends_two_events() {
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        let none = WatermarkPodAutoscalerStatus::default();
        let (before, _) = reconcile(compat, &none, 3_000, &ScaleOutcome::Done, 0);
        let silent = source("requests", Err(MetricError::Empty("external")), (1_000, 2_000));
        let mut case = DecisionCase::new(Fixes::for_compat(compat), fields(), 6, vec![silent]);
        case.status = before.clone();
        let decision = case.decide();
        let spec = spec(fields());
        let writing = status_builder(&spec, compat);
        let status = writing.status(&before, &decision, &ScaleOutcome::NoChange, NOW);
        assert_eq!(status.current_metrics, before.current_metrics);
        assert_eq!(status.desired_replicas, before.desired_replicas);
        assert_eq!(
            condition_reason(&status, ConditionType::ScalingActive),
            "FailedGetExternalMetric"
        );
        let reasons: Vec<&str> = writing
            .events(&decision, &ScaleOutcome::NoChange, None)
            .iter()
            .map(|condition| condition.reason)
            .collect();
        assert_eq!(reasons, ["FailedGetExternalMetric", "FailedComputeMetricsReplicas"]);
    }
}

#[test]
fn a_pass_without_a_change_can_be_reported_in_a_condition() {
    for (compat, wanted, expected) in [
        (Compat::Upstream, 4, "NotScaling"),
        (Compat::Plimsoll, 4, "NotScaling"),
        (Compat::Upstream, 0, "NotScaling"),
        (Compat::Plimsoll, 0, "ScalingDisabled"),
    ] {
        let sources = vec![external_metric(1_500, 1_000, 2_000)];
        let mut case =
            DecisionCase::new(Fixes::for_compat(compat), fields(), 4, sources).scaled_ago(900);
        case.scale.spec_replicas = wanted;
        let decision = case.decide();
        let spec = spec(fields());
        let quiet = StatusBuilder { skips_idle_events: true, ..status_builder(&spec, compat) };
        let status = quiet.status(&case.status, &decision, &ScaleOutcome::NoChange, NOW);
        assert_eq!(
            condition_reason(&status, ConditionType::ScalingActive),
            expected,
            "{compat:?} {wanted}"
        );
        assert_eq!(quiet.events(&decision, &ScaleOutcome::NoChange, None), []);
    }
}
