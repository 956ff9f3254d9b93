//! With checkpoints beside the series only what is missing is asked for, and while the server is away they stand in.

use std::time::Duration;

use plimsoll_core::types::Time;

use super::fixture::{Fixture, cores, recommendation};
use crate::prometheus::proxy::Fault;
use crate::recommender::in_process::{wait_for_passes, wait_until_written};
use crate::support::wait;

const FLAGS: &[&str] = &["--checkpoint-fallback", "--checkpoint-interval=0s"];

/// The earliest moment that any of these range queries asks for.
fn earliest(asked: &[String]) -> Option<Time> {
    let start = |form: &String| {
        let (_, rest) = form.split_once("query_range?")?.1.split_once("start=")?;
        let text: String = rest.chars().take_while(char::is_ascii_digit).collect();
        text.parse().ok().map(Time::from_secs)
    };
    asked.iter().filter_map(start).min()
}

#[tokio::test]
async fn after_a_downtime_only_the_missing_hours_are_asked_for_and_the_numbers_are_the_same() {
    let Some(mut stage) = Fixture::new(4 * 24).await else { return };
    let end = stage.clock.now();
    // The first life ends five hours before the end of the series.
    stage.clock = plimsoll::cluster::clock::Clock::fake(end.earlier(Duration::from_hours(5)));
    stage.usage.at(stage.clock.now().into());
    let running = stage.start(FLAGS).await;
    stage.wait_for_history(&running).await;
    stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    wait::until("it is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let asked = stage.proxy.take_requests();
    let all = earliest(&asked).expect("something was asked for");
    assert!(all < end.earlier(Duration::from_hours(4 * 24)), "all of it at first: {all}");
    running.stop().await;
    assert_eq!(stage.checkpoints().await.len(), 1);

    stage.clock = plimsoll::cluster::clock::Clock::fake(end);
    stage.usage.at(end.into());
    let running = stage.start(FLAGS).await;
    wait_for_passes(&running, 1).await;
    stage.wait_for_readiness(&running, true).await;
    let since = earliest(&stage.proxy.take_requests()).expect("something was asked for");
    assert!(since >= end.earlier(Duration::from_mins(5 * 60 + 15)), "not before {since}");
    wait_until_written(&running).await;
    wait::until("it is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let resumed = samples(&stage).await;
    running.stop().await;

    // As many samples as one life would have taken, but for the edges.
    let lived = 4 * 24 * 60;
    assert!((lived - 20..=lived + 20).contains(&resumed), "{resumed} of {lived}");
}

#[tokio::test]
async fn while_the_server_is_away_checkpoints_stand_in_and_the_gap_is_filled_when_it_is_back() {
    let Some(mut stage) = Fixture::new(4 * 24).await else { return };
    let end = stage.clock.now();
    stage.clock = plimsoll::cluster::clock::Clock::fake(end.earlier(Duration::from_hours(5)));
    stage.usage.at(stage.clock.now().into());
    let running = stage.start(FLAGS).await;
    stage.wait_for_history(&running).await;
    stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    running.stop().await;
    let before = samples(&stage).await;

    stage.proxy.fail_all(Fault::Replaced(503, "text/plain", "no healthy upstream"));
    stage.clock = plimsoll::cluster::clock::Clock::fake(end);
    stage.usage.at(end.into());
    let running = stage.start(FLAGS).await;
    stage.wait_for_readiness(&running, true).await;
    wait_for_passes(&running, 1).await;
    stage.step(&running).await;
    wait_until_written(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.97, "days are known: {bounds:?}");
    let without = samples(&stage).await;
    assert!(without < before + 20, "five hours are missing: {before}, then {without}");

    stage.proxy.fail_all(Fault::None);
    let filled = async {
        loop {
            let now = samples(&stage).await;
            if now >= before + 5 * 60 - 20 {
                return now;
            }
            stage.step(&running).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let filled = tokio::time::timeout(wait::PATIENCE, filled).await.expect("filled in time");
    assert!(filled <= before + 5 * 60 + 200, "and nothing counts twice: {before}, then {filled}");
    running.stop().await;
}

/// CPU samples of the only checkpoint.
async fn samples(stage: &Fixture) -> i64 {
    let checkpoints = stage.checkpoints().await;
    let status = checkpoints.first().and_then(|it| it.status.as_ref());
    status.map_or(0, |status| status.total_samples_count)
}
