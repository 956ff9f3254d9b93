//! A VerticalPodAutoscaler of the same workload, whose pods are updated.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{
        WorkloadState,
        guard::{Health, rollout::Rollout, workload_state::ANNOTATION},
    },
};
use serde_json::json;

use super::fixture::{Fixture, object};
use crate::updater::fixture as updater;

/// Records on the VPA that the updater has just changed the last pod.
async fn record_update(fixture: &Fixture) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(fixture.bed.client(), &fixture.namespace);
    let vpa = api.get("web").await.expect("the VPA");
    let now = fixture.clock.now();
    let rollout = Rollout {
        began: now,
        last: now,
        streak: 0,
        wave: now,
        touched: 1,
        evicted: 1,
        before: Health::default(),
        target: Vec::new(),
    };
    let state = WorkloadState { rollout: Some(rollout), ..WorkloadState::default() };
    let text = state.write(&vpa.spec.target_ref).expect("it fits");
    let patch = json!({"metadata": {"annotations": {ANNOTATION: text}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("annotated");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_updater_changes_pods_replicas_are_added_and_not_removed() {
    let Some(fixture) = Fixture::new("wave", &[]).await else { return };
    fixture.deployment("web", 4).await;
    let vpa = json!({"updatePolicy": {"updateMode": "Recreate"}});
    updater::vpa_with(&fixture.bed, &fixture.namespace, "web", vpa, "10m").await;
    record_update(&fixture).await;
    // So that it knows the VPA before the first reconcile.
    let client = fixture.bed.client();
    let fixture = fixture.restart_as(client, &[]).await;
    fixture.metric("web", 20.0);
    let fields = json!({
        "readinessDelaySeconds": 120,
        "upscaleForbiddenWindowSeconds": 1, "downscaleForbiddenWindowSeconds": 1,
    });
    fixture.create(&object("web", fields)).await;
    assert_eq!(fixture.replicas("web").await, 4, "{:#?}", fixture.status("web").await);
    let restrictions = &fixture.status("web").await["decision"]["restrictions"];
    assert!(restrictions.to_string().contains("vpa_wave"), "{restrictions}");

    fixture.metric("web", 150.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 6).await;

    fixture.metric("web", 20.0);
    fixture.advance_period().await;
    assert_eq!(fixture.replicas("web").await, 6, "{:#?}", fixture.status("web").await);
    fixture.advance_seconds(120).await;
    assert!(fixture.replicas("web").await < 6, "{:#?}", fixture.status("web").await);
    fixture.role.stop().await;
}
