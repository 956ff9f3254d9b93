//! A metrics API that takes the question and never answers.

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
/// A pass waits a quarter of it for usage, and a read is given up after half of it.
const INTERVAL: Duration = Duration::from_secs(20);

#[tokio::test]
async fn passes_go_on_without_an_answer_about_usage_and_kills_still_count() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::new(NAMES).await else { return };
    stage.set_constant_usage(0.5, 200);
    let clock = stage.clock();
    let interval = format!("--recommender-interval={}s", INTERVAL.as_secs());
    let running = stage.start(&clock, &[&interval, "--checkpoint-interval=0s"]).await;
    let address = running.address();
    let summary = stage.advance(&running, &clock, 4, MINUTE).await;
    assert_eq!(summary.samples, 8);
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let before = stage.recommendations().await;
    assert_eq!(targets(&before).len(), NAMES.len());
    let done = running.passes().borrow().0;

    // The pass that finds no answer. While it waits, a container is killed, and whoever asks is answered.
    stage.usage.set_fault(metrics_server::MetricsApi::Resource, Some(Fault::Hang));
    clock.step(MINUTE);
    stage.oom_kill("worker").await;
    assert_alive(address).await;
    let ready = http_get(&format!("http://{address}/readyz")).await.expect("it answers");
    assert_eq!(&*ready, b"ok\n");
    let summary = wait_for_passes(&running, done + 1).await;
    assert_eq!((summary.vpas, summary.samples), (2, 0), "decided without usage");
    // It did not wait until the read was given up, which is another line of the log and counts as an error.
    let late = "usage is late; the pass goes on with what is known, and takes it when it comes";
    log.assert_line(&["WARN", late]);

    // The kill is in the status and in the history, and the read is given up.
    wait::until("the kill is recommended for", || async {
        stage.advance(&running, &clock, 1, MINUTE).await;
        (targets(&stage.recommendations().await)["worker"] != targets(&before)["worker"])
            .then_some(())
    })
    .await;
    assert_eq!(targets(&stage.recommendations().await)["front"], targets(&before)["front"]);
    wait_for_metric(address, "plimsoll_oom_kills_total", &["\"counted\""], |kills| kills == 1.0)
        .await;
    wait::until("the kill is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    wait::until("the read is given up", || async {
        stage.advance(&running, &clock, 1, MINUTE).await;
        (metric(address, ANSWERS, FAILED).await > 0.0).then_some(())
    })
    .await;
    let unreadable = "no usage could be read; recommendations rest on what is known";
    log.assert_line(&["WARN", unreadable, "within 10s"]);
    assert_alive(address).await;

    // Once it answers, samples are taken again.
    stage.usage.set_fault(metrics_server::MetricsApi::Resource, None);
    wait::until("samples are taken again", || async {
        let summary = stage.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    running.stop().await;
}
