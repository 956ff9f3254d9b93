//! The clock of a testbed's parts: real time, or a time that the test controls.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// A clock that a test shares with the parts of its testbed.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Option<Timestamp>>>);

// === impl Clock ===

impl Clock {
    /// Real time.
    pub fn wall() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// A clock that only moves with `step`.
    pub fn frozen_at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Some(start))))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let frozen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frozen.unwrap_or_else(wall_now)
    }

    /// Moves a frozen clock.
    pub fn step(&self, by: SignedDuration) {
        let mut frozen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = frozen.expect("only a frozen clock can be stepped");
        *frozen = Some(now.checked_add(by).expect("a time in range"));
    }
}

/// The real time, for comparisons with real servers.
#[expect(clippy::disallowed_methods, reason = "the only use of real time in the testbed")]
pub fn wall_now() -> Timestamp {
    Timestamp::now()
}
