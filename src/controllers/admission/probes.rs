//! Whether the admission controller lives, and whether pods may be sent to it.

use std::time::Duration;

use super::AdmissionController;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::check_watch_loops,
};

/// Requests of one turn may take that long together, beside the pause between two turns.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

impl Probes for AdmissionController {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.required())?;
        let limit =
            self.config.certificates.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        self.loop_watchdog.check(limit, "the admission controller's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = self.unsynced_watches();
        if self.is_draining() {
            missing.push("it was told to end".to_owned());
        }
        missing.extend(self.recent_self_check().err());
        // Mounted certificates that cannot be read again are no reason to stop showing those that were.
        if self.certificates.serving_pair().is_none() {
            missing.extend(self.certificates.last_error());
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
