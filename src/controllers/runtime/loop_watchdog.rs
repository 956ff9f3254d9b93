//! Watchdog of a controller's loop, for its liveness probe.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cluster::{clock::Clock, server::Stalled};

/// The last iteration of a loop. A loop that has not started yet is not late.
#[derive(Debug, Default)]
pub(crate) struct LoopWatchdog(Mutex<Option<Instant>>);

impl LoopWatchdog {
    pub fn tick(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// As [`Self::check`], for a loop that waits by this clock: with a simulated one, wall time does not bound how often the loop
    /// has to iterate.
    pub fn check_by(&self, clock: &Clock, limit: Duration, what: &str) -> Result<(), Stalled> {
        if clock.is_wall() { self.check(limit, what) } else { Ok(()) }
    }

    /// Fails if the last iteration is older than `limit`. `what` names the loop in the error.
    pub fn check(&self, limit: Duration, what: &str) -> Result<(), Stalled> {
        let last_tick = *self.0.lock();
        match last_tick.map(|last_tick| last_tick.elapsed()) {
            Some(last_activity) if last_activity > limit => {
                Err(Stalled { what: what.to_owned(), last_activity })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_can_be_late_only_after_it_started() {
        let watchdog = LoopWatchdog::default();
        assert!(watchdog.check(Duration::ZERO, "a loop").is_ok(), "it has not started yet");
        watchdog.tick();
        assert!(watchdog.check(Duration::from_mins(1), "a loop").is_ok());
        std::thread::sleep(Duration::from_millis(2));
        let stalled = watchdog.check(Duration::from_millis(1), "a loop").expect_err("it is late");
        assert_eq!(stalled.what, "a loop");
        assert!(stalled.last_activity >= Duration::from_millis(2));
        watchdog.tick();
        assert!(watchdog.check(Duration::from_mins(1), "a loop").is_ok(), "it runs again");
    }
}
