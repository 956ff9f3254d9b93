//! History stays with its workload, whatever the names of pods and VPAs are.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::fixture::{Fixture, target, target_for_usage};
use crate::support::bulk_objects::{ApiWrite, collection, create_definition};
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::wait;

pub async fn a_rollout_of_a_deployment_keeps_its_history(fixture: &Fixture) {
    let namespace = fixture.namespace("rollout").await;
    fixture.create_vpa(&namespace, "web", "web").await;
    let old = fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.5, 900);
    let recommender = fixture.start_recommender(&namespace, &[]).await;
    for _ in 0..5 {
        recommender.step(fixture).await;
    }
    let before = fixture.wait_for_samples(&namespace, "web-main", 6).await;

    let deployments = Api::<Deployment>::namespaced(fixture.client(), &namespace);
    let change =
        json!({ "spec": { "template": { "metadata": { "annotations": { "release": "2" } } } } });
    let plain = PatchParams::default();
    deployments.patch("web", &plain, &Patch::Merge(change)).await.expect("rolled out");
    let new = fixture.bed.nodes();
    let is_new = |pod: &k8s_openapi::api::core::v1::Pod| is_ready(pod) && pod.name_any() != old;
    new.pods(&namespace, "web-", 1, "is of the new release", is_new).await;
    wait::until("the old pod is gone", || async {
        let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(fixture.client(), &namespace);
        pods.get_opt(&old).await.ok()?.is_none().then_some(())
    })
    .await;
    fixture.set_usage(&namespace, "web-", 0.1, 100);
    for _ in 0..3 {
        recommender.step(fixture).await;
    }
    fixture.wait_for_samples(&namespace, "web-main", before + 1).await;
    fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(900)).await;
    recommender.stop().await;
}

pub async fn a_rollout_of_a_custom_resource_keeps_its_history(fixture: &Fixture) {
    fixture.send(create_definition()).await;
    let namespace = fixture.namespace("argo").await;
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout");
    let resource = ApiResource::from_gvk(&kind);
    let rollouts: Api<DynamicObject> =
        Api::namespaced_with(fixture.client(), &namespace, &resource);
    let rollout = DynamicObject::new("web", &resource).data(json!({ "spec": { "replicas": 1 } }));
    let rollout = wait::until("the rollout is created", || async {
        rollouts.create(&PostParams::default(), &rollout).await.ok()
    })
    .await;
    let uid = rollout.uid().expect("has one");
    let status = json!({ "status": { "selector": "app=web" } });
    let path = collection("argoproj.io/v1alpha1", &namespace, "rollouts");
    fixture.send(ApiWrite::patch(format!("{path}/web/status"), &status)).await;
    let sets = collection("apps/v1", &namespace, "replicasets");
    let set = |hash: &str| {
        let labels = json!({ "app": "web", "pod-template-hash": hash });
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": format!("web-{hash}"), "namespace": namespace, "ownerReferences": [{
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": uid, "controller": true,
            }] },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "example/web" }] },
            } },
        })
    };
    fixture.send(ApiWrite::create(&*sets, &set("one"))).await;
    fixture.pod(&namespace, "web-one-").await;
    let target = json!({ "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web" });
    fixture.create_vpa_with(&namespace, "web", &json!({ "targetRef": target })).await;
    fixture.set_usage(&namespace, "web-", 0.5, 900);
    let recommender = fixture.start_recommender(&namespace, &[]).await;
    wait::until("the rollout's pods are found", || async {
        (recommender.step(fixture).await.samples > 0).then_some(())
    })
    .await;
    for _ in 0..3 {
        recommender.step(fixture).await;
    }
    let before = fixture.wait_for_samples(&namespace, "web-main", 4).await;

    fixture.send(ApiWrite::create(&*sets, &set("two"))).await;
    fixture.pod(&namespace, "web-two-").await;
    let none = json!({ "spec": { "replicas": 0 } });
    fixture.send(ApiWrite::patch(format!("{sets}/web-one"), &none)).await;
    fixture.set_usage(&namespace, "web-", 0.1, 100);
    recommender.wait_for_metric_line("plimsoll_feed_objects{feed=\"pods\"} 1").await;
    for _ in 0..3 {
        recommender.step(fixture).await;
    }
    fixture.wait_for_samples(&namespace, "web-main", before + 2).await;
    fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(900)).await;
    recommender.stop().await;
}

