//! Whether the watermark controller lives, and whether it can do its work.

use std::time::Duration;

use super::Role;
use crate::{
    run::shown::{unread, watches_turn},
    serve::{Probes, Stalled},
};

/// A worker that waits turns every few seconds; one look may take as long as its slowest source.
const LIMIT: Duration = Duration::from_mins(2);

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        watches_turn(self.feeds.all())?;
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() {
            self.pulse.within(LIMIT, "the watermark controller's loop")
        } else {
            Ok(())
        }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let missing = unread(self.feeds.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
