//! When the loop of a role turned last: whether it lives hangs on that.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::cluster::server::Stalled;

/// When a loop turned last. One that did not begin yet is not late.
#[derive(Debug, Default)]
pub(crate) struct LoopWatchdog(Mutex<Option<Instant>>);

impl LoopWatchdog {
    /// It turns.
    pub fn tick(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether it turned within this time. `what` is the loop, for whoever reads that it does not turn.
    pub fn check(&self, limit: Duration, what: &str) -> Result<(), Stalled> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last.map(|last| last.elapsed()) {
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
    fn a_loop_is_late_only_after_it_began_to_turn() {
        let pulse = LoopWatchdog::default();
        assert!(pulse.check(Duration::ZERO, "a loop").is_ok(), "it did not begin yet");
        pulse.tick();
        assert!(pulse.check(Duration::from_mins(1), "a loop").is_ok());
        std::thread::sleep(Duration::from_millis(2));
        let stalled = pulse.check(Duration::from_millis(1), "a loop").expect_err("it is late");
        assert_eq!(stalled.what, "a loop");
        assert!(stalled.last_activity >= Duration::from_millis(2));
        pulse.tick();
        assert!(pulse.check(Duration::from_mins(1), "a loop").is_ok(), "it turns again");
    }
}
