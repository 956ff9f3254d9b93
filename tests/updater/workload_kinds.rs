//! Workloads of other kinds: each has a different object that replaces its pods and sets their number.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    availability_watch::AvailabilityWatch,
    fixture::{
        self, deployment, metric_sum, metrics, vpa, vpa_with, wait_for_passes, wait_for_ready_pods,
    },
    sizing_webhook::SizingWebhook,
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed, bulk_objects,
        holding_proxy::{HoldingProxy, RoleWrite},
        manifests,
    },
};

const FLAGS: &[&str] =
    &["--leader-elect=false", "--updater-interval=300ms", "--cool-down=0", "--canary-watch=0"];

/// Selector and template of a workload, as in its spec.
fn spec(name: &str) -> Value {
    json!({"selector": {"matchLabels": {"app": name}}, "template": template(name)})
}

fn template(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{
            "name": "main", "image": "example/any",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
}

fn with(mut object: Value, more: &Value) -> String {
    object.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    object.to_string()
}

fn workload(name: &str, more: &Value) -> String {
    json!({
        "metadata": {"name": name},
        "spec": serde_json::from_str::<Value>(&with(spec(name), more)).expect("JSON"),
    })
    .to_string()
}

/// Creates a VPA for a target that is not a Deployment.
async fn autoscaled(bed: &Testbed, namespace: &str, name: &str, api_version: &str, kind: &str) {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
    let spec = json!({"targetRef": target, "updatePolicy": {"updateMode": "Recreate"}});
    vpa_with(bed, namespace, name, spec, "250m").await;
}

/// Creates a custom resource with `/scale` that describes its pods as an operator would.
async fn custom(bed: &Testbed, namespace: &str, name: &str) -> DynamicObject {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout");
    let resource = ApiResource::from_gvk_with_plural(&kind, "rollouts");
    let api = Api::<DynamicObject>::namespaced_with(bed.client(), namespace, &resource);
    let object = DynamicObject::new(name, &resource).data(json!({"spec": {"replicas": 3}}));
    let created = manifests::create_with_retry(&api, &object).await;
    let status = json!({"status": {"replicas": 3, "selector": format!("app={name}")}});
    let parameters = PatchParams::default();
    api.patch_status(name, &parameters, &Patch::Merge(&status)).await.expect("valid status");
    created
}

fn owned(owner: &DynamicObject) -> Value {
    json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": owner.name_any(),
        "uid": owner.uid().expect("set by the server"), "controller": true,
    }])
}

