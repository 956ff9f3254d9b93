//! Owns what time it is: the wall's, or a test's that is stepped by hand. The only reader of the wall clock.

use std::{future::Future, sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use tokio::sync::watch;

/// The time that decisions are made at. Leases, TLS and time limits of requests stay on the machine's own.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    Wall,
    Fake(Arc<watch::Sender<FakeTime>>),
}

/// A test's time. What it shows can be set; what went by cannot, as on a machine whose clock is corrected.
#[derive(Clone, Copy, Debug)]
struct FakeTime {
    now: Time,
    elapsed: Duration,
}

impl Clock {
    /// The wall's time.
    pub fn wall() -> Self {
        Self(ClockSource::Wall)
    }

    /// Time that stands still until it is stepped.
    pub fn fake(start: Time) -> Self {
        let stepped = FakeTime { now: start, elapsed: Duration::ZERO };
        Self(ClockSource::Fake(Arc::new(watch::Sender::new(stepped))))
    }

    /// The time.
    pub fn now(&self) -> Time {
        match &self.0 {
            ClockSource::Wall => wall_now(),
            ClockSource::Fake(stepped) => stepped.borrow().now,
        }
    }

    /// Whether it is the wall's.
    pub fn is_wall(&self) -> bool {
        matches!(self.0, ClockSource::Wall)
    }

    /// Corrects a stepped clock, forwards or backwards: no time goes by, so nobody who sleeps wakes. The wall's
    /// cannot be corrected.
    pub fn set(&self, time: Time) {
        if let ClockSource::Fake(stepped) = &self.0 {
            stepped.send_modify(|stepped| stepped.now = time);
        }
    }

    /// Lets time go by on a stepped clock.
    pub fn step(&self, by: Duration) {
        if let ClockSource::Fake(stepped) = &self.0 {
            stepped.send_modify(|stepped| {
                stepped.now = stepped.now.later(by);
                stepped.elapsed += by;
            });
        }
    }

    /// Waits for as long as it is until that time now. A clock that is corrected meanwhile changes nothing about that: a
    /// jump must neither stall a loop for ever nor make it spin.
    pub fn sleep_until(&self, time: Time) -> impl Future<Output = ()> + Send + 'static {
        let kind = self.0.clone();
        async move {
            match kind {
                ClockSource::Wall => tokio::time::sleep(remaining(wall_now(), time)).await,
                ClockSource::Fake(stepped) => {
                    let mut told = stepped.subscribe();
                    let FakeTime { now: shows, elapsed: went_by } = *told.borrow_and_update();
                    let end = went_by + remaining(shows, time);
                    // The sender lives as long as `stepped`, so this ends only when the time has come.
                    let _ = told.wait_for(|stepped| stepped.elapsed >= end).await;
                }
            }
        }
    }
}

fn remaining(now: Time, until: Time) -> Duration {
    Duration::from_nanos(u64::try_from(until.nanos_since(now)).unwrap_or(0))
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_now() -> Time {
    jiff::Timestamp::now().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stepped_clock_wakes_who_waits_when_the_time_has_come() {
        let clock = Clock::fake(Time::from_secs(100));
        let sleeper = tokio::spawn(clock.sleep_until(Time::from_secs(160)));
        tokio::task::yield_now().await;
        clock.step(Duration::from_secs(59));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished(), "a second early");
        clock.step(Duration::from_secs(1));
        sleeper.await.expect("wakes");
        assert_eq!(clock.now(), Time::from_secs(160));
    }

    #[tokio::test]
    async fn a_clock_that_is_corrected_wakes_nobody_early_and_keeps_nobody_waiting() {
        for corrected in [0, 100_000] {
            let clock = Clock::fake(Time::from_secs(10_000));
            let sleeper = tokio::spawn(clock.sleep_until(Time::from_secs(10_060)));
            tokio::task::yield_now().await;
            clock.set(Time::from_secs(corrected));
            tokio::task::yield_now().await;
            assert!(!sleeper.is_finished(), "woken by a correction to {corrected}");
            clock.step(Duration::from_mins(1));
            sleeper.await.expect("wakes after a minute");
            assert_eq!(clock.now(), Time::from_secs(corrected + 60));
        }
    }
}
