//! A recommendation that becomes empty is reported in the status once.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::Time;
use serde_json::json;

use super::in_process::{start, step, wait_for_passes, wait_for_vpa, wait_until_written};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::{
    MetricsServer, Testbed, clock::wall_now, hollow_nodes::is_ready, manifests,
    metrics_server::UsageValue, wait,
};

const MINUTE: Duration = Duration::from_mins(1);

fn recommended(vpa: &VerticalPodAutoscaler) -> Option<usize> {
    Some(vpa.status.as_ref()?.recommendation.as_ref()?.container_recommendations.len())
}

fn is_provided(vpa: &VerticalPodAutoscaler) -> Option<&str> {
    let conditions = &vpa.status.as_ref()?.conditions;
    Some(&conditions.iter().find(|one| one.kind == "RecommendationProvided")?.status)
}

#[tokio::test]
async fn switching_all_containers_off_empties_the_recommendation() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("off").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    let only = format!("--vpa-object-namespace={namespace}");
    let web = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, web).await;
    let deployment = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &deployment).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 << 20 });

    let clock = Clock::fake(Time::from(wall_now()));
    usage.at(clock.now().into());
    let running = start(&bed, &clock, &[&*only]).await;
    wait_for_passes(&running, 1).await;
    wait_for_vpa(&bed, &namespace, "web", "is recommended for", |vpa| recommended(vpa) == Some(1))
        .await;

    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let off = json!({"spec": {"resourcePolicy": {"containerPolicies": [
        {"containerName": "*", "mode": "Off"},
    ]}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(off)).await.expect("changed");
    let emptied = wait::until("the recommendation is empty", || async {
        usage.at(clock.now().later(MINUTE).into());
        step(&running, &clock, MINUTE).await;
        api.get_opt("web").await.ok()?.filter(|vpa| recommended(vpa) == Some(0))
    })
    .await;
    assert_eq!(is_provided(&emptied), Some("False"));
    wait_until_written(&running).await;
    let still = step(&running, &clock, MINUTE).await;
    assert_eq!(still.changed, 0, "the only writes are the expected ones");
    running.stop().await;
}
