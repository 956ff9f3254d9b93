//! A recommender in the test's process: it recommends, saves, restarts and continues.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::Time;

use super::in_process::{start, step, wait_for_passes, wait_for_vpa, wait_until_written};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::{
    MetricsServer, Testbed, clock::wall_now, hollow_nodes::is_ready, manifests,
    metrics_server::UsageValue,
};

const MINUTE: Duration = Duration::from_mins(1);
const MEBIBYTE: u64 = 1 << 20;

fn autoscaler(name: &str) -> String {
    format!(
        "
metadata: {{name: {name}}}
spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}
"
    )
}

fn target(vpa: &VerticalPodAutoscaler) -> Option<(String, String)> {
    let recommendation =
        vpa.status.as_ref()?.recommendation.as_ref()?.container_recommendations.first()?;
    Some((recommendation.target.cpu()?.to_string(), recommendation.target.memory()?.to_string()))
}

#[tokio::test]
async fn a_workload_gets_a_recommendation_and_a_graceful_restart_loses_nothing() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    let only = format!("--vpa-object-namespace={namespace}");
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, &autoscaler("web")).await;
    let web = manifests::deployment("web", 2, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 * MEBIBYTE });

    let begin = Time::from(wall_now());
    let clock = Clock::fake(begin);
    usage.at(begin.into());
    let running = start(&bed, &clock, &[&*only]).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..10 {
        let summary = step_to(&running, &clock, &usage).await;
        assert_eq!((summary.pods, summary.samples), (2, 4), "two pods, CPU and memory each");
    }
    let is_told = |vpa: &VerticalPodAutoscaler| target(vpa).is_some();
    let before = wait_for_vpa(&bed, &namespace, "web", "has a target", is_told).await;
    wait_until_written(&running).await;
    let before_restart = wait_for_vpa(&bed, &namespace, "web", "exists", |_| true).await;
    assert_eq!(target(&before), target(&before_restart));
    running.stop().await;

    // No usage from here on: a recommender with an empty history would recommend the minimum.
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.0, memory: 0 });
    let running = start(&bed, &clock, &[&*only]).await;
    wait_for_passes(&running, 1).await;
    step_to(&running, &clock, &usage).await;
    wait_until_written(&running).await;
    let after = wait_for_vpa(&bed, &namespace, "web", "exists", |_| true).await;
    assert_eq!(target(&before_restart), target(&after));
    running.stop().await;
}

async fn step_to(
    running: &plimsoll::controllers::recommender::RecommenderHandle,
    clock: &Clock,
    usage: &MetricsServer,
) -> plimsoll::controllers::recommender::PassSummary {
    usage.at(clock.now().later(MINUTE).into());
    step(running, clock, MINUTE).await
}
