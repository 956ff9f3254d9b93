//! Whether the updater lives, and whether it can do its work.

use super::Updater;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// Upstream's limit, in intervals.
const MAX_MISSED_INTERVALS: u32 = 5;

impl Probes for Updater {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        let limit = self.config.interval.saturating_mul(MAX_MISSED_INTERVALS);
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() {
            self.loop_watchdog.check(limit, "the updater's loop")
        } else {
            Ok(())
        }
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing = unsynced_watches(self.watches.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
