//! Metrics of the main loop of a component: whether it is the leader, how late it is, and when it last succeeded.

use std::time::Duration;

use plimsoll_core::types::Time;

use super::{
    definition::gauge,
    family::Family,
    instruments::Gauge,
    registry::{Registry, metric_families},
};

const ROLES: usize = 4;

metric_families! {
    #[derive(Clone, Debug)]
    pub struct LoopMetrics via register {
        leader: Family<Gauge, 1>[ROLES] =
            gauge("plimsoll_leader", "1 while this replica is the leader, 0 while it is not.")
            .labels(&["role"], "1 per role").absent("the role has no leader election");
        last_success: Family<Gauge, 1>[ROLES] = gauge(
            "plimsoll_loop_last_success_timestamp_seconds",
            "When the last successful pass ended, in seconds since the Unix epoch; of a watermark controller, the last reconcile without an error.",
        ).labels(&["role"], "1 per role").unit("seconds").absent("no pass has succeeded yet");
        lag: Family<Gauge, 1>[ROLES] = gauge(
            "plimsoll_loop_lag_seconds",
            "How late the last pass started; of a watermark controller, how long the oldest object has been waiting.",
        ).labels(&["role"], "1 per role").unit("seconds").absent("the role has no loop");
        ..
        role: &'static str = |_| "";
    }
}

impl LoopMetrics {
    /// Adds the families to a registry, with the series of this component.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        let metrics = Self { role, ..Self::register(registry) };
        metrics.set_leader(false);
        metrics.set_lag(Duration::ZERO);
        metrics
    }

    pub fn set_leader(&self, is_leader: bool) {
        self.leader.with_labels([self.role]).set_bool(is_leader);
    }

    pub fn set_last_success(&self, at: Time) {
        self.last_success.with_labels([self.role]).set_time(at);
    }

    pub fn set_lag(&self, lag: Duration) {
        self.lag.with_labels([self.role]).set(lag.as_secs_f64());
    }
}
