//! Liveness and readiness of the updater.

use super::Updater;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// Upstream's limit: intervals without a pass after which the updater is not live.
const MAX_MISSED_INTERVALS: u32 = 5;

impl Probes for Updater {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        let limit = self.config.interval.saturating_mul(MAX_MISSED_INTERVALS);
        // With a simulated clock, wall time does not bound how often the loop has to iterate.
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
