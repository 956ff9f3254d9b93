//! Whether the recommender lives, and whether it can do its work.

use std::{sync::atomic::Ordering, time::Duration};

use super::Recommender;
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// A loop may wait for usage and take long for a large cluster: neither is a reason to end it.
const LOOP_TIMEOUT: Duration = Duration::from_secs(45);

impl Probes for Recommender {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        let limit = self.config.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() {
            self.loop_watchdog.check(limit, "the recommender's loop")
        } else {
            Ok(())
        }
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(self.watches.required());
        // VPAs that come later are loaded then: they are no reason to be taken out of service.
        if missing.is_empty() && !self.was_ready.load(Ordering::Acquire) {
            let waiting = self.state.lock().vpa_registry.waiting_for_history().count();
            if waiting > 0 {
                missing.push(format!("the stored history of {waiting} VPAs is not loaded yet"));
            } else {
                self.was_ready.store(true, Ordering::Release);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
