//! Checkpoints that cannot be read for a while do not block the recommender.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;

use super::fixture::{Fixture, MINUTE, targets, wait_for_metric};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;

const NAMES: &[&str] = &["front", "worker"];
const STATE: &str = "plimsoll_history_state";

#[tokio::test]
async fn recommendations_continue_without_an_unreadable_history_and_load_it_later() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let clock = fixture.clock();
    let running = fixture.start(&clock, &[]).await;
    fixture.advance(&running, &clock, 10, MINUTE).await;
    running.stop().await;
    let stored = fixture.samples().await;

    let refusing = Arc::new(AtomicBool::new(true));
    let proxy = ApiProxy::start(fixture.client(), {
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
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    wait_for_metric(address, STATE, &["state=\"failed\""], |value| value == 1.0).await;
    wait_for_metric(address, STATE, &["state=\"loaded\""], |value| value == 0.0).await;
    log.assert_line(&["failed to load stored history", "vpas=2"]);
    let summary = fixture.advance(&running, &clock, 5, MINUTE).await;
    assert_eq!(summary.vpas, NAMES.len(), "recommended without the checkpoint");
    assert_eq!(fixture.samples().await, stored, "an unread checkpoint is not overwritten");

    refusing.store(false, Ordering::Relaxed);
    wait_for_metric(address, STATE, &["state=\"loaded\""], |value| value == 1.0).await;
    fixture.advance(&running, &clock, 2, MINUTE).await;
    running.stop().await;
    let after = fixture.samples().await;
    for name in NAMES {
        let (before, after) = (stored[*name], after[*name]);
        assert!(after >= before + 2 * 6, "old and new samples: {before}, {after}");
    }
    let (remembered, _) = fixture.expected_from_checkpoints(clock.now()).await;
    assert_eq!(targets(&remembered), targets(&fixture.recommendations().await));
}
