//! Whether the updater lives, and whether it can do its work.

use super::Role;
use crate::{
    run::shown::{unread, watches_turn},
    serve::{Probes, Stalled},
};

/// Upstream's limit, in intervals.
const INTERVALS: u32 = 5;

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        watches_turn(self.feeds.all())?;
        let limit = self.config.interval.saturating_mul(INTERVALS);
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() { self.pulse.within(limit, "the updater's loop") } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let missing = unread(self.feeds.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
