//! How the loop of a role goes: whether it may write, how late it is, and when it last came to an end.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;

use super::{
    definition::{Definition, gauge},
    family::Family,
    instruments::Gauge,
    registry::Registry,
};

const LEADER: Definition =
    gauge("plimsoll_leader", "1 while this replica may write, 0 while another one does.")
        .labels(&["role"], "1 per role")
        .absent("the role knows no leader");
const LAST_SUCCESS: Definition = gauge(
    "plimsoll_loop_last_success_timestamp_seconds",
    "When the latest pass that could do its work ended, since the Unix epoch; of a watermark controller, the latest look without an error.",
)
.labels(&["role"], "1 per role")
.unit("seconds")
.absent("no pass has succeeded yet");
const LAG: Definition = gauge(
    "plimsoll_loop_lag_seconds",
    "How much later than planned the latest pass began; of a watermark controller, for how long somebody has waited.",
)
.labels(&["role"], "1 per role")
.unit("seconds")
.absent("the role has no loop");

/// As many roles as one process can have.
const ROLES: usize = 4;

/// How the loop of a role goes.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    role: &'static str,
    leader: Arc<Family<Gauge, 1>>,
    last_success: Arc<Family<Gauge, 1>>,
    lag: Arc<Family<Gauge, 1>>,
}

impl LoopMetrics {
    /// Adds the families to a registry, with the series of this role.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        let pace = Self {
            role,
            leader: registry.family(LEADER, ROLES),
            last_success: registry.family(LAST_SUCCESS, ROLES),
            lag: registry.family(LAG, ROLES),
        };
        pace.set_leader(false);
        pace.set_lag(Duration::ZERO);
        pace
    }

    /// This replica may write, or may not.
    pub fn set_leader(&self, leads: bool) {
        self.leader.with_labels([self.role]).set(f64::from(u8::from(leads)));
    }

    /// A pass ended well.
    pub fn set_last_success(&self, at: Time) {
        self.last_success.with_labels([self.role]).set(at.as_nanos() as f64 / 1e9);
    }

    /// A pass began this much later than planned.
    pub fn set_lag(&self, lag: Duration) {
        self.lag.with_labels([self.role]).set(lag.as_secs_f64());
    }
}
