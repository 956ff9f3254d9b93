//! Liveness and readiness of the recommender.

use std::{sync::atomic::Ordering, time::Duration};

use super::Recommender;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// A pass may wait for usage and take long in a large cluster, which is no reason for a restart.
const LOOP_TIMEOUT: Duration = Duration::from_secs(45);

impl Probes for Recommender {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.statuses.all())?;
        let limit = self.shared.config.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        self.run_loop.watchdog.check_by(&self.shared.clock, limit, "the recommender's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(self.watches.statuses.required());
        // VPAs that are created later are loaded on the fly, and do not affect readiness.
        if missing.is_empty() && !self.was_ready.load(Ordering::Acquire) {
            let waiting = self.shared.state.lock().vpa_registry.waiting_for_history().count();
            if waiting > 0 {
                missing.push(format!("the stored history of {waiting} VPAs is not loaded yet"));
            } else {
                self.was_ready.store(true, Ordering::Release);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
