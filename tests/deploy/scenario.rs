//! A scenario for a cluster in which all roles are installed: it makes them use all of their permissions.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    core::v1::{Pod, ReplicationController},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use plimsoll_core::api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler};
use serde_json::{Value, json};

use super::fixture::Fixture;
use crate::{
    support::{manifests, metrics_server::UsageValue},
    updater::fixture::{wait_for_age, wait_for_ready_pods},
};

/// Namespace of the scenario.
pub const SHOP: &str = "shop";

/// A VPA with a minimum above the requests, so that it is effective without history.
pub fn vpa(name: &str, kind: &str, api: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "targetRef": {"apiVersion": api, "kind": kind, "name": name},
            "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [
                {"containerName": "*", "minAllowed": {"cpu": "250m"}},
            ]},
        },
    })
}

/// The initial objects.
fn initial_objects() -> Vec<Value> {
    let wpa = |name: &str, kind: &str, api: &str, metric: Value| {
        json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
            "metadata": {
                "name": name, "namespace": SHOP,
                "finalizers": ["finalizer.watermarkpodautoscaler.datadoghq.com"],
                "annotations": {"wpa.datadoghq.com/lifecycle-control.enabled": "true"},
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": name},
                "minReplicas": 1, "maxReplicas": 3, "algorithm": "absolute", "tolerance": "1m",
                "scaleUpLimitFactor": "100", "upscaleForbiddenWindowSeconds": 1,
                "metrics": [metric],
            },
        })
    };
    let external = json!({"type": "External", "external": {
        "metricName": "requests", "metricSelector": {"matchLabels": {"app": "all"}},
        "lowWatermark": "50", "highWatermark": "100",
    }});
    let resource = json!({"type": "Resource", "resource": {
        "name": "cpu", "metricSelector": {"matchLabels": {"app": "scaled-set"}},
        "lowWatermark": "10m", "highWatermark": "20m",
    }});
    let monitor = |name: &str| {
        json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "DatadogMonitor",
            "metadata": {"name": name, "namespace": SHOP}, "status": {"monitorState": "OK"},
        })
    };
    let mut all = vec![
        vpa("resized", "Deployment", "apps/v1", "InPlaceOrRecreate"),
        vpa("evicted", "Deployment", "apps/v1", "Recreate"),
        // Its only pod is not evicted, and the VPA's status reports that.
        vpa("alone", "Deployment", "apps/v1", "Recreate"),
        vpa("rolled", "Rollout", "argoproj.io/v1", "Recreate"),
        vpa_to_delete(),
        monitor("scaled"),
        monitor("scaled-set"),
        monitor("scaled-replicas"),
        monitor("scaled-old"),
        wpa("scaled", "Deployment", "apps/v1", external.clone()),
        wpa("scaled-set", "StatefulSet", "apps/v1", resource),
        wpa("scaled-replicas", "ReplicaSet", "apps/v1", external.clone()),
        wpa("scaled-old", "ReplicationController", "v1", external.clone()),
        with_frozen_status(wpa("alone", "Deployment", "apps/v1", external)),
        hpa("observed", "StatefulSet", "apps/v1", "scaled-set"),
    ];
    // No watch has the scale of a target that does not exist.
    all.extend(
        SCALABLE
            .map(|(kind, api)| hpa(&format!("no-{}", kind.to_lowercase()), kind, api, "missing")),
    );
    all
}

/// The built-in kinds with a scale.
const SCALABLE: [(&str, &str); 4] = [
    ("Deployment", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("ReplicationController", "v1"),
];

/// An HPA that changes no replicas within its bounds.
fn hpa(name: &str, kind: &str, api: &str, target: &str) -> Value {
    let disabled = json!({"selectPolicy": "Disabled"});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": target},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
            "behavior": {"scaleUp": disabled, "scaleDown": disabled},
        },
    })
}

/// A dry-run copy that only reports.
fn with_frozen_status(mut wpa: Value) -> Value {
    wpa["spec"]["maxReplicas"] = json!(1);
    wpa["metadata"]["annotations"] = json!({});
    wpa
}

/// A VPA that is deleted once it has a history.
fn vpa_to_delete() -> Value {
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "gone", "namespace": SHOP},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"},
            "updatePolicy": {"updateMode": "Off"},
        },
    })
}

fn definition(group: &str, version: &str, kind: &str, scale: bool) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let mut subresources = json!({});
    if scale {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// CRDs of other projects that the scenario uses. They are created before the installation.
pub fn foreign_definitions() -> [Value; 2] {
    [
        definition("argoproj.io", "v1", "Rollout", true),
        definition("datadoghq.com", "v1alpha1", "DatadogMonitor", false),
    ]
}

/// Creates the workloads and their autoscalers.
pub async fn begin(fixture: &Fixture) {
    let client = fixture.bed.client();
    for (name, replicas) in [("resized", 2), ("evicted", 2), ("scaled", 2), ("alone", 1)] {
        let yaml = manifests::deployment(name, replicas, "100m", "64Mi");
        manifests::create::<Deployment>(client.clone(), SHOP, &yaml).await;
        fixture.usage.set_all(
            SHOP,
            &format!("{name}-"),
            "main",
            UsageValue { cpu: 0.3, memory: 300 << 20 },
        );
    }
    let template = |name: &str| {
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{
            "name": "main", "image": "example/main",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }]}})
    };
    let set = |kind: &str, api: &str, name: &str, selector: Value| {
        json!({
            "apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": SHOP},
            "spec": {"replicas": 1, "selector": selector, "template": template(name)},
        })
    };
    let labels = |name: &str| json!({"matchLabels": {"app": name}});
    let mut sets = vec![
        set("StatefulSet", "apps/v1", "scaled-set", labels("scaled-set")),
        set("ReplicaSet", "apps/v1", "scaled-replicas", labels("scaled-replicas")),
        set("ReplicationController", "v1", "scaled-old", json!({"app": "scaled-old"})),
        json!({
            "apiVersion": "argoproj.io/v1", "kind": "Rollout",
            "metadata": {"name": "rolled", "namespace": SHOP},
            "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=rolled"},
        }),
    ];
    sets[0]["spec"]["serviceName"] = json!("none");
    // Only the owner shows whether its pod belongs to the scale target with the same label.
    let mut stray = set("ReplicaSet", "apps/v1", "stray", labels("scaled-set"));
    for place in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *stray.pointer_mut(place).expect("labels") = json!({"app": "scaled-set", "of": "others"});
    }
    sets.push(stray);
    fixture.apply(&sets).await;
    fixture.usage.set_all(SHOP, "scaled-set-", "main", UsageValue { cpu: 0.3, memory: 16 << 20 });
    fixture.usage.set_external(SHOP, "requests", &[("app", "all")], 150.0);
    // Younger pods cannot be distinguished from those of a rollout.
    wait_for_ready_pods(&fixture.bed, SHOP, "evicted", 2).await;
    wait_for_age(&fixture.bed, SHOP, "evicted", 6).await;
    fixture.apply(&initial_objects()).await;
}

