//! Whether the CRD in the cluster has the field `status.decision`.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use plimsoll_core::types::Time;

/// How long to wait before writing `status.decision` again after the API server dropped it.
const DROPPED_DECISION_RETRY: Duration = Duration::from_mins(10);

/// Observes whether the API server stores `status.decision`.
#[derive(Debug, Default)]
pub(super) struct DecisionField {
    /// When the API server last dropped the field, in nanoseconds; 0 if it stores it.
    dropped_at: AtomicI64,
}

impl DecisionField {
    /// Whether the API server drops `status.decision`. The field is written again from time to time because the CRD may have
    /// been updated.
    pub fn is_dropped(&self, now: Time) -> bool {
        let last = self.dropped_at.load(Ordering::Relaxed);
        let from = Time::from_nanos(last);
        last != 0 && (from..from.later(DROPPED_DECISION_RETRY)).contains(&now)
    }

    /// Records whether the API server stored `status.decision`. It drops the field if upstream's CRD is installed.
    pub fn record(&self, is_stored: bool, now: Time) {
        let last = if is_stored { 0 } else { now.as_nanos() };
        let before = self.dropped_at.swap(last, Ordering::Relaxed);
        if is_stored && before != 0 {
            tracing::info!("the WatermarkPodAutoscaler CRD now has status.decision");
        }
        if !is_stored && before == 0 {
            tracing::warn!(
                "the WatermarkPodAutoscaler CRD in this cluster has no status.decision: decisions are not stored, \
                 `plimsoll explain wpa` shows less, and delays of single metrics and fallbacks restart when another \
                 replica becomes the leader; apply the output of `plimsoll crds`, which is detected within ten minutes"
            );
        }
    }
}
