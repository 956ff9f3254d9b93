//! An API server that has no time for us: 429 to everything but usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::fixture::{Fixture, MINUTE, assert_alive, metric, targets, wait_for_metric};
use crate::recommender::in_process::step;
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];

#[tokio::test]
async fn a_server_that_answers_429_is_asked_now_and_then_and_caught_up_with_afterwards() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let busy = Arc::new(AtomicBool::new(false));
    // As Priority and Fairness answers: a word, and a second to wait. A real one lets every request through that finds
    // it idle, however few it may have.
    let proxy = ApiProxy::start(stage.client(), {
        let busy = Arc::clone(&busy);
        move |_, path| {
            let refuses = busy.load(Ordering::Relaxed) && !path.contains("/metrics.k8s.io/");
            if refuses { api_proxy::respond_with(429, Some(1)) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let clock = stage.clock();
    // Each change is to be saved at once, so that histories meet the refusals too.
    let flags = ["--checkpoint-interval=0s"];
    let running = stage.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    stage.advance(&running, &clock, 5, MINUTE).await;
    let before = stage.recommendations().await;
    // A pass does not wait for its save: one that is under way now would end among the refusals.
    let last_save = "plimsoll_checkpoints_last_save_timestamp_seconds";
    let now = clock.now().as_secs() as f64;
    let all_saved = |saved: f64| (saved - now).abs() < 1.0 && running.unsaved() == 0;
    let saved = wait_for_metric(address, last_save, &[], all_saved).await;

    busy.store(true, Ordering::Relaxed);
    let (begun, asked) = (Instant::now(), proxy.request_count());
    proxy.cut_responses();
    stage.set_constant_usage(3.0, 3000);
    for _ in 0..10 {
        stage.usage.at(clock.now().later(MINUTE).into());
        step(&running, &clock, MINUTE).await;
        assert_alive(address).await;
    }
    let refused = ["kind=\"status\"", "outcome=\"429\""];
    wait_for_metric(address, "plimsoll_writes_total", &refused, |refused| refused >= 4.0).await;
    let feed = ["feed=\"verticalpodautoscalers\""];
    wait_for_metric(address, "plimsoll_feed_errors_total", &feed, |errors| errors >= 2.0).await;
    wait::until("a save is refused", || async {
        log.text().contains("history could not be saved").then_some(())
    })
    .await;
    let still = metric(address, last_save, &[]).await;
    assert_eq!(still, saved, "a save of which all was refused is none");
    let (took, asked) = (begun.elapsed(), proxy.request_count() - asked);
    // Eleven watches that wait longer each time, two statuses that the server asked to wait with, a save, ten reads of
    // usage: a loop without pauses would ask thousands of times.
    let most = 60.0 + 15.0 * took.as_secs_f64();
    assert!((asked as f64) < most, "{asked} requests in {took:?}");
    log.assert_line(&["a watch failed; it is tried again"]);
    log.assert_line(&["429", "it is tried again", "front"]);
    assert_eq!(
        targets(&stage.recommendations().await),
        targets(&before),
        "nothing could be written"
    );

    stage.oom_kill("front").await;
    busy.store(false, Ordering::Relaxed);
    let counted = ["source=\"pod_update\"", "outcome=\"counted\""];
    wait::within(Duration::from_mins(2), "it catches up", || async {
        stage.advance(&running, &clock, 1, MINUTE).await;
        let counted = metric(address, "plimsoll_oom_kills_total", &counted).await;
        let unsaved = running.unsaved();
        (counted == 1.0 && unsaved == 0).then_some(())
    })
    .await;
    let (said, _) = stage.expected_from_checkpoints(clock.now()).await;
    stage.wait_for_recommendations("what is stored is what is said", &said).await;
    for (name, target) in targets(&said) {
        assert_ne!(targets(&before)[name], target, "{name} rises");
    }
    running.stop().await;
}
