//! Owns the time that the parts of a bed stamp on what they write: the wall's, or a test's own.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// A clock that a test and the parts of its bed share.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Option<Timestamp>>>);

// === impl Clock ===

impl Clock {
    /// The wall's time.
    pub fn wall() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// Time that stands still until it is stepped.
    pub fn frozen_at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Some(start))))
    }

    /// Its time.
    pub fn now(&self) -> Timestamp {
        let standing = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        standing.unwrap_or_else(wall_now)
    }

    /// Steps a standing clock.
    pub fn step(&self, by: SignedDuration) {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = standing.expect("only a standing clock can be stepped");
        *standing = Some(now.checked_add(by).expect("tests stay within time"));
    }
}

/// The wall's time, for what a test compares with real servers.
#[expect(clippy::disallowed_methods, reason = "the testbed's one look at the wall")]
pub fn wall_now() -> Timestamp {
    Timestamp::now()
}
