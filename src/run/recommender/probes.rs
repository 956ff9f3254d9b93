//! Whether the recommender lives, and whether it can do its work.

use std::{sync::atomic::Ordering, time::Duration};

use super::Role;
use crate::{
    run::shown::{unread, watches_turn},
    serve::{Probes, Stalled},
};

/// A loop may wait for usage and take long for a large cluster: neither is a reason to end it.
const WAIT: Duration = Duration::from_secs(45);

impl Probes for Role {
    fn alive(&self) -> Result<(), Stalled> {
        watches_turn(self.feeds.all())?;
        let limit = self.config.interval.saturating_mul(5).saturating_add(WAIT);
        // A clock that a test steps says nothing about how often the loop should turn.
        if self.clock.is_wall() {
            self.pulse.within(limit, "the recommender's loop")
        } else {
            Ok(())
        }
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let mut missing = unread(self.feeds.needed());
        // VPAs that come later are loaded then: they are no reason to be taken out of service.
        if missing.is_empty() && !self.was_ready.load(Ordering::Acquire) {
            let waiting = self.state.lock().fleet.waiting().count();
            if waiting > 0 {
                missing.push(format!("the stored history of {waiting} VPAs is not loaded yet"));
            } else {
                self.was_ready.store(true, Ordering::Release);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
