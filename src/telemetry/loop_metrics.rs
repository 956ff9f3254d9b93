//! Metrics of the main loop of a component: whether it is the leader, how late it is, and when it last succeeded.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;

use super::{
    definition::{Definition, gauge},
    family::Family,
    instruments::Gauge,
    registry::Registry,
};

const LEADER: Definition =
    gauge("plimsoll_leader", "1 while this replica is the leader, 0 while it is not.")
        .labels(&["role"], "1 per role")
        .absent("the role has no leader election");
const LAST_SUCCESS: Definition = gauge(
    "plimsoll_loop_last_success_timestamp_seconds",
    "When the last successful pass ended, in seconds since the Unix epoch; of a watermark controller, the last reconcile without an error.",
)
.labels(&["role"], "1 per role")
.unit("seconds")
.absent("no pass has succeeded yet");
const LAG: Definition = gauge(
    "plimsoll_loop_lag_seconds",
    "How late the last pass started; of a watermark controller, how long the oldest object has been waiting.",
)
.labels(&["role"], "1 per role")
.unit("seconds")
.absent("the role has no loop");

/// The maximum number of components in one process.
const ROLES: usize = 4;

/// Metrics of the main loop of a component.
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    role: &'static str,
    leader: Arc<Family<Gauge, 1>>,
    last_success: Arc<Family<Gauge, 1>>,
    lag: Arc<Family<Gauge, 1>>,
}

impl LoopMetrics {
    /// Adds the families to a registry, with the series of this component.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        let metrics = Self {
            role,
            leader: registry.family(LEADER, ROLES),
            last_success: registry.family(LAST_SUCCESS, ROLES),
            lag: registry.family(LAG, ROLES),
        };
        metrics.set_leader(false);
        metrics.set_lag(Duration::ZERO);
        metrics
    }

    /// Sets whether this replica is the leader.
    pub fn set_leader(&self, is_leader: bool) {
        self.leader.with_labels([self.role]).set(f64::from(u8::from(is_leader)));
    }

    /// Sets when a pass last succeeded.
    pub fn set_last_success(&self, at: Time) {
        self.last_success.with_labels([self.role]).set(at.as_nanos() as f64 / 1e9);
    }

    /// Sets how late the last pass started.
    pub fn set_lag(&self, lag: Duration) {
        self.lag.with_labels([self.role]).set(lag.as_secs_f64());
    }
}
