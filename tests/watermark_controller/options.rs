//! Options beyond upstream's fields, on a cluster: scale to zero, a fallback, an alert, a query.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::fixture::{Fixture, object};
use crate::support::{
    clock::wall_now,
    metrics_server::{Fault, MetricsApi},
    prometheus_server::{History, PrometheusRelease, PrometheusServer},
};

fn annotated(name: &str, fields: Value, annotations: Value) -> Value {
    let mut object = object(name, fields);
    object["metadata"]["annotations"] = annotations;
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_is_removed_when_idle_and_restored_on_demand() {
    let Some(fixture) = Fixture::new("zero", &[]).await else { return };
    for name in ["web", "plain"] {
        fixture.deployment(name, 1).await;
        fixture.metric(name, 0.0);
    }
    let to_zero = json!({"plimsoll.dev/scale-to-zero": "true"});
    fixture.create(&annotated("web", json!({}), to_zero)).await;
    fixture.create(&object("plain", json!({}))).await;
    fixture.wait_until_scaled("web", 0).await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 0);
    assert_eq!(fixture.replicas("plain").await, 1, "not enabled");
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "True", "not disabled");
    // An unknown metric is no reason to scale up from zero.
    fixture.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    fixture.advance_seconds(60).await;
    assert_eq!(fixture.replicas("web").await, 0);
    fixture.usage.set_fault(MetricsApi::External, None);
    fixture.metric("web", 3.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 1).await;
    // From there on it is followed as usual.
    fixture.metric("web", 250.0);
    fixture.advance_seconds(75).await;
    fixture.wait_until_scaled("web", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_replicas_apply_after_some_periods_without_a_value() {
    let Some(fixture) = Fixture::new("fallback", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 75.0);
    let fallback = json!({"plimsoll.dev/fallback-replicas": "7 after 8"});
    fixture.create(&annotated("web", json!({}), fallback)).await;
    fixture.advance_seconds(60).await;
    fixture.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    fixture.advance_seconds(105).await;
    assert_eq!(fixture.replicas("web").await, 4, "{:#}", fixture.status("web").await);
    fixture.advance_seconds(45).await;
    fixture.wait_until_scaled("web", 7).await;
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "False");
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 7);
    fixture.usage.set_fault(MetricsApi::External, None);
    fixture.advance_seconds(60).await;
    assert_eq!(fixture.replicas("web").await, 7, "the value is between its marks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_value_changes_nothing_and_is_reported() {
    let Some(fixture) = Fixture::new("stale", &["--max-metric-age=2m"]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 75.0);
    fixture.usage.at(fixture.clock.now().into());
    fixture.create(&object("web", json!({}))).await;
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "True");
    // From now on the value is constant, and far above the watermark.
    fixture.metric("web", 1_000.0);
    fixture.clock.step(Duration::from_secs(121));
    fixture.wait_until_idle().await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 4);
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "False");
    let of = ["kind=\"wpa\"", "reason=\"metric_unknown\""];
    assert_eq!(fixture.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    let of = ["outcome=\"stale\""];
    assert!(fixture.series("plimsoll_metric_outcomes_total", &of).await.iter().sum::<f64>() > 30.0);
    // Ten minutes, plus the two during which the value was still fresh.
    let age = fixture.series("plimsoll_staleness_seconds", &["kind=\"wpa\""]).await;
    assert_eq!(age, [721.0], "the age of the latest value, not of the latest reconcile");
    fixture.usage.at(fixture.clock.now().into());
    fixture.advance_period().await;
    assert_eq!(fixture.replicas("web").await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firing_alert_blocks_a_query_but_not_the_bounds() {
    // The role's clock is one hour ahead of the wall clock.
    let start = wall_now() + SignedDuration::from_hours(1);
    let quiet_from = start + SignedDuration::from_mins(20);
    let step = SignedDuration::from_secs(15);
    let (from, to) = (start - SignedDuration::from_mins(20), start + SignedDuration::from_hours(2));
    let history = History::new(from, to, step)
        .series("load", &[("app", "web")], |_| Some(100.0))
        .series("load", &[("app", "other")], |_| Some(200.0))
        .series(
            "ALERTS",
            &[("alertname", "CheckoutBroken"), ("alertstate", "firing"), ("namespace", "shop")],
            move |at: Timestamp| (at < quiet_from).then_some(1.0),
        );
    let Some(prometheus) = PrometheusServer::with_history(PrometheusRelease::V3, history).await
    else {
        return;
    };
    let address = format!("--prometheus-address={}", prometheus.url());
    // The series exist before the test's namespace does.
    let flags = [&*address, "--prometheus-unrestricted-namespaces=*"];
    let Some(fixture) = Fixture::new("alert", &flags).await else { return };
    fixture.deployment("web", 2).await;
    let annotations = json!({
        // The sum of both series is three times the watermark.
        "query.plimsoll.dev/requests": "load",
        "plimsoll.dev/hold-while": "CheckoutBroken{namespace=\"shop\"}",
    });
    fixture.create(&annotated("web", json!({}), annotations)).await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 2, "{:#}", fixture.status("web").await);
    let blocked = fixture.condition("web", "ScalingBlocked").await;
    assert_eq!(blocked, Some(("True".to_owned(), "AlertFiring".to_owned())));
    let of = ["kind=\"wpa\"", "reason=\"lifecycle\""];
    assert_eq!(fixture.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    fixture.patch_and_reconcile("web", json!({"spec": {"minReplicas": 3}})).await;
    fixture.wait_until_scaled("web", 3).await;
    // The alert ends, and the server reports that five minutes later.
    fixture.advance_seconds(900).await;
    let blocked = fixture.condition("web", "ScalingBlocked").await;
    assert_eq!(blocked, Some(("False".to_owned(), "AlertQuiet".to_owned())));
    assert!(fixture.replicas("web").await > 3, "{:#}", fixture.status("web").await);
    let of = ["outcome=\"ok\"", "source=\"prometheus\""];
    assert!(fixture.series("plimsoll_metric_outcomes_total", &of).await.iter().sum::<f64>() > 0.0);
}
