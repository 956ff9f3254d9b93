//! Idle workloads: at the minimum of replicas and far below the scale point for as long as usage is remembered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ScalePoint;
use crate::types::Time;

/// How long a workload has to be idle: the default length of the recommender's history.
pub const IDLE_AFTER: Duration = Duration::from_hours(8 * 24);
/// A longer gap without a measurement could hide that the workload was busy.
const MAX_GAP: Duration = Duration::from_mins(15);

/// Since when a workload has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleSpan {
    /// The first measurement that found it idle.
    pub since: Time,
    /// The last one.
    pub last: Time,
}

impl IdleSpan {
    /// The span after a measurement; `usage_per_pod` is `None` if it is unknown.
    pub fn next(
        span: Option<Self>,
        usage_per_pod: Option<i64>,
        is_at_min: bool,
        scale_point: ScalePoint,
        now: Time,
    ) -> Option<Self> {
        let span = span.filter(|span| now <= span.last.later(MAX_GAP));
        if !is_at_min {
            return None;
        }
        let Some(usage) = usage_per_pod else { return span };
        if usage.saturating_mul(2) >= scale_point.milli {
            return None;
        }
        Some(Self { since: span.map_or(now, |span| span.since), last: now })
    }

    /// Whether the workload has been idle for the whole history.
    pub fn is_idle(self) -> bool {
        self.last >= self.since.later(IDLE_AFTER)
    }
}
