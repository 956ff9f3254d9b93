//! The API server comes back and no longer knows the resource versions of the watches.

use std::sync::Arc;

use http::Method;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use tokio::sync::watch;

use super::fixture::{
    Fixture, MINUTE, autoscaler, metric, targets, wait_for_metric, wait_until_written,
};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;
use crate::support::{manifests, wait};

const NAMES: &[&str] = &["front", "worker"];
const VPAS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";

#[tokio::test]
async fn an_expired_watch_lists_again_and_misses_no_change() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::private(NAMES).await else { return };
    let (gate, open) = watch::channel(true);
    let open = Arc::new(open);
    // Requests for VPAs and pods block until the gate opens.
    let proxy = ApiProxy::start(fixture.client(), move |method, path| {
        if *method != Method::GET || ![VPAS, "/api/v1/pods"].contains(&path) {
            return api_proxy::pass_through();
        }
        let mut open = watch::Receiver::clone(&open);
        Box::pin(async move {
            let _ = open.wait_for(|open| *open).await;
            None
        })
    })
    .await;
    let clock = fixture.clock();
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &[]).await;
    let address = running.address();
    fixture.advance(&running, &clock, 5, MINUTE).await;
    let before = fixture.recommendations().await;
    let vpas = ["feed=\"verticalpodautoscalers\""];
    assert_eq!(metric(address, "plimsoll_feed_restarts_total", &vpas).await, 0.0);

    gate.send_replace(false);
    proxy.cut_responses();
    // Changes while no watch is open; their events are compacted when the server starts again.
    let api = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    api.delete("worker", &DeleteParams::default()).await.expect("exists");
    fixture.deploy("late").await;
    fixture.set_usage("late", super::fixture::daily_curve(3));
    manifests::create::<VerticalPodAutoscaler>(
        fixture.client(),
        &fixture.namespace,
        &autoscaler("late"),
    )
    .await;
    fixture.pods("late").await;
    fixture.oom_kill("front").await;
    fixture.bed.control_plane().kill_api_server().await;
    fixture.bed.control_plane().restart_api_server().await;
    gate.send_replace(true);

    wait::until("the new VPA has a recommendation, and the old one is gone", || async {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        let recommendations = fixture.recommendations().await;
        (summary.vpas == 2
            && summary.samples == 8
            && targets(&recommendations).contains_key("late"))
        .then_some(())
    })
    .await;
    wait_until_written(&running).await;
    let restarts = metric(address, "plimsoll_feed_restarts_total", &vpas).await;
    assert!(restarts >= 1.0, "the watch restarted: {restarts}");
    log.assert_line(&["verticalpodautoscalers", "too old resource version"]);
    let labels = ["source=\"pod_update\"", "outcome=\"counted\""];
    wait_for_metric(address, "plimsoll_oom_kills_total", &labels, |kills| kills == 1.0).await;
    let recommendations = fixture.recommendations().await;
    assert_eq!(targets(&recommendations).into_keys().collect::<Vec<_>>(), ["front", "late"]);
    let memory = |recommendations: &super::fixture::Recommendations| {
        recommendations["front"].container_recommendations[0]
            .target
            .memory()
            .expect("memory")
            .value()
    };
    assert!(memory(&recommendations) > memory(&before), "the kill counts");
    // Requests that were answered are not repeated in a loop. The Lease is renewed in real time, independent of
    // passes.
    let count = || proxy.requests().iter().filter(|(_, path)| !path.contains("/leases")).count();
    let requests = count();
    fixture.advance(&running, &clock, 3, MINUTE).await;
    let requests = count() - requests;
    assert!(requests < 60, "{requests} requests in three passes");
    running.stop().await;
    assert!(fixture.vpas().await.iter().all(|vpa| vpa.name_any() != "worker"));
}
