//! Other places than the external metrics API that replicas can follow, on a cluster: one container of each pod, and a service
//! that says itself how many there should be.

use serde_json::{Value, json};

use super::fixture::{Fixture, object};
use crate::{
    metric_sources::loopback_server::{LoopbackServer, TestResponse},
    support::metrics_server::UsageValue,
};

#[tokio::test(flavor = "multi_thread")]
async fn one_container_of_each_pod_is_followed_and_no_other() {
    let Some(stage) = Fixture::new("container", &[]).await else { return };
    stage.deployment("web", 3).await;
    stage.usage.at(stage.clock.now().into());
    stage.usage.set_all(&stage.namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 1 << 20 });
    // It is not in the pods' spec: sidecars that others have added are told of like this.
    stage.usage.set_all(
        &stage.namespace,
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
    stage.create(&object("web", fields)).await;
    // 3 by 300m of 200m.
    stage.wait_until_scaled("web", 5).await;
    let value = stage.series("wpa_controller_value", &["wpa_name=\"web\""]).await;
    assert_eq!(value, [300.0], "in thousandths of a core");
    // One that no pod has is no value, and no reason for fewer.
    stage.patch_and_reconcile("web", json!({"spec": {"metrics": of("other")}})).await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 5);
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_asked_says_how_many_there_are_to_be_within_bounds_and_speed() {
    let server = LoopbackServer::start_plain(|asked| {
        let asked: Value = serde_json::from_str(&asked.body).expect("JSON");
        let now = &asked["state"]["currentReplicas"];
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
    let Some(stage) = Fixture::new("asked", &[]).await else { return };
    stage.deployment("web", 4).await;
    let mut wanted = object("web", json!({"scaleUpLimitFactor": "50"}));
    wanted["spec"]["metrics"] = json!(null);
    wanted["spec"]["recommender"] = json!({
        "url": server.url("/advice"), "targetType": "cpu", "lowWatermark": "0.4",
        "highWatermark": "0.6", "settings": {"team": "payments"},
    });
    stage.create(&wanted).await;
    // It says nine, and half as many more as there are is as far as a step goes.
    stage.wait_until_scaled("web", 6).await;
    // Within the bounds of the advice, and followed all the same: nothing says that it is as it should be.
    let capping = async |reason: &str| {
        let of = format!("reason=\"{reason}\"");
        stage.series("wpa_controller_restricted_scaling", &[&of]).await
    };
    assert_eq!(capping("within_bounds").await, [0.0]);
    assert_eq!(capping("upscale_capping").await, [1.0]);
    let asked = &server.requests()[0];
    let body: Value = serde_json::from_str(&asked.body).expect("JSON");
    assert_eq!(body["state"]["currentReplicas"], 4, "{body:#}");
    assert_eq!(body["settings"]["team"], "payments", "{body:#}");
    // While it says nothing, nothing changes but what is out of bounds.
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 6);
    let active = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(active.0, "False");
    stage.patch_and_reconcile("web", json!({"spec": {"minReplicas": 7}})).await;
    stage.wait_until_scaled("web", 7).await;
    // And again, once the window is over: nine, of at most ten.
    stage.advance_seconds(75).await;
    stage.wait_until_scaled("web", 9).await;
    let proposal = stage.series("wpa_controller_replicas_scaling_proposal", &[]).await;
    assert_eq!(proposal, [9.0]);
}