/// Maintains three pods of a custom resource, as an operator that creates its pods directly.
fn operate(client: Client, namespace: String, owner: DynamicObject) -> JoinHandle<()> {
    tokio::spawn(async move {
        let name = owner.name_any();
        let api = Api::<Pod>::namespaced(client.clone(), &namespace);
        let mut number = 0;
        loop {
            let now = fixture::pods(&client, &namespace, &name).await;
            let is_active = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
            for _ in now.iter().filter(is_active).count()..3 {
                let mut pod = template(&name);
                pod["metadata"]["name"] = format!("{name}-{number}").into();
                pod["metadata"]["ownerReferences"] = owned(&owner);
                number += 1;
                let pod: Pod = serde_json::from_value(pod).expect("valid pod");
                api.create(&PostParams::default(), &pod).await.expect("pod with a generated name");
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
}

#[tokio::test]
async fn pods_of_every_kind_with_replicas_are_replaced_one_by_one_and_single_pods_are_not() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bulk_objects::send(&bed.client(), [bulk_objects::create_definition()]).await;
    for node in ["one", "two", "three"] {
        bed.nodes().add(node, "16", "64Gi").await;
    }
    let namespace = bed.namespace("kinds").await;
    let client = || bed.client();
    let three = json!({"replicas": 3});
    let parallel = json!({"replicas": 3, "serviceName": "set", "podManagementPolicy": "Parallel"});
    manifests::create::<StatefulSet>(client(), &namespace, &workload("set", &parallel)).await;
    manifests::create::<DaemonSet>(client(), &namespace, &workload("daemon", &json!({}))).await;
    manifests::create::<ReplicaSet>(client(), &namespace, &workload("plain", &three)).await;
    // A custom resource with a ReplicaSet below it, and one that owns its pods directly.
    let rollout = custom(&bed, &namespace, "rollout").await;
    let mut below: Value =
        serde_json::from_str(&workload("rollout", &three)).expect("just written");
    below["metadata"]["ownerReferences"] = owned(&rollout);
    manifests::create::<ReplicaSet>(client(), &namespace, &below.to_string()).await;
    let clones = custom(&bed, &namespace, "clones").await;
    let operator = operate(client(), namespace.clone(), clones);
    let kinds = [
        ("set", "apps/v1", "StatefulSet"),
        ("daemon", "apps/v1", "DaemonSet"),
        ("plain", "apps/v1", "ReplicaSet"),
        ("rollout", "argoproj.io/v1alpha1", "Rollout"),
        ("clones", "argoproj.io/v1alpha1", "Rollout"),
    ];
    let mut watches = Vec::new();
    for (name, api_version, kind) in kinds {
        wait_for_ready_pods(&bed, &namespace, name, 3).await;
        watches.push((name, AvailabilityWatch::watch(client(), &namespace, name).await));
        autoscaled(&bed, &namespace, name, api_version, kind).await;
    }
    let mut job = json!({"metadata": {"name": "job"}, "spec": {"template": template("job")}});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    manifests::create::<Job>(client(), &namespace, &job.to_string()).await;
    wait_for_ready_pods(&bed, &namespace, "job", 1).await;
    autoscaled(&bed, &namespace, "job", "batch/v1", "Job").await;
    for name in ["lonely", "single"] {
        deployment(&bed, &namespace, name, 1).await;
        vpa(&bed, &namespace, name, "Recreate", "250m").await;
    }
    // This is the last one that the webhook gets to know.
    let _webhook = SizingWebhook::start(&bed, &namespace, "single", "250m").await;
    for name in ["clones", "job", "single"] {
        fixture::wait_for_age(&bed, &namespace, name, 6).await;
    }
    let job = AvailabilityWatch::watch(client(), &namespace, "job").await;
    let single = AvailabilityWatch::watch(client(), &namespace, "single").await;
    let lonely = AvailabilityWatch::watch(client(), &namespace, "lonely").await;

    let proxy = HoldingProxy::start(&bed, &namespace).await;
    let running = fixture::start(proxy.client(), &namespace, FLAGS).await;
    for (name, watch) in &watches {
        watch.wait_for_cpu(3, "250m").await;
        watch.wait_until_available(3).await;
        assert_eq!(
            watch.total_pods(),
            6,
            "{name}: each was evicted once: {:?}",
            watch.requests_over_time()
        );
        assert!(
            watch.min_available() >= 2,
            "{name}: only {} of 3 were ready",
            watch.min_available()
        );
    }
    wait_for_passes(&running, 4).await;
    assert_eq!(proxy.attempted_paths(RoleWrite::Eviction).len(), 15);
    let alone = [&single, &lonely, &job].map(AvailabilityWatch::total_pods);
    assert_eq!(alone, [1, 1, 1], "single replicas are not evicted");
    let page = metrics(&running).await;
    for name in ["single", "lonely", "job"] {
        let labels = [r#"reason="below_min_replicas""#.to_owned(), format!(r#"name="{name}""#)];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert_eq!(metric_sum(&page, "plimsoll_restricted_scaling", &labels), 1.0, "{page}");
    }

    // Unless its VPA allows it.
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(client(), &namespace);
    let alone = json!({"spec": {"updatePolicy": {"minReplicas": 1}}});
    let parameters = PatchParams::default();
    vpas.patch("single", &parameters, &Patch::Merge(&alone)).await.expect("has a minimum");
    single.wait_for_cpu(1, "250m").await;
    single.wait_until_available(1).await;
    wait_for_passes(&running, 3).await;
    assert_eq!([&single, &lonely, &job].map(AvailabilityWatch::total_pods), [2, 1, 1]);
    running.stop().await;

    // And with a flag, for all of them.
    let flags = [FLAGS, &["--min-replicas=1"]].concat();
    let running = fixture::start(proxy.client(), &namespace, &flags).await;
    lonely.wait_for_cpu(1, "250m").await;
    lonely.wait_until_available(1).await;
    running.stop().await;
    for (name, watch) in &watches {
        assert_eq!(watch.total_pods(), 6, "{name}");
    }
    operator.abort();
}