pub async fn a_renamed_vpa_inherits_history_and_one_for_another_workload_does_not(
    fixture: &Fixture,
) {
    let namespace = fixture.namespace("heirs").await;
    fixture.deploy(&namespace, "heavy").await;
    fixture.deploy(&namespace, "light").await;
    fixture.set_usage(&namespace, "heavy-", 0.5, 3000);
    fixture.set_usage(&namespace, "light-", 0.1, 300);
    fixture.create_vpa(&namespace, "first", "heavy").await;
    // The orphaned checkpoint must not be collected before the new VPA exists.
    let recommender =
        fixture.start_recommender(&namespace, &["--checkpoints-gc-interval=1000h"]).await;
    for _ in 0..5 {
        recommender.step(fixture).await;
    }
    let before = fixture.wait_for_samples(&namespace, "first-main", 6).await;

    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &namespace);
    vpas.delete("first", &kube::api::DeleteParams::default()).await.expect("deleted");
    recommender
        .wait_for_metric_line("plimsoll_feed_objects{feed=\"verticalpodautoscalers\"} 0")
        .await;
    fixture.create_vpa(&namespace, "second", "heavy").await;
    recommender
        .wait_for_metric_line("plimsoll_feed_objects{feed=\"verticalpodautoscalers\"} 1")
        .await;
    // Usage is low from here on: the recommendation comes from stored history.
    fixture.set_usage(&namespace, "heavy-", 0.1, 50);
    wait::until("the new VPA has samples", || async {
        (recommender.step(fixture).await.samples == 2).then_some(())
    })
    .await;
    fixture.wait_for_samples(&namespace, "second-main", before + 1).await;
    // The checkpoint may have been loaded after the last pass.
    recommender.step(fixture).await;
    fixture.wait_for_target(&namespace, "second", "main", "memory", &target_for_usage(3000)).await;

    let change = json!({ "spec": { "targetRef": { "name": "light" } } });
    fixture.send(ApiWrite::patch(Fixture::path(&namespace, "second"), &change)).await;
    // Any history of the heavy workload would dominate the peaks.
    wait::until("the VPA has only the other workload's history", || async {
        recommender.step(fixture).await;
        let vpa = fixture.vpa(&namespace, "second").await;
        (target(&vpa, "main", "memory")? == target_for_usage(300)).then_some(())
    })
    .await;
    recommender.stop().await;
}

pub async fn the_history_of_a_vpa_created_later_is_loaded_at_once(fixture: &Fixture) {
    let namespace = fixture.namespace("later").await;
    fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.1, 100);
    fixture.write_checkpoint(&namespace, "web", wall_now().as_second()).await;
    // Orphans are not collected for a while, so there is time to recreate the VPA.
    let recommender =
        fixture.start_recommender(&namespace, &["--checkpoints-gc-interval=1000h"]).await;
    assert_eq!(recommender.step(fixture).await.vpas, 0);
    fixture.create_vpa(&namespace, "web", "web").await;
    wait::until("the VPA is observed", || async {
        (recommender.step(fixture).await.samples == 2).then_some(())
    })
    .await;
    fixture.wait_for_samples(&namespace, "web-main", 10_081).await;
    recommender.step(fixture).await;
    fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(4 * 1024)).await;
    assert_eq!(target_for_usage(4 * 1024), "4992073454", "as published before");
    recommender.stop().await;
}
