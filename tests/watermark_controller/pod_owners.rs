//! Pods whose owner chain to the target cannot be derived from names.

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

/// Creates the definition of a scalable kind.
async fn define(fixture: &Fixture) {
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
    .expect("valid definition");
    create_definition(&fixture.bed, &definition).await;
}

fn fleets(fixture: &Fixture) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Fleet"));
    Api::namespaced_with(fixture.bed.client(), &fixture.namespace, &kind)
}

/// Creates a Fleet of three replicas, and returns its uid.
async fn fleet(fixture: &Fixture) -> String {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Fleet"));
    let mut fleet = DynamicObject::new("web", &kind);
    fleet.data = json!({"spec": {"replicas": 3}});
    let api = fleets(fixture);
    let created = wait::until("its kind is served", || async {
        api.create(&PostParams::default(), &fleet).await.ok()
    })
    .await;
    let status = json!({"status": {"replicas": 3, "selector": "app=web"}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(status))
        .await
        .expect("status is written");
    created.metadata.uid.expect("set by the server")
}

/// Creates a ReplicaSet of three pods with this controller.
async fn replica_set(fixture: &Fixture, name: &str, owner: Value) {
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
    .expect("has a ReplicaSet");
    let api = Api::<ReplicaSet>::namespaced(fixture.bed.client(), &fixture.namespace);
    api.create(&PostParams::default(), &set).await.expect("created");
}

async fn fixture(name: &str, flags: &[&str]) -> Option<Fixture> {
    let fixture = Fixture::new(name, flags).await?;
    define(&fixture).await;
    let uid = fleet(&fixture).await;
    let owner = |kind: &str, name: &str, uid: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
    replica_set(&fixture, "alpha", owner("Fleet", "web", &uid)).await;
    wait::until("its pods are ready", || async {
        let pods = pods(&fixture.bed.client(), &fixture.namespace, "web").await;
        (pods.iter().filter(|pod| is_ready(pod)).count() == 3).then_some(())
    })
    .await;
    fixture.metric("web", 200.0);
    let target = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "name": "web"});
    fixture.create(&object("web", json!({ "scaleTargetRef": target }))).await;
    Some(fixture)
}

async fn replicas(fixture: &Fixture) -> i64 {
    fleets(fixture).get("web").await.expect("exists").data["spec"]["replicas"].as_i64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_belong_to_their_topmost_owner_whatever_the_intermediate_names() {
    let Some(fixture) = fixture("chain", &[]).await else { return };
    assert_eq!(replicas(&fixture).await, 6, "{:#}", fixture.status("web").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_upstreams_mode_pods_are_assigned_by_name() {
    let Some(fixture) = fixture("names", &["--compat=upstream"]).await else { return };
    fixture.advance_seconds(60).await;
    assert_eq!(replicas(&fixture).await, 3);
    let (status, _) = fixture.condition("web", "ScalingActive").await.expect("condition is set");
    assert_eq!(status, "False", "none of its pods is recognized as ready");
}
