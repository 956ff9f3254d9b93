//! Two namespaces with the same names and labels: actions for the VPA in one do not affect the other.

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

/// Pods of a StatefulSet have the same names in each namespace, unlike those of a Deployment.
async fn twin(fixture: &Fixture, namespace: &str) -> Vec<Pod> {
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
    manifests::create::<StatefulSet>(fixture.client(), namespace, &set.to_string()).await;
    wait_for_ready_pods(&fixture.bed, namespace, "web", 2).await
}

async fn autoscale(fixture: &Fixture, namespace: &str, mode: &str) {
    let spec = json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
        "updatePolicy": {"updateMode": mode},
    });
    fixture.create_vpa_with(namespace, "web", &spec).await;
}

pub async fn a_vpa_affects_no_pods_and_no_history_of_an_identical_namespace(fixture: &Fixture) {
    let (ours, other) = (fixture.bed.namespace("ours").await, fixture.bed.namespace("other").await);
    let before = [twin(fixture, &ours).await, twin(fixture, &other).await].map(|pods| uids(&pods));
    fixture.set_usage(&ours, "web-", 0.1, 700);
    fixture.set_usage(&other, "web-", 3.0, 4000);
    autoscale(fixture, &ours, "Recreate").await;
    let recommender = fixture.start_recommender_at(wall_now().into(), &[]).await;
    for _ in 0..3 {
        assert_eq!(recommender.step(fixture).await.vpas, 1);
    }
    fixture.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    fixture.wait_for_samples(&ours, "web-main", 4).await;
    assert_eq!(fixture.checkpoints(&other).await, [""; 0], "not requested");

    evict(fixture, &ours).await;
    let after = [
        wait_for_ready_pods(&fixture.bed, &ours, "web", 2).await,
        pods(&fixture.client(), &other, "web").await,
    ];
    let after = after.map(|pods| uids(&pods));
    assert_eq!(before[0].difference(&after[0]).count(), 1, "the first pod was evicted");
    assert_eq!(before[1], after[1], "pods of the other namespace are unchanged");

    // A checkpoint of the same name is history of that namespace's VPA alone, also when both are loaded again.
    recommender.stop().await;
    fixture.write_checkpoint(&other, "web", wall_now().as_second()).await;
    autoscale(fixture, &other, "Off").await;
    let recommender = fixture.start_recommender_at(wall_now().into(), &[]).await;
    for _ in 0..3 {
        assert_eq!(recommender.step(fixture).await.vpas, 2);
    }
    let known = fixture.wait_for_samples(&other, "web-main", 10_081).await;
    let own = fixture.wait_for_samples(&ours, "web-main", 5).await;
    assert!(own < 100 && known < 10_200, "{own} of its own, and {known}");
    fixture.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    let json = wait::until("the other VPA has a recommendation", || async {
        let json = fixture.vpa(&other, "web").await.to_string();
        json.contains("containerRecommendations").then_some(json)
    })
    .await;
    assert!(!json.contains(&target_for_usage(700)), "{json}");
    recommender.stop().await;
}

/// Runs an updater for all namespaces until it has evicted the first pod of the only VPA, and no other.
async fn evict(fixture: &Fixture, namespace: &str) {
    wait_for_age(&fixture.bed, namespace, "web", 6).await;
    let leases = format!("--leader-elect-resource-namespace={namespace}");
    let flags = [
        "--address=127.0.0.1:0",
        "--updater-interval=500ms",
        "--use-admission-controller-status=false",
        "--recommender-heartbeat=ignore",
        &leases,
    ];
    let config = updater_config(&flags, |_| String::new()).expect("valid flags");
    let running =
        controllers::start(config, fixture.client(), Clock::wall()).await.expect("starts");
    // No webhook sizes the replacement pod.
    wait_until_blocked_by(&fixture.bed, namespace, "web", "BreakerOpen").await;
    wait_for_passes(&running, 4).await;
    running.stop().await;
}
