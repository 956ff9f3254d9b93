//! Whether the watermark controller lives, and whether it can do its work.

use std::time::Duration;

use super::WatermarkController;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// A worker that waits turns every few seconds; one look may take as long as its slowest source.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

impl Probes for WatermarkController {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() {
            self.loop_watchdog.check(LOOP_TIMEOUT, "the watermark controller's loop")
        } else {
            Ok(())
        }
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing = unsynced_watches(self.watches.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
