//! Whether the admission controller lives, and whether pods may be sent to it.

use std::time::Duration;

use super::Role;
use crate::{
    run::shown::watches_turn,
    serve::{Probes, Stalled},
};

/// Requests of one turn may take that long together, beside the pause between two turns.
const WAIT: Duration = Duration::from_mins(2);

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        watches_turn(self.feeds.needed())?;
        let limit = self.config.certificates.interval.saturating_mul(5).saturating_add(WAIT);
        self.pulse.within(limit, "the admission controller's loop")
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let mut missing = self.unread();
        if self.is_draining() {
            missing.push("it was told to end".to_owned());
        }
        missing.extend(self.reached_lately().err());
        // Mounted certificates that cannot be read again are no reason to stop showing those that were.
        if self.certificates.shown().is_none() {
            missing.extend(self.certificates.trouble());
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
