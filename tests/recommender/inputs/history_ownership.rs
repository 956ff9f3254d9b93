//! History that stays with its workload, whatever its pods and VPAs are called.

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

pub async fn a_rollout_of_a_deployment_keeps_its_history(stage: &Fixture) {
    let namespace = stage.namespace("rollout").await;
    stage.create_vpa(&namespace, "web", "web").await;
    let old = stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.5, 900);
    let play = stage.start_recommender(&namespace, &[]).await;
    for _ in 0..5 {
        play.step(stage).await;
    }
    let before = stage.wait_for_samples(&namespace, "web-main", 6).await;

    let deployments = Api::<Deployment>::namespaced(stage.client(), &namespace);
    let change =
        json!({ "spec": { "template": { "metadata": { "annotations": { "release": "2" } } } } });
    let plain = PatchParams::default();
    deployments.patch("web", &plain, &Patch::Merge(change)).await.expect("rolled out");
    let new = stage.bed.nodes();
    let is_new = |pod: &k8s_openapi::api::core::v1::Pod| is_ready(pod) && pod.name_any() != old;
    new.pods(&namespace, "web-", 1, "is of the new release", is_new).await;
    wait::until("the old pod is gone", || async {
        let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(stage.client(), &namespace);
        pods.get_opt(&old).await.ok()?.is_none().then_some(())
    })
    .await;
    stage.set_usage(&namespace, "web-", 0.1, 100);
    for _ in 0..3 {
        play.step(stage).await;
    }
    stage.wait_for_samples(&namespace, "web-main", before + 1).await;
    stage.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(900)).await;
    play.stop().await;
}

pub async fn a_deploy_of_a_custom_resource_keeps_its_history(stage: &Fixture) {
    stage.send(create_definition()).await;
    let namespace = stage.namespace("argo").await;
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Rollout");
    let resource = ApiResource::from_gvk(&kind);
    let rollouts: Api<DynamicObject> = Api::namespaced_with(stage.client(), &namespace, &resource);
    let rollout = DynamicObject::new("web", &resource).data(json!({ "spec": { "replicas": 1 } }));
    let rollout = wait::until("the rollout is created", || async {
        rollouts.create(&PostParams::default(), &rollout).await.ok()
    })
    .await;
    let uid = rollout.uid().expect("it has one");
    let status = json!({ "status": { "selector": "app=web" } });
    let path = collection("argoproj.io/v1alpha1", &namespace, "rollouts");
    stage.send(ApiWrite::patch(format!("{path}/web/status"), &status)).await;
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
    stage.send(ApiWrite::create(&*sets, &set("one"))).await;
    stage.pod(&namespace, "web-one-").await;
    let target = json!({ "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web" });
    stage.create_vpa_with(&namespace, "web", &json!({ "targetRef": target })).await;
    stage.set_usage(&namespace, "web-", 0.5, 900);
    let play = stage.start_recommender(&namespace, &[]).await;
    wait::until("the rollout's pods are found", || async {
        (play.step(stage).await.samples > 0).then_some(())
    })
    .await;
    for _ in 0..3 {
        play.step(stage).await;
    }
    let before = stage.wait_for_samples(&namespace, "web-main", 4).await;

    stage.send(ApiWrite::create(&*sets, &set("two"))).await;
    stage.pod(&namespace, "web-two-").await;
    let none = json!({ "spec": { "replicas": 0 } });
    stage.send(ApiWrite::patch(format!("{sets}/web-one"), &none)).await;
    stage.set_usage(&namespace, "web-", 0.1, 100);
    play.wait_for_metric_line("plimsoll_feed_objects{feed=\"pods\"} 1").await;
    for _ in 0..3 {
        play.step(stage).await;
    }
    stage.wait_for_samples(&namespace, "web-main", before + 2).await;
    stage.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(900)).await;
    play.stop().await;
}

pub async fn a_vpa_under_another_name_inherits_and_one_for_another_workload_does_not(
    stage: &Fixture,
) {
    let namespace = stage.namespace("heirs").await;
    stage.deploy(&namespace, "heavy").await;
    stage.deploy(&namespace, "light").await;
    stage.set_usage(&namespace, "heavy-", 0.5, 3000);
    stage.set_usage(&namespace, "light-", 0.1, 300);
    stage.create_vpa(&namespace, "first", "heavy").await;
    // Nobody collects what it leaves before there is an heir.
    let play = stage.start_recommender(&namespace, &["--checkpoints-gc-interval=1000h"]).await;
    for _ in 0..5 {
        play.step(stage).await;
    }
    let before = stage.wait_for_samples(&namespace, "first-main", 6).await;

    let vpas = Api::<VerticalPodAutoscaler>::namespaced(stage.client(), &namespace);
    vpas.delete("first", &kube::api::DeleteParams::default()).await.expect("deleted");
    play.wait_for_metric_line("plimsoll_feed_objects{feed=\"verticalpodautoscalers\"} 0").await;
    stage.create_vpa(&namespace, "second", "heavy").await;
    play.wait_for_metric_line("plimsoll_feed_objects{feed=\"verticalpodautoscalers\"} 1").await;
    // Nobody uses much from here on: what is recommended is remembered.
    stage.set_usage(&namespace, "heavy-", 0.1, 50);
    wait::until("the new VPA has samples", || async {
        (play.step(stage).await.samples == 2).then_some(())
    })
    .await;
    stage.wait_for_samples(&namespace, "second-main", before + 1).await;
    // What was stored may have come after the last pass.
    play.step(stage).await;
    stage.wait_for_target(&namespace, "second", "main", "memory", &target_for_usage(3000)).await;

    let change = json!({ "spec": { "targetRef": { "name": "light" } } });
    stage.send(ApiWrite::patch(Fixture::path(&namespace, "second"), &change)).await;
    // With anything left of the heavy workload, its peaks would decide.
    wait::until("the VPA is about the other workload alone", || async {
        play.step(stage).await;
        let vpa = stage.vpa(&namespace, "second").await;
        (target(&vpa, "main", "memory")? == target_for_usage(300)).then_some(())
    })
    .await;
    play.stop().await;
}

pub async fn a_vpa_that_comes_later_is_loaded_on_first_sight(stage: &Fixture) {
    let namespace = stage.namespace("later").await;
    stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.1, 100);
    stage.write_checkpoint(&namespace, "web", wall_now().as_second()).await;
    // Orphans stay for a while, so there is time to bring the VPA back.
    let play = stage.start_recommender(&namespace, &["--checkpoints-gc-interval=1000h"]).await;
    assert_eq!(play.step(stage).await.vpas, 0);
    stage.create_vpa(&namespace, "web", "web").await;
    wait::until("the VPA is seen", || async {
        (play.step(stage).await.samples == 2).then_some(())
    })
    .await;
    stage.wait_for_samples(&namespace, "web-main", 10_081).await;
    play.step(stage).await;
    stage.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(4 * 1024)).await;
    assert_eq!(target_for_usage(4 * 1024), "4992073454", "as users have seen it");
    play.stop().await;
}
