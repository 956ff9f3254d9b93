//! Stored histories that cannot be read for a while, and are not waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;

use super::fixture::{Fixture, MINUTE, targets, wait_for_metric};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;

const NAMES: &[&str] = &["front", "worker"];
const STATE: &str = "plimsoll_history_state";

#[tokio::test]
async fn a_history_that_cannot_be_read_is_done_without_and_taken_in_when_it_comes() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let clock = stage.clock();
    let running = stage.start(&clock, &[]).await;
    stage.advance(&running, &clock, 10, MINUTE).await;
    running.stop().await;
    let stored = stage.samples().await;

    let refusing = Arc::new(AtomicBool::new(true));
    let proxy = ApiProxy::start(stage.client(), {
        let refusing = Arc::clone(&refusing);
        move |method, path| {
            let lists =
                *method == Method::GET && path.ends_with("/verticalpodautoscalercheckpoints");
            let refuses = lists && refusing.load(Ordering::Relaxed);
            if refuses { api_proxy::respond_with(403, None) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let flags = ["--history-optional", "--checkpoint-interval=0s"];
    let running = stage.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    wait_for_metric(address, STATE, &["state=\"failed\""], |value| value == 1.0).await;
    wait_for_metric(address, STATE, &["state=\"loaded\""], |value| value == 0.0).await;
    log.assert_line(&["stored history cannot be read", "vpas=2"]);
    let summary = stage.advance(&running, &clock, 5, MINUTE).await;
    assert_eq!(summary.vpas, NAMES.len(), "they are recommended for without it");
    assert_eq!(stage.samples().await, stored, "nothing is written over what is not known");

    refusing.store(false, Ordering::Relaxed);
    wait_for_metric(address, STATE, &["state=\"loaded\""], |value| value == 1.0).await;
    stage.advance(&running, &clock, 2, MINUTE).await;
    running.stop().await;
    let after = stage.samples().await;
    for name in NAMES {
        let (before, after) = (stored[*name], after[*name]);
        assert!(after >= before + 2 * 6, "what was and what came since: {before}, {after}");
    }
    let (remembered, _) = stage.expected_from_checkpoints(clock.now()).await;
    assert_eq!(targets(&remembered), targets(&stage.recommendations().await));
}
