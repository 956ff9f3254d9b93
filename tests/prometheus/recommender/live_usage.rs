//! Live usage comes from Prometheus if there is no metrics API.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::fixture::{MEBIBYTE, cores, recommendation};
use crate::recommender::in_process::{self, start};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::{Fault, MetricsApi, UsageValue};
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer, ScrapeTarget};
use crate::support::{MetricsServer, Testbed, manifests, wait};

#[tokio::test]
async fn without_a_metrics_api_usage_is_read_from_prometheus() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    let yaml = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, yaml).await;
    let web = manifests::deployment("web", 2, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 2.0, memory: 300 * MEBIBYTE });
    usage.set_fault(MetricsApi::Resource, Some(Fault::Status(503)));
    let targets = ScrapeTarget::for_usage(&usage, "kubelet");
    let Some(server) = PrometheusServer::start(PrometheusRelease::V3, None, &targets).await else {
        return;
    };

    let address = format!("--prometheus-address={}", server.url());
    let only = format!("--vpa-object-namespace={namespace}");
    let flags = ["--usage-source=prometheus", "--recommender-interval=2s", &*address, &*only];
    let running = start(&bed, &Clock::wall(), &flags).await;
    let passes = running.passes();
    wait::within(Duration::from_mins(1), "samples are ingested", || async {
        (passes.borrow().1.samples >= 4).then_some(())
    })
    .await;
    let is_told = |vpa: &VerticalPodAutoscaler| {
        recommendation(vpa).map(cores).is_some_and(|[_, target, _]| (2.0..2.8).contains(&target))
    };
    in_process::wait_for_vpa(&bed, &namespace, "web", "has a target for two cores", is_told).await;
    running.stop().await;
}
