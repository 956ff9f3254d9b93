//! With checkpoints in addition to Prometheus, only the missing range is queried, and checkpoints are the fallback
//! while the server is unavailable.

use std::time::Duration;

use plimsoll_core::types::Time;

use super::fixture::{Fixture, cores, recommendation};
use crate::prometheus::proxy::Fault;
use crate::recommender::in_process::{wait_for_passes, wait_until_written};
use crate::support::wait;

const FLAGS: &[&str] = &["--checkpoint-fallback", "--checkpoint-interval=0s"];

/// The start of the earliest of these range queries.
fn earliest(requests: &[String]) -> Option<Time> {
    let start = |form: &String| {
        let (_, rest) = form.split_once("query_range?")?.1.split_once("start=")?;
        let text: String = rest.chars().take_while(char::is_ascii_digit).collect();
        text.parse().ok().map(Time::from_secs)
    };
    requests.iter().filter_map(start).min()
}

#[tokio::test]
async fn after_a_downtime_only_missing_hours_are_read_and_the_numbers_are_the_same() {
    let Some(mut fixture) = Fixture::new(4 * 24).await else { return };
    let end = fixture.clock.now();
    // The first run ends five hours before the end of the series.
    fixture.clock = plimsoll::cluster::clock::Clock::fake(end.earlier(Duration::from_hours(5)));
    fixture.usage.at(fixture.clock.now().into());
    let running = fixture.start(FLAGS).await;
    fixture.wait_for_history(&running).await;
    fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    wait::until("checkpoints are saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let requests = fixture.proxy.take_requests();
    let all = earliest(&requests).expect("a request was sent");
    assert!(all < end.earlier(Duration::from_hours(4 * 24)), "the first load is complete: {all}");
    running.stop().await;
    assert_eq!(fixture.checkpoints().await.len(), 1);

    fixture.clock = plimsoll::cluster::clock::Clock::fake(end);
    fixture.usage.at(end.into());
    let running = fixture.start(FLAGS).await;
    wait_for_passes(&running, 1).await;
    fixture.wait_for_readiness(&running, true).await;
    let since = earliest(&fixture.proxy.take_requests()).expect("a request was sent");
    assert!(since >= end.earlier(Duration::from_mins(5 * 60 + 15)), "not before {since}");
    wait_until_written(&running).await;
    wait::until("checkpoints are saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let resumed = samples(&fixture).await;
    running.stop().await;

    // As many samples as one uninterrupted run would have, except at the edges.
    let minutes = 4 * 24 * 60;
    assert!((minutes - 20..=minutes + 20).contains(&resumed), "{resumed} of {minutes}");
}

#[tokio::test]
async fn checkpoints_replace_an_unavailable_server_and_the_gap_is_filled_later() {
    let Some(mut fixture) = Fixture::new(4 * 24).await else { return };
    let end = fixture.clock.now();
    fixture.clock = plimsoll::cluster::clock::Clock::fake(end.earlier(Duration::from_hours(5)));
    fixture.usage.at(fixture.clock.now().into());
    let running = fixture.start(FLAGS).await;
    fixture.wait_for_history(&running).await;
    fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    running.stop().await;
    let before = samples(&fixture).await;

    fixture.proxy.fail_all(Fault::Replaced(503, "text/plain", "no healthy upstream"));
    fixture.clock = plimsoll::cluster::clock::Clock::fake(end);
    fixture.usage.at(end.into());
    let running = fixture.start(FLAGS).await;
    fixture.wait_for_readiness(&running, true).await;
    wait_for_passes(&running, 1).await;
    fixture.step(&running).await;
    wait_until_written(&running).await;
    let vpa = fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("is present"));
    assert!(bounds[0] > bounds[1] * 0.97, "confidence of several days: {bounds:?}");
    let without = samples(&fixture).await;
    assert!(without < before + 20, "five hours are missing: {before}, then {without}");

    fixture.proxy.fail_all(Fault::None);
    let filled = async {
        loop {
            let now = samples(&fixture).await;
            if now >= before + 5 * 60 - 20 {
                return now;
            }
            fixture.step(&running).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let filled = tokio::time::timeout(wait::PATIENCE, filled).await.expect("filled in time");
    assert!(filled <= before + 5 * 60 + 200, "nothing counts twice: {before}, then {filled}");
    running.stop().await;
}

/// CPU samples of the only checkpoint.
async fn samples(fixture: &Fixture) -> i64 {
    let checkpoints = fixture.checkpoints().await;
    let status = checkpoints.first().and_then(|it| it.status.as_ref());
    status.map_or(0, |status| status.total_samples_count)
}
