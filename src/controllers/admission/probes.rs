//! Liveness and readiness of the admission controller.

use std::time::Duration;

use super::AdmissionController;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// Maximum time of the requests of one iteration, in addition to the pause between iterations.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

impl Probes for AdmissionController {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.required())?;
        let limit =
            self.config.certificates.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        self.loop_watchdog.check(limit, "the admission controller's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(self.watches.required());
        if self.self_check.is_draining() {
            missing.push("shutting down".to_owned());
        }
        missing.extend(self.self_check.recent().err());
        // Unreadable mounted files do not affect readiness while the previous certificate is still served.
        let certificates = self.certificates.certificates.lock();
        if certificates.serving.is_none() {
            missing.extend(certificates.last_error.clone());
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
