//! What is not known is not zero: while a metric says nothing, nothing is scaled but into the bounds.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::fixture::{Fixture, METRIC, PERIOD, object};
use crate::support::{
    api_proxy::{ApiProxy, pass_through},
    metrics_server::{Fault, MetricsApi, UsageValue},
    wait,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_that_is_away_for_ten_minutes_changes_nothing_but_what_is_out_of_bounds() {
    let Some(stage) = Fixture::new("outage", &[]).await else { return };
    stage.deployment("web", 4).await;
    stage.metric("web", 75.0);
    stage.create(&object("web", json!({}))).await;
    let faults = [
        Some(Fault::Status(503)),
        Some(Fault::Status(404)),
        Some(Fault::Malformed),
        Some(Fault::Truncated),
        Some(Fault::NotANumber),
    ];
    for fault in faults {
        stage.usage.set_fault(MetricsApi::External, fault);
        stage.advance_seconds(600).await;
        assert_eq!(stage.replicas("web").await, 4, "{fault:?}");
        let active = stage.condition("web", "ScalingActive").await;
        let expected = ("False".to_owned(), "FailedGetExternalMetric".to_owned());
        assert_eq!(active, Some(expected), "{fault:?}");
        let of = ["kind=\"wpa\"", "reason=\"metric_unknown\""];
        assert_eq!(stage.series("plimsoll_restricted_scaling", &of).await, [1.0], "{fault:?}");
        assert!(stage.series("wpa_controller_value", &[]).await.is_empty(), "{fault:?}");
        stage.usage.set_fault(MetricsApi::External, None);
        stage.advance_period().await;
        assert_eq!(stage.replicas("web").await, 4);
        let active = stage.condition("web", "ScalingActive").await.expect("said");
        assert_eq!(active.0, "True", "after {fault:?}");
    }
    // Told once each time that it begins.
    let warnings = stage.events("web").await;
    let told = warnings.iter().filter(|reason| *reason == "FailedGetExternalMetric").count();
    assert_eq!(told, faults.len(), "{warnings:?}");
    stage.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    stage.patch_and_reconcile("web", json!({"spec": {"minReplicas": 6}})).await;
    stage.wait_until_scaled("web", 6).await;
    // Fewer are the most now, by more than one step may take away; there they stay.
    stage.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 2, "minReplicas": 1}})).await;
    stage.wait_until_scaled("web", 2).await;
    stage.advance_seconds(60).await;
    assert_eq!(stage.replicas("web").await, 2);
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!((&*active.0, &*active.1), ("False", "FailedGetExternalMetric"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metrics_api_that_never_answers_holds_up_nobody_but_those_who_ask_it() {
    const UNANSWERED_METRIC: &str = "--workers=1";
    let Some(stage) = Fixture::new("hung", &[UNANSWERED_METRIC]).await else { return };
    let proxy = ApiProxy::start(stage.bed.client(), |_, _| pass_through()).await;
    let stage = stage.restart_as(proxy.client.clone(), &[UNANSWERED_METRIC]).await;
    stage.deployment("other", 3).await;
    stage.usage.at(stage.clock.now().into());
    stage.usage.set_all(
        &stage.namespace,
        "other-",
        "main",
        UsageValue { cpu: 0.15, memory: 1 << 20 },
    );
    let metrics = json!([{"type": "Resource", "resource": {
        "name": "cpu", "metricSelector": {"matchLabels": {"app": "other"}},
        "lowWatermark": "100m", "highWatermark": "200m",
    }}]);
    stage.create(&object("other", json!({"algorithm": "average", "metrics": metrics}))).await;
    for name in ["a", "b", "c"] {
        stage.deployment(name, 4).await;
        stage.metric(name, 75.0);
        stage.create(&object(name, json!({}))).await;
    }
    stage.usage.set_fault(MetricsApi::External, Some(Fault::Hang));
    stage.usage.set_all(
        &stage.namespace,
        "other-",
        "main",
        UsageValue { cpu: 0.4, memory: 1 << 20 },
    );
    let requests = || {
        let all = proxy.requests().into_iter();
        all.filter(|(_, path)| path.starts_with("/apis/external.metrics.k8s.io/")).count()
    };
    let before = requests();
    stage.clock.step(PERIOD);
    stage.usage.at(stage.clock.now().into());
    wait::until("the other one is scaled", || async {
        (stage.replicas("other").await == 6).then_some(())
    })
    .await;
    // The only worker goes on after a second with each, and asks for none of the three twice before the other one's turn.
    let asked = requests() - before;
    assert!(asked <= 3, "{asked} requests");
    // Of those who ask it one goes on waiting; the others are held at once, and inside of their bounds.
    stage.wait_until_idle().await;
    for name in ["a", "b", "c"] {
        let max = json!({"spec": {"maxReplicas": 2}});
        let patched = Patch::Merge(max);
        stage.api().patch(name, &PatchParams::default(), &patched).await.expect("changed");
    }
    stage.clock.step(PERIOD);
    stage.wait_until_idle().await;
    for name in ["a", "b", "c"] {
        assert_eq!(stage.replicas(name).await, 2, "{name}");
        let active = stage.condition(name, "ScalingActive").await.expect("said");
        assert_eq!((&*active.0, &*active.1), ("False", "FailedGetExternalMetric"), "{name}");
    }
    stage.usage.set_fault(MetricsApi::External, None);
    stage.advance_seconds(30).await;
    for name in ["a", "b", "c"] {
        let active = stage.condition(name, "ScalingActive").await.expect("said");
        assert_eq!(active.0, "True", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_that_nobody_knows_or_that_is_empty_or_zero_scales_nothing_down() {
    let Some(stage) = Fixture::new("absent", &[]).await else { return };
    stage.deployment("web", 4).await;
    // Nobody has ever told of this one.
    stage.create(&object("web", json!({}))).await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 4);
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "False");
    // Of other series there are values, of ours none.
    stage.usage.set_external(&stage.namespace, METRIC, &[("app", "other")], 1.0);
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 4);
    stage.metric("web", 0.0);
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 4, "a zero says nothing unless it is to");
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "True");
    stage.patch_and_reconcile("web", json!({"spec": {"tolerateZero": true}})).await;
    stage.wait_until_scaled("web", 2).await;
}
