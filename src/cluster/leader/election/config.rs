//! The settings of an election: its Lease and its durations.

use std::time::Duration;

use crate::cluster::{
    leader::Fence,
    write::{Permit, RateLimiter},
};

/// Leader election settings, with the names and meanings of upstream's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    pub enabled: bool,
    /// How long other processes wait before they acquire a Lease that is not renewed.
    pub lease_duration: Duration,
    /// How long the holder relies on a renewal.
    pub renew_deadline: Duration,
    /// Time between two renewals.
    pub retry_period: Duration,
    pub name: String,
    pub namespace: String,
}

impl ElectionConfig {
    /// The permit to write while this process has the Lease. A dry run holds none, and writes nothing but events.
    pub(crate) fn permit(&self, limiter: RateLimiter, is_dry_run: bool) -> Permit {
        let needs_no_lease = is_dry_run || !self.enabled;
        Permit::new(if needs_no_lease { Fence::open() } else { Fence::closed() }, limiter)
    }

    /// Rejects the same values as client-go.
    pub fn validate(&self) -> Result<(), &'static str> {
        if self.lease_duration <= self.renew_deadline {
            return Err(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline",
            );
        }
        if self.renew_deadline.as_secs_f64() <= 1.2 * self.retry_period.as_secs_f64() {
            return Err(
                "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period",
            );
        }
        Ok(())
    }
}
