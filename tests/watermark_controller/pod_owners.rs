//! Pods whose way up to the target goes by names that tell nothing.

use k8s_openapi::{
    api::apps::v1::ReplicaSet,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::fixture::{Fixture, create_definition, object};
use crate::{
    support::{hollow_nodes::is_ready, wait},
    updater::fixture::pods,
};

/// Defines a kind that can be scaled.
async fn define(stage: &Fixture) {
    let replicas = json!({"type": "integer"});
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "fleets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Fleet", "plural": "fleets", "singular": "fleet"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": replicas}},
                    "status": {"type": "object", "properties": {
                        "replicas": replicas, "selector": {"type": "string"},
                    }},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    }))
    .expect("a definition");
    create_definition(&stage.bed, &definition).await;
}

fn fleets(stage: &Fixture) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Fleet"));
    Api::namespaced_with(stage.bed.client(), &stage.namespace, &kind)
}

/// A Fleet of three replicas, and its uid.
async fn fleet(stage: &Fixture) -> String {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Fleet"));
    let mut one = DynamicObject::new("web", &kind);
    one.data = json!({"spec": {"replicas": 3}});
    let api = fleets(stage);
    let made = wait::until("its kind is served", || async {
        api.create(&PostParams::default(), &one).await.ok()
    })
    .await;
    let status = json!({"status": {"replicas": 3, "selector": "app=web"}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.expect("told");
    made.metadata.uid.expect("set by the server")
}

/// A ReplicaSet of three pods, which somebody controls.
async fn replica_set(stage: &Fixture, name: &str, owner: Value) {
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web", "set": name}},
            "template": {
                "metadata": {"labels": {"app": "web", "set": name}},
                "spec": {"containers": [{"name": "main", "image": "example/app"}]},
            },
        },
    }))
    .expect("a ReplicaSet");
    let api = Api::<ReplicaSet>::namespaced(stage.bed.client(), &stage.namespace);
    api.create(&PostParams::default(), &set).await.expect("made");
}

async fn stage(name: &str, flags: &[&str]) -> Option<Fixture> {
    let stage = Fixture::new(name, flags).await?;
    define(&stage).await;
    let uid = fleet(&stage).await;
    let owner = |kind: &str, name: &str, uid: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
    replica_set(&stage, "alpha", owner("Fleet", "web", &uid)).await;
    wait::until("its pods are ready", || async {
        let pods = pods(&stage.bed.client(), &stage.namespace, "web").await;
        (pods.iter().filter(|pod| is_ready(pod)).count() == 3).then_some(())
    })
    .await;
    stage.metric("web", 200.0);
    let target = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "name": "web"});
    stage.create(&object("web", json!({ "scaleTargetRef": target }))).await;
    Some(stage)
}

async fn replicas(stage: &Fixture) -> i64 {
    fleets(stage).get("web").await.expect("it is there").data["spec"]["replicas"]
        .as_i64()
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_those_of_the_target_that_stands_above_them_whatever_is_between_is_called() {
    let Some(stage) = stage("chain", &[]).await else { return };
    assert_eq!(replicas(&stage).await, 6, "{:#}", stage.status("web").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_originals_way_names_tell_whose_pods_they_are() {
    let Some(stage) = stage("names", &["--compat=upstream"]).await else { return };
    stage.advance_seconds(60).await;
    assert_eq!(replicas(&stage).await, 3);
    let (status, _) = stage.condition("web", "ScalingActive").await.expect("said");
    assert_eq!(status, "False", "none of its pods is found to be ready");
}
