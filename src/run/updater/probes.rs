//! Whether the updater lives, and whether it can do its work.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Role;
use crate::{
    run::shown::unread,
    serve::{Probes, Stalled},
};

/// Upstream's limit, in intervals.
const INTERVALS: u32 = 5;

/// When the loop turned last.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Option<Instant>>);

impl Pulse {
    /// It turns.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn since(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|last| last.elapsed())
    }
}

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        let limit = self.config.interval.saturating_mul(INTERVALS);
        match self.pulse.since() {
            // A clock that a test steps says nothing about how often the loop should turn.
            Some(last_activity) if last_activity > limit && self.clock.is_wall() => {
                Err(Stalled { what: "the updater's loop".to_owned(), last_activity })
            }
            _ => Ok(()),
        }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let missing = unread(self.feeds.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