/// Whether all expected effects have occurred; the error is the first one that is missing.
pub async fn is_reached(fixture: &Fixture) -> Result<(), String> {
    let client = fixture.bed.client();
    let pods = Api::<Pod>::namespaced(client.clone(), SHOP);
    for name in ["resized", "evicted"] {
        let of = ListParams::default().labels(&format!("app={name}"));
        let found = pods.list(&of).await.map_err(|why| why.to_string())?.items;
        let cpu = |pod: &Pod| {
            let container = pod.spec.as_ref()?.containers.first()?.resources.clone()?;
            let made = pod.metadata.creation_timestamp.as_ref()?.0;
            Some((container.requests?.get("cpu")?.0.clone(), made.to_string()))
        };
        let amounts: Vec<_> = found.iter().map(cpu).collect();
        let is_old =
            |one: &Option<(String, String)>| one.as_ref().is_none_or(|(cpu, _)| cpu == "100m");
        if amounts.iter().any(is_old) || amounts.len() != 2 {
            let vpa =
                Api::<VerticalPodAutoscaler>::namespaced(client.clone(), SHOP).get(name).await;
            let status = vpa.map(|vpa| vpa.status.map(|status| status.conditions));
            return Err(format!("pods of {name} have {amounts:?}, and its VPA says {status:?}"));
        }
    }
    let replicas = [
        ("scaled", get::<Deployment>(fixture, "scaled").await),
        ("scaled-set", get::<StatefulSet>(fixture, "scaled-set").await),
        ("scaled-replicas", get::<ReplicaSet>(fixture, "scaled-replicas").await),
        ("scaled-old", get::<ReplicationController>(fixture, "scaled-old").await),
    ];
    for (name, found) in replicas {
        if found != Some(3) {
            return Err(format!("{name} has {found:?} replicas"));
        }
    }
    Ok(())
}

async fn get<K>(fixture: &Fixture, name: &str) -> Option<i32>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let api = Api::<K>::namespaced(fixture.bed.client(), SHOP);
    api.get_scale(name).await.ok()?.spec?.replicas
}

/// Keeps the scenario going: there are always new values, the load grows, the VPA is deleted once it has a history,
/// and pods of a kind that is resolved through its scale are created with a dry run.
pub async fn keep_changing(fixture: &Fixture) {
    let client = fixture.bed.client();
    let pods = Api::<Pod>::namespaced(client.clone(), SHOP);
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), SHOP);
    let checkpoints = Api::<Checkpoint>::namespaced(client.clone(), SHOP);
    let wpas = Api::<WatermarkPodAutoscaler>::namespaced(client.clone(), SHOP);
    let plain = PatchParams::default();
    for turn in 1_u32.. {
        let news = Patch::Merge(json!({"spec": {"dryRun": turn % 2 == 0}}));
        let _ = wpas.patch("alone", &plain, &news).await;
        let least = format!("{}m", 250 + 20 * turn);
        let more = Patch::Merge(json!({"spec": {"resourcePolicy": {"containerPolicies": [
            {"containerName": "*", "minAllowed": {"cpu": least}},
        ]}}}));
        let _ = vpas.patch("resized", &plain, &more).await;
        let found = checkpoints.list(&ListParams::default()).await;
        if found.is_ok_and(|found| found.iter().any(|one| one.name_any().starts_with("gone-"))) {
            // It may already be deleted.
            let _ = vpas.delete("gone", &DeleteParams::default()).await;
        }
        dry_run_create_pod(fixture, &pods).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Creates a pod of the Rollout as its controller would, as a dry run.
async fn dry_run_create_pod(fixture: &Fixture, pods: &Api<Pod>) {
    let about = json!({
        "apiVersion": "argoproj.io/v1", "kind": "Rollout",
        "metadata": {"name": "rolled", "namespace": SHOP},
    });
    let (rollouts, name) = super::fixture::api(&fixture.bed.client(), &about);
    let Ok(rollout) = rollouts.get(&name).await else { return };
    let pod = json!({
        "metadata": {"name": "rolled-0", "labels": {"app": "rolled"}, "ownerReferences": [{
            "apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": name, "controller": true,
            "uid": rollout.metadata.uid,
        }]},
        "spec": {"containers": [{"name": "main", "image": "example/main"}]},
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let rehearsal = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&rehearsal, &pod).await.expect("the webhook refuses nothing");
}
