//! Usage comes out of a Prometheus where there is no metrics API.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::stage::{MEBIBYTE, cores, said};
use crate::recommender::start::{self, start};
use crate::storage::objects::defined;
use crate::support::nodes::is_ready;
use crate::support::prometheus::{Prometheus, Release, Target};
use crate::support::usage::{Api, Fault, Use};
use crate::support::{Bed, Usage, objects, wait};

#[tokio::test]
async fn without_a_metrics_api_the_samples_of_a_prometheus_are_taken() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let namespace = bed.namespace("web").await;
    let usage = Usage::shared(&bed, &namespace).await;
    let yaml = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    objects::create::<VerticalPodAutoscaler>(bed.client(), &namespace, yaml).await;
    let web = objects::deployment("web", 2, "100m", "64Mi");
    objects::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", Use { cpu: 2.0, memory: 300 * MEBIBYTE });
    usage.fault(Api::Resource, Some(Fault::Status(503)));
    let targets = Target::of_usage(&usage, "kubelet");
    let Some(server) = Prometheus::start(Release::Three, None, &targets).await else { return };

    let address = format!("--prometheus-address={}", server.url());
    let only = format!("--vpa-object-namespace={namespace}");
    let flags = ["--usage-source=prometheus", "--recommender-interval=2s", &*address, &*only];
    let running = start(&bed, &Clock::wall(), &flags).await;
    let passes = running.passes();
    wait::within(Duration::from_mins(1), "samples are taken", || async {
        (passes.borrow().1.samples >= 4).then_some(())
    })
    .await;
    let is_told = |vpa: &VerticalPodAutoscaler| {
        said(vpa).map(cores).is_some_and(|[_, target, _]| (2.0..2.8).contains(&target))
    };
    start::vpa(&bed, &namespace, "web", "has a target for two cores", is_told).await;
    running.stop().await;
}
