//! The clock jumps forward by a day and backward by two hours.

use std::time::Duration;

use super::fixture::{Fixture, MINUTE, assert_alive, metric, targets};
use crate::support::captured_log;
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const DAY: Duration = Duration::from_hours(24);
const BACK: Duration = Duration::from_hours(2);

#[tokio::test]
async fn clock_jumps_stop_no_loop_lose_no_history_and_change_no_target() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    fixture.set_constant_usage(0.5, 700);
    let clock = fixture.clock();
    let flags = ["--checkpoint-interval=0s"];
    let running = fixture.start(&clock, &flags).await;
    let address = running.address();
    fixture.advance(&running, &clock, 8, MINUTE).await;
    let before = fixture.recommendations().await;
    assert_eq!(targets(&before).len(), NAMES.len());
    let saved = |what: &'static str| {
        let running = &running;
        async move {
            wait::until(what, || async { (running.unsaved() == 0).then_some(()) }).await;
        }
    };
    saved("all is saved before the jump").await;
    let samples = fixture.samples().await;

    clock.set(clock.now().later(DAY));
    let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
    assert_eq!((summary.vpas, summary.samples), (2, 8), "the next pass is on time");
    let lag = metric(address, "plimsoll_loop_lag_seconds", &[]).await;
    assert!((lag - DAY.as_secs_f64()).abs() < 1.0, "late by {lag} s");
    log.assert_line(&["pass started late: clock jumped forward"]);
    let summary = fixture.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(summary.samples, 8);
    assert_eq!(
        metric(address, "plimsoll_loop_lag_seconds", &[]).await,
        0.0,
        "missed passes are skipped"
    );
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));
    saved("all is saved after it").await;
    let later = fixture.samples().await;
    assert!(samples.iter().all(|(name, count)| later[name] > *count), "{samples:?} {later:?}");

    let ahead = clock.now();
    clock.set(clock.now().earlier(BACK));
    for _ in 0..3 {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        // CPU samples older than the last one are ignored; memory peaks are accepted for a day.
        assert_eq!(summary.vpas, 2, "passes continue");
        assert!(summary.samples <= 4, "{summary:?}");
        assert_alive(address).await;
    }
    let late = metric(address, "plimsoll_samples_total", &["outcome=\"out_of_order\""]).await;
    assert!(late >= 12.0, "{late} samples out of order");
    log.assert_line(&["clock was set back"]);
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));
    saved("a clock that went back keeps nothing from being saved").await;

    // Once the clock has caught up, samples count again.
    let left = Duration::from_nanos(ahead.nanos_since(clock.now()).unsigned_abs());
    let summary = fixture.advance(&running, &clock, 1, left + MINUTE).await;
    assert_eq!(summary.samples, 8);
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));
    saved("all is saved at the end").await;
    let last = fixture.samples().await;
    assert!(later.iter().all(|(name, count)| last[name] > *count), "{later:?} {last:?}");
    running.stop().await;

    // A start with a clock behind the stored history loses nothing either.
    clock.set(clock.now().earlier(BACK));
    let running = fixture.start(&clock, &flags).await;
    fixture.advance(&running, &clock, 2, MINUTE).await;
    assert_eq!(targets(&fixture.recommendations().await), targets(&before));
    running.stop().await;
    let restarted = fixture.samples().await;
    assert!(last.iter().all(|(name, count)| restarted[name] >= *count), "{last:?} {restarted:?}");
}
