//! Metric sources besides the external metrics API, on a cluster: one container of each pod, and a recommender service that
//! returns a number of replicas.

use serde_json::{Value, json};

use super::fixture::{Fixture, object};
use crate::{
    metric_sources::loopback_server::{LoopbackServer, TestResponse},
    support::metrics_server::UsageValue,
};

#[tokio::test(flavor = "multi_thread")]
async fn only_the_configured_container_of_each_pod_counts() {
    let Some(fixture) = Fixture::new("container", &[]).await else { return };
    fixture.deployment("web", 3).await;
    fixture.usage.at(fixture.clock.now().into());
    fixture.usage.set_all(
        &fixture.namespace,
        "web-",
        "main",
        UsageValue { cpu: 0.3, memory: 1 << 20 },
    );
    // The container is not in the pods' spec; usage of injected sidecars is reported like this.
    fixture.usage.set_all(
        &fixture.namespace,
        "web-",
        "proxy",
        UsageValue { cpu: 5.0, memory: 1 << 20 },
    );
    let of = |container: &str| {
        json!([{"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": container,
            "metricSelector": {"matchLabels": {"app": "web"}},
            "lowWatermark": "100m", "highWatermark": "200m",
        }}])
    };
    let fields = json!({"algorithm": "average", "metrics": of("main")});
    fixture.create(&object("web", fields)).await;
    // 3 replicas at 300m with a watermark of 200m.
    fixture.wait_until_scaled("web", 5).await;
    let value = fixture.series("wpa_controller_value", &["wpa_name=\"web\""]).await;
    assert_eq!(value, [300.0], "in thousandths of a core");
    // A container that no pod has yields no value, and no reason to scale down.
    fixture.patch_and_reconcile("web", json!({"spec": {"metrics": of("other")}})).await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 5);
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommender_sets_replicas_within_bounds_and_rates() {
    let server = LoopbackServer::start_plain(|request| {
        let request: Value = serde_json::from_str(&request.body).expect("JSON");
        let now = &request["state"]["currentReplicas"];
        if now == 6 {
            return TestResponse::new(503, "not now");
        }
        TestResponse::json(json!({
            "timestamp": "2026-11-23T00:00:00Z", "targetReplicas": 9, "lowerBoundReplicas": 2,
            "upperBoundReplicas": 20, "reason": "a busy evening",
            "observedTargets": [{"targetValue": 0.5}],
        }))
    })
    .await;
    let Some(fixture) = Fixture::new("asked", &[]).await else { return };
    fixture.deployment("web", 4).await;
    let mut wanted = object("web", json!({"scaleUpLimitFactor": "50"}));
    wanted["spec"]["metrics"] = json!(null);
    wanted["spec"]["recommender"] = json!({
        "url": server.url("/advice"), "targetType": "cpu", "lowWatermark": "0.4",
        "highWatermark": "0.6", "settings": {"team": "payments"},
    });
    fixture.create(&wanted).await;
    // The recommender returns nine, and one step adds at most half of the current replicas.
    fixture.wait_until_scaled("web", 6).await;
    // Within the recommender's watermarks, and followed anyway: no condition claims that the value is inside the band.
    let capping = async |reason: &str| {
        let of = format!("reason=\"{reason}\"");
        fixture.series("wpa_controller_restricted_scaling", &[&of]).await
    };
    assert_eq!(capping("within_bounds").await, [0.0]);
    assert_eq!(capping("upscale_capping").await, [1.0]);
    let request = &server.requests()[0];
    let body: Value = serde_json::from_str(&request.body).expect("JSON");
    assert_eq!(body["state"]["currentReplicas"], 4, "{body:#}");
    assert_eq!(body["settings"]["team"], "payments", "{body:#}");
    // While it does not respond, replicas change only if they are out of bounds.
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 6);
    let active = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(active.0, "False");
    fixture.patch_and_reconcile("web", json!({"spec": {"minReplicas": 7}})).await;
    fixture.wait_until_scaled("web", 7).await;
    // Again, after the cooldown: nine, of at most ten.
    fixture.advance_seconds(75).await;
    fixture.wait_until_scaled("web", 9).await;
    let proposal = fixture.series("wpa_controller_replicas_scaling_proposal", &[]).await;
    assert_eq!(proposal, [9.0]);
}
