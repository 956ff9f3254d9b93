//! What objects can ask for beyond the original's fields, on a cluster: the last replica, a fallback, an alert, a query.

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
async fn the_last_replica_goes_when_there_is_nothing_to_do_and_comes_back_when_there_is() {
    let Some(stage) = Fixture::new("zero", &[]).await else { return };
    for name in ["web", "plain"] {
        stage.deployment(name, 1).await;
        stage.metric(name, 0.0);
    }
    let to_zero = json!({"plimsoll.dev/scale-to-zero": "true"});
    stage.create(&annotated("web", json!({}), to_zero)).await;
    stage.create(&object("plain", json!({}))).await;
    stage.wait_until_scaled("web", 0).await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 0);
    assert_eq!(stage.replicas("plain").await, 1, "nobody asked for that");
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "True", "it is not switched off");
    // What nobody knows is no reason to begin.
    stage.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    stage.advance_seconds(60).await;
    assert_eq!(stage.replicas("web").await, 0);
    stage.usage.set_fault(MetricsApi::External, None);
    stage.metric("web", 3.0);
    stage.advance_period().await;
    stage.wait_until_scaled("web", 1).await;
    // From there on it is followed as any other.
    stage.metric("web", 250.0);
    stage.advance_seconds(75).await;
    stage.wait_until_scaled("web", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_gone_to_after_so_many_periods_without_a_value() {
    let Some(stage) = Fixture::new("fallback", &[]).await else { return };
    stage.deployment("web", 4).await;
    stage.metric("web", 75.0);
    let fallback = json!({"plimsoll.dev/fallback-replicas": "7 after 8"});
    stage.create(&annotated("web", json!({}), fallback)).await;
    stage.advance_seconds(60).await;
    stage.usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    stage.advance_seconds(105).await;
    assert_eq!(stage.replicas("web").await, 4, "{:#}", stage.status("web").await);
    stage.advance_seconds(45).await;
    stage.wait_until_scaled("web", 7).await;
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "False");
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 7);
    stage.usage.set_fault(MetricsApi::External, None);
    stage.advance_seconds(60).await;
    assert_eq!(stage.replicas("web").await, 7, "the value is between its marks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_too_old_changes_nothing_and_says_so() {
    let Some(stage) = Fixture::new("stale", &["--max-metric-age=2m"]).await else { return };
    stage.deployment("web", 4).await;
    stage.metric("web", 75.0);
    stage.usage.at(stage.clock.now().into());
    stage.create(&object("web", json!({}))).await;
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "True");
    // From now on the same is told for ever, and it is far above the mark.
    stage.metric("web", 1_000.0);
    stage.clock.step(Duration::from_secs(121));
    stage.wait_until_idle().await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 4);
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "False");
    let of = ["kind=\"wpa\"", "reason=\"metric_unknown\""];
    assert_eq!(stage.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    let of = ["outcome=\"stale\""];
    assert!(stage.series("plimsoll_metric_outcomes_total", &of).await.iter().sum::<f64>() > 30.0);
    // Ten minutes, and the two before which it was still good enough.
    let age = stage.series("plimsoll_staleness_seconds", &["kind=\"wpa\""]).await;
    assert_eq!(age, [721.0], "the age of the latest value, not of the latest look");
    stage.usage.at(stage.clock.now().into());
    stage.advance_period().await;
    assert_eq!(stage.replicas("web").await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firing_alert_holds_replicas_that_a_query_asks_for_but_not_the_bounds() {
    // The role lives an hour ahead of the wall.
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
    // The series were there before the namespace that the test gets.
    let flags = [&*address, "--prometheus-unrestricted-namespaces=*"];
    let Some(stage) = Fixture::new("alert", &flags).await else { return };
    stage.deployment("web", 2).await;
    let annotations = json!({
        // Both series together are three times the mark.
        "query.plimsoll.dev/requests": "load",
        "plimsoll.dev/hold-while": "CheckoutBroken{namespace=\"shop\"}",
    });
    stage.create(&annotated("web", json!({}), annotations)).await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 2, "{:#}", stage.status("web").await);
    let blocked = stage.condition("web", "ScalingBlocked").await;
    assert_eq!(blocked, Some(("True".to_owned(), "AlertFiring".to_owned())));
    let of = ["kind=\"wpa\"", "reason=\"lifecycle\""];
    assert_eq!(stage.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    stage.patch_and_reconcile("web", json!({"spec": {"minReplicas": 3}})).await;
    stage.wait_until_scaled("web", 3).await;
    // It ends, and five minutes later the server says so.
    stage.advance_seconds(900).await;
    let blocked = stage.condition("web", "ScalingBlocked").await;
    assert_eq!(blocked, Some(("False".to_owned(), "AlertQuiet".to_owned())));
    assert!(stage.replicas("web").await > 3, "{:#}", stage.status("web").await);
    let of = ["outcome=\"ok\"", "source=\"prometheus\""];
    assert!(stage.series("plimsoll_metric_outcomes_total", &of).await.iter().sum::<f64>() > 1.0);
}
