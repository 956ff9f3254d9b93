//! The API server goes away and comes back, and forgets what watches were about.

use std::sync::Arc;

use http::Method;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use tokio::sync::watch;

use super::fixture::{
    Fixture, MINUTE, assert_alive, autoscaler, metric, targets, wait_for_metric, wait_until_written,
};
use crate::recommender::in_process::{step, wait_for_vpa};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;
use crate::support::{manifests, wait};

const NAMES: &[&str] = &["front", "worker"];
const VPAS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";

#[tokio::test]
async fn an_api_server_that_is_away_ends_nothing_and_loses_nothing() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::private(NAMES).await else { return };
    let clock = stage.clock();
    let running = stage.start(&clock, &[]).await;
    let address = running.address();
    stage.advance(&running, &clock, 5, MINUTE).await;
    let (said, samples) = (targets(&stage.recommendations().await).len(), stage.samples().await);
    assert_eq!(said, NAMES.len());
    // Something that is decided before it goes, and cannot be written.
    stage.set_constant_usage(3.0, 3000);
    stage.bed.control_plane().kill_api_server().await;
    for _ in 0..10 {
        let summary = step(&running, &clock, MINUTE).await;
        assert_eq!((summary.samples, summary.vpas), (0, 2), "passes go on");
        assert_alive(address).await;
    }
    let errors = ["is_error=\"true\""];
    assert_eq!(metric(address, "vpa_recommender_metric_server_responses", &errors).await, 10.0);
    let feed = ["feed=\"verticalpodautoscalers\""];
    wait_for_metric(address, "plimsoll_feed_errors_total", &feed, |errors| errors >= 1.0).await;
    log.assert_line(&["a watch failed; it is tried again", "verticalpodautoscalers"]);
    log.assert_line(&["no usage could be read; recommendations rest on what is known"]);

    stage.bed.control_plane().restart_api_server().await;
    wait::until("samples are seen again", || async {
        let summary = stage.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    stage.advance(&running, &clock, 10, MINUTE).await;
    // A kill that happens now is heard of: the watch of pods is back.
    stage.oom_kill("front").await;
    wait::until("the kill is counted", || async {
        stage.advance(&running, &clock, 1, MINUTE).await;
        let labels = ["source=\"pod_update\"", "outcome=\"counted\""];
        let counted = metric(address, "plimsoll_oom_kills_total", &labels).await;
        (counted == 1.0).then_some(())
    })
    .await;
    let after = stage.samples().await;
    for name in NAMES {
        assert!(after[*name] >= samples[*name], "{samples:?} {after:?}");
        let risen = |vpa: &VerticalPodAutoscaler| {
            let said = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
            let cpu = said.and_then(|said| said.container_recommendations[0].target.cpu());
            cpu.is_some_and(|cpu| cpu.milli_value() > 3000)
        };
        wait_for_vpa(&stage.bed, &stage.namespace, name, "has risen", risen).await;
    }
    running.stop().await;
    let (remembered, _) = stage.expected_from_checkpoints(clock.now()).await;
    assert_eq!(
        targets(&remembered),
        targets(&stage.recommendations().await),
        "all of it is stored"
    );
}

#[tokio::test]
async fn a_watch_that_expired_lists_anew_and_misses_nothing_of_what_happened_meanwhile() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::private(NAMES).await else { return };
    let (gate, open) = watch::channel(true);
    let open = Arc::new(open);
    // Whoever asks for VPAs or pods waits at the gate.
    let proxy = ApiProxy::start(stage.client(), move |method, path| {
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
    let clock = stage.clock();
    let running = stage.start_with_client(proxy.client.clone(), &clock, &[]).await;
    let address = running.address();
    stage.advance(&running, &clock, 5, MINUTE).await;
    let before = stage.recommendations().await;
    let vpas = ["feed=\"verticalpodautoscalers\""];
    assert_eq!(metric(address, "plimsoll_feed_restarts_total", &vpas).await, 0.0);

    gate.send_replace(false);
    proxy.cut_responses();
    // What happens while nobody watches, and is history when the server starts again.
    let api = Api::<VerticalPodAutoscaler>::namespaced(stage.client(), &stage.namespace);
    api.delete("worker", &DeleteParams::default()).await.expect("it is there");
    stage.deploy("late").await;
    stage.set_usage("late", super::fixture::daily_curve(3));
    manifests::create::<VerticalPodAutoscaler>(
        stage.client(),
        &stage.namespace,
        &autoscaler("late"),
    )
    .await;
    stage.pods("late").await;
    stage.oom_kill("front").await;
    stage.bed.control_plane().kill_api_server().await;
    stage.bed.control_plane().restart_api_server().await;
    gate.send_replace(true);

    wait::until("the new one is recommended for, and the old one forgotten", || async {
        let summary = stage.advance(&running, &clock, 1, MINUTE).await;
        let said = stage.recommendations().await;
        (summary.vpas == 2 && summary.samples == 8 && targets(&said).contains_key("late"))
            .then_some(())
    })
    .await;
    wait_until_written(&running).await;
    let restarts = metric(address, "plimsoll_feed_restarts_total", &vpas).await;
    assert!(restarts >= 1.0, "the watch began anew: {restarts}");
    log.assert_line(&["verticalpodautoscalers", "too old resource version"]);
    let labels = ["source=\"pod_update\"", "outcome=\"counted\""];
    wait_for_metric(address, "plimsoll_oom_kills_total", &labels, |kills| kills == 1.0).await;
    let said = stage.recommendations().await;
    assert_eq!(targets(&said).into_keys().collect::<Vec<_>>(), ["front", "late"]);
    let memory = |said: &super::fixture::Recommendations| {
        said["front"].container_recommendations[0].target.memory().expect("memory").value()
    };
    assert!(memory(&said) > memory(&before), "the kill counts");
    // Nothing asks again and again of who has just answered.
    // The Lease goes by real time, and not by passes.
    let count = || proxy.requests().iter().filter(|(_, path)| !path.contains("/leases")).count();
    let asked = count();
    stage.advance(&running, &clock, 3, MINUTE).await;
    let asked = count() - asked;
    assert!(asked < 60, "{asked} requests in three passes");
    running.stop().await;
    assert!(stage.vpas().await.iter().all(|vpa| vpa.name_any() != "worker"));
}
