//! Unknown is not zero: while a metric is unavailable, replicas change only to satisfy the bounds.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::fixture::{Fixture, METRIC, PERIOD, object};
use crate::support::{
    api_proxy::{ApiProxy, pass_through},
    metrics_server::{Fault, MetricsApi, UsageValue},
    wait,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_metric_changes_nothing_but_replicas_out_of_bounds() {
    let Some(fixture) = Fixture::new("outage", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    let faults = [
        Some(Fault::Status(503)),
        Some(Fault::Status(404)),
        Some(Fault::Malformed),
        Some(Fault::Truncated),
        Some(Fault::NotANumber),
    ];
    for fault in faults {
        fixture.usage.set_fault(MetricsApi::External, fault);
        fixture.advance_seconds(600).await;
        assert_eq!(fixture.replicas("web").await, 4, "{fault:?}");
        let active = fixture.condition("web", "ScalingActive").await;
        let expected = ("False".to_owned(), "FailedGetExternalMetric".to_owned());
        assert_eq!(active, Some(expected), "{fault:?}");
        let of = ["kind=\"wpa\"", "reason=\"metric_unknown\""];
        assert_eq!(fixture.series("plimsoll_restricted_scaling", &of).await, [1.0], "{fault:?}");
        assert!(fixture.series("wpa_controller_value", &[]).await.is_empty(), "{fault:?}");
        fixture.usage.set_fault(MetricsApi::External, None);
        fixture.advance_period().await;
        assert_eq!(fixture.replicas("web").await, 4);
        let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
        assert_eq!(active.0, "True", "after {fault:?}");
    }
    // Reported once for each outage.
    let warnings = fixture.events("web").await;
    let count = warnings.iter().filter(|reason| *reason == "FailedGetExternalMetric").count();
    assert_eq!(count, faults.len(), "{warnings:?}");
    fixture.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    fixture.patch_and_reconcile("web", json!({"spec": {"minReplicas": 6}})).await;
    fixture.wait_until_scaled("web", 6).await;
    // The new maximum is lower, by more than one scale-down step allows; replicas stay there.
    fixture.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 2, "minReplicas": 1}})).await;
    fixture.wait_until_scaled("web", 2).await;
    fixture.advance_seconds(60).await;
    assert_eq!(fixture.replicas("web").await, 2);
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!((&*active.0, &*active.1), ("False", "FailedGetExternalMetric"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_metrics_api_delays_only_the_objects_that_use_it() {
    const UNANSWERED_METRIC: &str = "--workers=1";
    let Some(fixture) = Fixture::new("hung", &[UNANSWERED_METRIC]).await else { return };
    let proxy = ApiProxy::start(fixture.bed.client(), |_, _| pass_through()).await;
    let fixture = fixture.restart_as(proxy.client.clone(), &[UNANSWERED_METRIC]).await;
    fixture.deployment("other", 3).await;
    fixture.usage.at(fixture.clock.now().into());
    fixture.usage.set_all(
        &fixture.namespace,
        "other-",
        "main",
        UsageValue { cpu: 0.15, memory: 1 << 20 },
    );
    let metrics = json!([{"type": "Resource", "resource": {
        "name": "cpu", "metricSelector": {"matchLabels": {"app": "other"}},
        "lowWatermark": "100m", "highWatermark": "200m",
    }}]);
    fixture.create(&object("other", json!({"algorithm": "average", "metrics": metrics}))).await;
    for name in ["a", "b", "c"] {
        fixture.deployment(name, 4).await;
        fixture.metric(name, 75.0);
        fixture.create(&object(name, json!({}))).await;
    }
    fixture.usage.set_fault(MetricsApi::External, Some(Fault::Hang));
    fixture.usage.set_all(
        &fixture.namespace,
        "other-",
        "main",
        UsageValue { cpu: 0.4, memory: 1 << 20 },
    );
    let requests = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|(_, path)| path.starts_with("/apis/external.metrics.k8s.io/")).count()
    };
    let before = requests();
    fixture.clock.step(PERIOD);
    fixture.usage.at(fixture.clock.now().into());
    wait::until("the other object is scaled", || async {
        (fixture.replicas("other").await == 6).then_some(())
    })
    .await;
    // The only worker moves on after one second with each, and requests none of the three metrics twice before it reaches
    // the other object.
    let sent = requests() - before;
    assert!(sent <= 3, "{sent} requests");
    // One of the objects with that metric waits for the response; the others keep their replicas, within their bounds.
    fixture.wait_until_idle().await;
    for name in ["a", "b", "c"] {
        let max = json!({"spec": {"maxReplicas": 2}});
        let patched = Patch::Merge(max);
        fixture.api().patch(name, &PatchParams::default(), &patched).await.expect("changed");
    }
    fixture.clock.step(PERIOD);
    fixture.wait_until_idle().await;
    for name in ["a", "b", "c"] {
        assert_eq!(fixture.replicas(name).await, 2, "{name}");
        let active = fixture.condition(name, "ScalingActive").await.expect("condition is set");
        assert_eq!((&*active.0, &*active.1), ("False", "FailedGetExternalMetric"), "{name}");
    }
    fixture.usage.set_fault(MetricsApi::External, None);
    fixture.advance_seconds(30).await;
    for name in ["a", "b", "c"] {
        let active = fixture.condition(name, "ScalingActive").await.expect("condition is set");
        assert_eq!(active.0, "True", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_or_empty_metric_never_scales_down() {
    let Some(fixture) = Fixture::new("absent", &[]).await else { return };
    fixture.deployment("web", 4).await;
    // The metric has never been available for this object.
    fixture.create(&object("web", json!({}))).await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 4);
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "False");
    // Other series of the metric have values, the matching ones do not.
    fixture.usage.set_external(&fixture.namespace, METRIC, &[("app", "other")], 1.0);
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 4);
    fixture.metric("web", 0.0);
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 4, "zero counts only if it is allowed to");
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "True");
    fixture.patch_and_reconcile("web", json!({"spec": {"tolerateZero": true}})).await;
    fixture.wait_until_scaled("web", 2).await;
}
