//! Owns what time it is: the wall's, or a test's that is stepped by hand. The only reader of the wall clock.

use std::{future::Future, sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use tokio::sync::watch;

/// The time that decisions are made at. Leases, TLS and time limits of requests stay on the machine's own.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Wall,
    Stepped(Arc<watch::Sender<Stepped>>),
}

/// A test's time. What it shows can be set; what went by cannot, as on a machine whose clock is corrected.
#[derive(Clone, Copy, Debug)]
struct Stepped {
    shows: Time,
    went_by: Duration,
}

impl Clock {
    /// The wall's time.
    pub fn wall() -> Self {
        Self(Kind::Wall)
    }

    /// Time that stands still until it is stepped.
    pub fn stepped(start: Time) -> Self {
        let stepped = Stepped { shows: start, went_by: Duration::ZERO };
        Self(Kind::Stepped(Arc::new(watch::Sender::new(stepped))))
    }

    /// The time.
    pub fn now(&self) -> Time {
        match &self.0 {
            Kind::Wall => wall_now(),
            Kind::Stepped(stepped) => stepped.borrow().shows,
        }
    }

    /// Whether it is the wall's.
    pub fn is_wall(&self) -> bool {
        matches!(self.0, Kind::Wall)
    }

    /// Corrects a stepped clock, forwards or backwards: no time goes by, so nobody who sleeps wakes. The wall's
    /// cannot be corrected.
    pub fn set(&self, time: Time) {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.send_modify(|stepped| stepped.shows = time);
        }
    }

    /// Lets time go by on a stepped clock.
    pub fn step(&self, by: Duration) {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.send_modify(|stepped| {
                stepped.shows = stepped.shows.later(by);
                stepped.went_by += by;
            });
        }
    }

    /// Waits for as long as it is until that time now. A clock that is corrected meanwhile changes nothing about that: a
    /// jump must neither stall a loop for ever nor make it spin.
    pub fn sleep_until(&self, time: Time) -> impl Future<Output = ()> + Send + 'static {
        let kind = self.0.clone();
        async move {
            match kind {
                Kind::Wall => tokio::time::sleep(left(wall_now(), time)).await,
                Kind::Stepped(stepped) => {
                    let mut told = stepped.subscribe();
                    let Stepped { shows, went_by } = *told.borrow_and_update();
                    let end = went_by + left(shows, time);
                    // The sender lives as long as `stepped`, so this ends only when the time has come.
                    let _ = told.wait_for(|stepped| stepped.went_by >= end).await;
                }
            }
        }
    }
}

fn left(now: Time, until: Time) -> Duration {
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
        let clock = Clock::stepped(Time::from_secs(100));
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
            let clock = Clock::stepped(Time::from_secs(10_000));
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
