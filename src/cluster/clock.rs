//! The clock that decisions are made by: the wall clock, or a fake one that tests step. Only this file reads the wall clock.

use std::{future::Future, sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use tokio::sync::watch;

/// The clock that decisions are made by. Leases, TLS and request timeouts use the machine's own clocks.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    Wall,
    Fake(Arc<watch::Sender<FakeTime>>),
}

/// The state of a fake clock. `now` can be set; `elapsed` only grows, as on a machine whose clock is corrected.
#[derive(Clone, Copy, Debug)]
struct FakeTime {
    now: Time,
    elapsed: Duration,
}

impl Clock {
    pub fn wall() -> Self {
        Self(ClockSource::Wall)
    }

    /// A clock that stands still until it is stepped.
    pub fn fake(start: Time) -> Self {
        let initial = FakeTime { now: start, elapsed: Duration::ZERO };
        Self(ClockSource::Fake(Arc::new(watch::Sender::new(initial))))
    }

    pub fn now(&self) -> Time {
        match &self.0 {
            ClockSource::Wall => wall_now(),
            ClockSource::Fake(fake) => fake.borrow().now,
        }
    }

    pub fn is_wall(&self) -> bool {
        matches!(self.0, ClockSource::Wall)
    }

    /// Sets a fake clock, forwards or backwards. No time elapses, so no sleeper wakes. Does nothing on the wall clock.
    pub fn set(&self, time: Time) {
        if let ClockSource::Fake(fake) = &self.0 {
            fake.send_modify(|state| state.now = time);
        }
    }

    /// Advances a fake clock and its elapsed time. Does nothing on the wall clock.
    pub fn step(&self, by: Duration) {
        if let ClockSource::Fake(fake) = &self.0 {
            fake.send_modify(|state| {
                state.now = state.now.later(by);
                state.elapsed += by;
            });
        }
    }

    /// Sleeps for the time that is left until `time` by the clock now. Setting the clock meanwhile does not change that:
    /// a jump must neither stall a loop forever nor make it spin.
    pub fn sleep_until(&self, time: Time) -> impl Future<Output = ()> + Send + 'static {
        let kind = self.0.clone();
        async move {
            match kind {
                ClockSource::Wall => tokio::time::sleep(remaining(wall_now(), time)).await,
                ClockSource::Fake(fake) => {
                    let mut updates = fake.subscribe();
                    let FakeTime { now, elapsed } = *updates.borrow_and_update();
                    let end = elapsed + remaining(now, time);
                    // The sender lives as long as `fake`, so this returns only once the time has come.
                    let _ = updates.wait_for(|state| state.elapsed >= end).await;
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
    async fn stepping_a_fake_clock_wakes_sleepers_whose_time_has_come() {
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
    async fn a_clock_correction_neither_wakes_sleepers_early_nor_delays_them() {
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
