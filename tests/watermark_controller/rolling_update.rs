//! A rolling update that has more pods for a while than there are to be.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::fixture::{Fixture, object};
use crate::{
    support::{hollow_nodes::is_ready, wait},
    updater::fixture::pods,
};

async fn patch(stage: &Fixture, spec: Value) {
    let api = Api::<Deployment>::namespaced(stage.bed.client(), &stage.namespace);
    let patch = Patch::Merge(json!({ "spec": spec }));
    api.patch("web", &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_with_twice_the_pods_asks_for_no_more_of_them() {
    let Some(stage) = Fixture::new("surge", &[]).await else { return };
    stage.deployment("web", 4).await;
    stage.metric("web", 75.0);
    let fields = json!({"scaleUpLimitFactor": "300"});
    stage.create(&object("web", fields)).await;
    stage.advance_seconds(60).await;
    assert_eq!(stage.replicas("web").await, 4);
    // New pods are ready and do not count as available, so that the old ones stay beside them.
    patch(
        &stage,
        json!({
            "minReadySeconds": 3600, "progressDeadlineSeconds": 7200,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
            "template": {"metadata": {"annotations": {"release": "2"}}},
        }),
    )
    .await;
    wait::until("both releases are up", || async {
        let pods = pods(&stage.bed.client(), &stage.namespace, "web").await;
        let api = Api::<Deployment>::namespaced(stage.bed.client(), &stage.namespace);
        let told = api.get("web").await.ok()?.status?.replicas?;
        (told == 8 && pods.iter().filter(|pod| is_ready(pod)).count() == 8).then_some(())
    })
    .await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 4, "the metric is between its marks");
    // A little above: five would do, and with all eight pods counted it would be nine.
    stage.metric("web", 110.0);
    stage.advance_period().await;
    assert_eq!(stage.replicas("web").await, 5);
    stage.metric("web", 75.0);
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 5);
    let status = stage.status("web").await;
    assert!(status["currentReplicas"].as_i64().is_some_and(|count| count > 5), "{status:#}");
    patch(&stage, json!({"minReadySeconds": 0})).await;
    stage.wait_for_ready_pods("web", 5).await;
    stage.advance_seconds(600).await;
    assert_eq!(stage.replicas("web").await, 5);
}
