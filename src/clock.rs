//! Owns what time it is: the wall's, or a test's that is stepped by hand. The only reader of the wall clock.

use std::{future::Future, sync::Arc, time::Duration};

use plimsoll_storage::Time;
use tokio::sync::watch;

/// The time that decisions are made at. Leases, TLS and time limits of requests stay on the machine's own.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Wall,
    Stepped(Arc<watch::Sender<Time>>),
}

impl Clock {
    /// The wall's time.
    pub fn wall() -> Self {
        Self(Kind::Wall)
    }

    /// Time that stands still until it is stepped.
    pub fn stepped(start: Time) -> Self {
        Self(Kind::Stepped(Arc::new(watch::Sender::new(start))))
    }

    /// The time.
    pub fn now(&self) -> Time {
        match &self.0 {
            Kind::Wall => wall_now(),
            Kind::Stepped(time) => *time.borrow(),
        }
    }

    /// Whether it is the wall's.
    pub fn is_wall(&self) -> bool {
        matches!(self.0, Kind::Wall)
    }

    /// Sets a stepped clock, forwards or backwards. The wall's cannot be set.
    pub fn set(&self, time: Time) {
        if let Kind::Stepped(known) = &self.0 {
            known.send_replace(time);
        }
    }

    /// Moves a stepped clock forwards.
    pub fn step(&self, by: Duration) {
        self.set(self.now().later(by));
    }

    /// Waits until a time. A wall clock that is set while this waits moves the end by no more than the wait
    /// that was left: a jump must neither stall a loop for ever nor make it spin.
    pub fn sleep_until(&self, time: Time) -> impl Future<Output = ()> + Send + 'static {
        let kind = self.0.clone();
        async move {
            match kind {
                Kind::Wall => {
                    let left = u64::try_from(time.nanos_since(wall_now())).unwrap_or(0);
                    tokio::time::sleep(Duration::from_nanos(left)).await;
                }
                Kind::Stepped(known) => {
                    // The sender lives as long as `known`, so this ends only when the time has come.
                    let _ = known.subscribe().wait_for(|now| *now >= time).await;
                }
            }
        }
    }
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
        clock.step(Duration::from_secs(59));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished(), "a second early");
        clock.step(Duration::from_secs(1));
        sleeper.await.expect("wakes");
        assert_eq!(clock.now(), Time::from_secs(160));
    }
}
