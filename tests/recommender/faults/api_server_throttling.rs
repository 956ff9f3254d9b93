//! A throttling API server: 429 to every request but those for usage.

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
async fn a_throttling_api_server_gets_few_requests_and_everything_is_written_later() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let busy = Arc::new(AtomicBool::new(false));
    // The response of API Priority and Fairness: a message and `Retry-After: 1`. A real API server serves every
    // request while it is idle, however small its concurrency limit is, so a proxy throttles here.
    let proxy = ApiProxy::start(fixture.client(), {
        let busy = Arc::clone(&busy);
        move |_, path| {
            let refuses = busy.load(Ordering::Relaxed) && !path.contains("/metrics.k8s.io/");
            if refuses { api_proxy::respond_with(429, Some(1)) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let clock = fixture.clock();
    // Save each change at once, so that checkpoint writes are throttled too.
    let flags = ["--checkpoint-interval=0s"];
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    fixture.advance(&running, &clock, 5, MINUTE).await;
    let before = fixture.recommendations().await;
    // A pass does not wait for its save: a save that is running now would be throttled at its end.
    let last_save = "plimsoll_checkpoints_last_save_timestamp_seconds";
    let now = clock.now().as_secs() as f64;
    let all_saved = |saved: f64| (saved - now).abs() < 1.0 && running.unsaved() == 0;
    let saved = wait_for_metric(address, last_save, &[], all_saved).await;

    busy.store(true, Ordering::Relaxed);
    let (started, requests) = (Instant::now(), proxy.request_count());
    proxy.cut_responses();
    fixture.set_constant_usage(3.0, 3000);
    for _ in 0..10 {
        fixture.usage.at(clock.now().later(MINUTE).into());
        step(&running, &clock, MINUTE).await;
        assert_alive(address).await;
    }
    let refused = ["kind=\"status\"", "outcome=\"429\""];
    wait_for_metric(address, "plimsoll_writes_total", &refused, |refused| refused >= 4.0).await;
    let feed = ["feed=\"verticalpodautoscalers\""];
    wait_for_metric(address, "plimsoll_feed_errors_total", &feed, |errors| errors >= 2.0).await;
    wait::until("a save is rejected", || async {
        log.text().contains("failed to save history").then_some(())
    })
    .await;
    let still = metric(address, last_save, &[]).await;
    assert_eq!(still, saved, "a save without a write is not counted");
    let (took, requests) = (started.elapsed(), proxy.request_count() - requests);
    // Eleven watches with backoff, two statuses with `Retry-After`, a save, ten reads of usage. A loop without backoff
    // would send thousands of requests.
    let most = 60.0 + 15.0 * took.as_secs_f64();
    assert!((requests as f64) < most, "{requests} requests in {took:?}");
    log.assert_line(&["watch failed; retrying"]);
    log.assert_line(&["429", "retrying", "front"]);
    assert_eq!(
        targets(&fixture.recommendations().await),
        targets(&before),
        "nothing could be written"
    );

    fixture.oom_kill("front").await;
    busy.store(false, Ordering::Relaxed);
    let counted = ["source=\"pod_update\"", "outcome=\"counted\""];
    wait::within(Duration::from_mins(2), "the backlog is written", || async {
        fixture.advance(&running, &clock, 1, MINUTE).await;
        let counted = metric(address, "plimsoll_oom_kills_total", &counted).await;
        let unsaved = running.unsaved();
        (counted == 1.0 && unsaved == 0).then_some(())
    })
    .await;
    let (expected, _) = fixture.expected_from_checkpoints(clock.now()).await;
    fixture.wait_for_recommendations("the checkpoints give the recommendations", &expected).await;
    for (name, target) in targets(&expected) {
        assert_ne!(targets(&before)[name], target, "{name} rises");
    }
    running.stop().await;
}
