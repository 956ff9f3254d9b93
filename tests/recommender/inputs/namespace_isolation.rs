//! Two namespaces in which everything has the same names and labels: what is done for the VPA in one leaves the other alone.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use plimsoll::controllers;
use plimsoll::{cli::updater_config, cluster::clock::Clock};
use serde_json::json;

use super::fixture::{Fixture, target_for_usage};
use crate::{
    support::{clock::wall_now, manifests, wait},
    updater::fixture::{
        pods, uids, wait_for_age, wait_for_passes, wait_for_ready_pods, wait_until_blocked_by,
    },
};

/// Pods of a StatefulSet have the same names in each namespace, which those of a Deployment have not.
async fn twin(stage: &Fixture, namespace: &str) -> Vec<Pod> {
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "serviceName": "none", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
                "name": "main", "image": "example/main",
                "resources": {"requests": {"cpu": "10m", "memory": "512Mi"}},
            }]}},
        },
    });
    manifests::create::<StatefulSet>(stage.client(), namespace, &set.to_string()).await;
    wait_for_ready_pods(&stage.bed, namespace, "web", 2).await
}

async fn autoscale(stage: &Fixture, namespace: &str, mode: &str) {
    let spec = json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
        "updatePolicy": {"updateMode": mode},
    });
    stage.create_vpa_with(namespace, "web", &spec).await;
}

pub async fn a_vpa_reaches_neither_pods_nor_histories_of_a_namespace_that_looks_the_same(
    stage: &Fixture,
) {
    let (ours, other) = (stage.bed.namespace("ours").await, stage.bed.namespace("other").await);
    let before = [twin(stage, &ours).await, twin(stage, &other).await].map(|pods| uids(&pods));
    stage.set_usage(&ours, "web-", 0.1, 700);
    stage.set_usage(&other, "web-", 3.0, 4000);
    autoscale(stage, &ours, "Recreate").await;
    let play = stage.start_recommender_at(wall_now().into(), &[]).await;
    for _ in 0..3 {
        assert_eq!(play.step(stage).await.vpas, 1);
    }
    stage.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    stage.wait_for_samples(&ours, "web-main", 4).await;
    assert_eq!(stage.checkpoints(&other).await, [""; 0], "nobody asked for it");

    evict(stage, &ours).await;
    let after = [
        wait_for_ready_pods(&stage.bed, &ours, "web", 2).await,
        pods(&stage.client(), &other, "web").await,
    ];
    let after = after.map(|pods| uids(&pods));
    assert_eq!(before[0].difference(&after[0]).count(), 1, "the first one was evicted");
    assert_eq!(before[1], after[1], "those of the other namespace were not touched");

    // What somebody kept there under the same name is history of that VPA alone, also when both are read anew.
    play.stop().await;
    stage.write_checkpoint(&other, "web", wall_now().as_second()).await;
    autoscale(stage, &other, "Off").await;
    let play = stage.start_recommender_at(wall_now().into(), &[]).await;
    for _ in 0..3 {
        assert_eq!(play.step(stage).await.vpas, 2);
    }
    let known = stage.wait_for_samples(&other, "web-main", 10_081).await;
    let own = stage.wait_for_samples(&ours, "web-main", 5).await;
    assert!(own < 100 && known < 10_200, "{own} of its own, and {known}");
    stage.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    let told = wait::until("the other one is recommended for", || async {
        let told = stage.vpa(&other, "web").await.to_string();
        told.contains("containerRecommendations").then_some(told)
    })
    .await;
    assert!(!told.contains(&target_for_usage(700)), "{told}");
    play.stop().await;
}

/// Has an updater that looks after all namespaces evict the first pod of the only VPA, and no other one.
async fn evict(stage: &Fixture, namespace: &str) {
    wait_for_age(&stage.bed, namespace, "web", 6).await;
    let leases = format!("--leader-elect-resource-namespace={namespace}");
    let flags = [
        "--address=127.0.0.1:0",
        "--updater-interval=500ms",
        "--use-admission-controller-status=false",
        "--recommender-heartbeat=ignore",
        &leases,
    ];
    let config = updater_config(&flags, |_| String::new()).expect("flags that make sense");
    let running = controllers::start(config, stage.client(), Clock::wall()).await.expect("starts");
    // No webhook sizes the pod that comes in its place.
    wait_until_blocked_by(&stage.bed, namespace, "web", "BreakerOpen").await;
    wait_for_passes(&running, 4).await;
    running.stop().await;
}
