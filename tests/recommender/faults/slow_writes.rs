//! An API server that is slow to write checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use kube::api::{Api, DeleteParams};
use plimsoll_core::api::VerticalPodAutoscaler;

use super::fixture::{Fixture, MINUTE, wait_for_metric};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;
use crate::support::wait;

const NAMES: &[&str] = &["front", "gone", "worker"];
const CHECKPOINTS: &str = "/verticalpodautoscalercheckpoints/";
/// Timeout of a save, and duration of a single write.
const SAVE: &str = "--checkpoints-timeout=1s";
const SLOW: Duration = Duration::from_secs(3);

/// W30: garbage collection has its own timeout instead of the rest of the save's.
#[tokio::test]
async fn saves_that_use_their_whole_timeout_do_not_prevent_garbage_collection() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let clock = fixture.clock();
    let running = fixture.start(&clock, &[]).await;
    fixture.advance(&running, &clock, 5, MINUTE).await;
    running.stop().await;
    assert_eq!(fixture.samples().await.len(), NAMES.len());
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    vpas.delete("gone", &DeleteParams::default()).await.expect("exists");

    let is_slow = Arc::new(AtomicBool::new(true));
    let proxy = ApiProxy::start(fixture.client(), {
        let is_slow = Arc::clone(&is_slow);
        move |method, path| {
            let waits = *method != Method::GET && path.contains(CHECKPOINTS);
            if !waits || !is_slow.load(Ordering::Relaxed) {
                return api_proxy::pass_through();
            }
            Box::pin(async {
                tokio::time::sleep(SLOW).await;
                None
            })
        }
    })
    .await;
    let flags = [SAVE, "--checkpoint-interval=0s", "--checkpoints-gc-interval=1m"];
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    wait::within(Duration::from_mins(2), "the orphan is collected", || async {
        fixture.advance(&running, &clock, 1, MINUTE).await;
        (!fixture.samples().await.contains_key("gone")).then_some(())
    })
    .await;
    wait_for_metric(address, "plimsoll_checkpoints_total", &["\"collected\""], |count| {
        count == 1.0
    })
    .await;
    log.assert_line(&["deleted orphaned histories", "removed=1"]);
    // Saves that exceed their timeout are slow and lose nothing.
    is_slow.store(false, Ordering::Relaxed);
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    running.stop().await;
    let samples = fixture.samples().await;
    assert_eq!(samples.keys().collect::<Vec<_>>(), ["front", "worker"]);
    assert!(samples.values().all(|count| *count >= 14), "{samples:?}");
}
