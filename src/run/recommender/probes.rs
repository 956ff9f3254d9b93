//! Whether the recommender lives, and whether it can do its work.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::Role;
use crate::{
    run::shown::unread,
    serve::{Probes, Stalled},
};

/// A loop may wait for usage and take long for a large cluster: neither is a reason to end it.
const WAIT: Duration = Duration::from_secs(45);

/// When the loop turned last.
#[derive(Debug, Default)]
pub struct Pulse {
    last: Mutex<Option<Instant>>,
    was_ready: AtomicBool,
}

impl Pulse {
    /// It turns.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn since(&self) -> Option<Duration> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).map(|last| last.elapsed())
    }
}

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        let limit = self.config.interval.saturating_mul(5).saturating_add(WAIT);
        match self.pulse.since() {
            // A clock that a test steps says nothing about how often the loop should turn.
            Some(last_activity) if last_activity > limit && self.clock.is_wall() => {
                Err(Stalled { what: "the recommender's loop".to_owned(), last_activity })
            }
            _ => Ok(()),
        }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let mut missing = unread(self.feeds.needed());
        // VPAs that come later are loaded then: they are no reason to be taken out of service.
        if missing.is_empty() && !self.pulse.was_ready.load(Ordering::Acquire) {
            let waiting = self.state.lock().fleet.waiting().count();
            if waiting > 0 {
                missing.push(format!("the stored history of {waiting} VPAs is not loaded yet"));
            } else {
                self.pulse.was_ready.store(true, Ordering::Release);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
