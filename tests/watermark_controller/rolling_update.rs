//! A rolling update that temporarily has more pods than replicas.

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

async fn patch(fixture: &Fixture, spec: Value) {
    let api = Api::<Deployment>::namespaced(fixture.bed.client(), &fixture.namespace);
    let patch = Patch::Merge(json!({ "spec": spec }));
    api.patch("web", &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_with_twice_the_pods_adds_no_replicas() {
    let Some(fixture) = Fixture::new("surge", &[]).await else { return };
    fixture.deployment("web", 4).await;
    fixture.metric("web", 75.0);
    let fields = json!({"scaleUpLimitFactor": "300"});
    fixture.create(&object("web", fields)).await;
    fixture.advance_seconds(60).await;
    assert_eq!(fixture.replicas("web").await, 4);
    // New pods are ready but not available, so the old ones stay.
    patch(
        &fixture,
        json!({
            "minReadySeconds": 3600, "progressDeadlineSeconds": 7200,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
            "template": {"metadata": {"annotations": {"release": "2"}}},
        }),
    )
    .await;
    wait::until("pods of both revisions are ready", || async {
        let pods = pods(&fixture.bed.client(), &fixture.namespace, "web").await;
        let api = Api::<Deployment>::namespaced(fixture.bed.client(), &fixture.namespace);
        let reported = api.get("web").await.ok()?.status?.replicas?;
        (reported == 8 && pods.iter().filter(|pod| is_ready(pod)).count() == 8).then_some(())
    })
    .await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 4, "the metric is between its marks");
    // Slightly above: five replicas suffice, but with all eight pods counted it would be nine.
    fixture.metric("web", 110.0);
    fixture.advance_period().await;
    assert_eq!(fixture.replicas("web").await, 5);
    fixture.metric("web", 75.0);
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 5);
    let status = fixture.status("web").await;
    assert!(status["currentReplicas"].as_i64().is_some_and(|count| count > 5), "{status:#}");
    patch(&fixture, json!({"minReadySeconds": 0})).await;
    fixture.wait_for_ready_pods("web", 5).await;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.replicas("web").await, 5);
}
