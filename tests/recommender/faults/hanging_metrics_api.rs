//! A metrics API that accepts the request and never responds.

use std::time::Duration;

use super::fixture::{Fixture, MINUTE, assert_alive, metric, targets, wait_for_metric};
use crate::recommender::in_process::wait_for_passes;
use crate::support::captured_log;
use crate::support::http_get::http_get;
use crate::support::metrics_server::{self, Fault};
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const ANSWERS: &str = "vpa_recommender_metric_server_responses";
const FAILED: &[&str] = &["is_error=\"true\""];
/// A pass waits a quarter of the interval for usage, and a fetch times out after half of it.
const INTERVAL: Duration = Duration::from_secs(20);

#[tokio::test]
async fn passes_continue_while_the_metrics_api_hangs_and_oom_kills_count() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    fixture.set_constant_usage(0.5, 200);
    let clock = fixture.clock();
    let interval = format!("--recommender-interval={}s", INTERVAL.as_secs());
    let running = fixture.start(&clock, &[&interval, "--checkpoint-interval=0s"]).await;
    let address = running.address();
    let summary = fixture.advance(&running, &clock, 4, MINUTE).await;
    assert_eq!(summary.samples, 8);
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let before = fixture.recommendations().await;
    assert_eq!(targets(&before).len(), NAMES.len());
    let done = running.passes().borrow().0;

    // The pass that gets no usage. A container is OOM-killed meanwhile, and the HTTP endpoints still respond.
    fixture.usage.set_fault(metrics_server::MetricsApi::Resource, Some(Fault::Hang));
    clock.step(MINUTE);
    fixture.oom_kill("worker").await;
    assert_alive(address).await;
    let ready = http_get(&format!("http://{address}/readyz")).await.expect("responds");
    assert_eq!(&*ready, b"ok\n");
    let summary = wait_for_passes(&running, done + 1).await;
    assert_eq!((summary.vpas, summary.samples), (2, 0), "decided without usage");
    // The pass did not wait for the timeout, which has its own log line and counts as an error.
    let late = "usage fetch is still running; continuing this pass without it";
    log.assert_line(&["WARN", late]);

    // The kill is in the status and in the checkpoint, and the fetch has timed out.
    wait::until("the kill raises the recommendation", || async {
        fixture.advance(&running, &clock, 1, MINUTE).await;
        (targets(&fixture.recommendations().await)["worker"] != targets(&before)["worker"])
            .then_some(())
    })
    .await;
    assert_eq!(targets(&fixture.recommendations().await)["front"], targets(&before)["front"]);
    wait_for_metric(address, "plimsoll_oom_kills_total", &["\"counted\""], |kills| kills == 1.0)
        .await;
    wait::until("the kill is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    wait::until("the fetch times out", || async {
        fixture.advance(&running, &clock, 1, MINUTE).await;
        (metric(address, ANSWERS, FAILED).await > 0.0).then_some(())
    })
    .await;
    let unreadable = "failed to fetch usage; recommendations are based on earlier samples";
    log.assert_line(&["WARN", unreadable, "within 10s"]);
    assert_alive(address).await;

    // Once the API responds, samples are ingested again.
    fixture.usage.set_fault(metrics_server::MetricsApi::Resource, None);
    wait::until("samples are ingested again", || async {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    running.stop().await;
}
