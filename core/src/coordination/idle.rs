//! Idle workloads: at the minimum of replicas and far below the scale point for as long as usage is remembered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ScalePoint, UsagePerPod};
use crate::types::Time;

/// How long a workload has to be idle: the default length of the recommender's history.
pub const IDLE_AFTER: Duration = Duration::from_hours(8 * 24);
/// A longer gap without a measurement could hide that the workload was busy.
const MAX_GAP: Duration = Duration::from_mins(15);
/// The time of the last measurement is this coarse, so that it need not be stored more often. Shorter than [`MAX_GAP`], so that
/// a restart right before it changes leaves no gap.
const LAST_INTERVAL: Duration = Duration::from_mins(10);

/// Since when a workload has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleSpan {
    /// The first measurement that found it idle.
    pub since: Time,
    /// The last one, or one shortly before it.
    pub last: Time,
}

impl IdleSpan {
    /// The span after a measurement; `usage` is `None` if it is unknown. A workload that is idle stays so until a measurement
    /// shows otherwise: without its floor, a gap must not change its requests.
    pub fn next(
        span: Option<Self>,
        usage: Option<UsagePerPod>,
        is_at_min: bool,
        scale_point: ScalePoint,
        now: Time,
    ) -> Option<Self> {
        if !is_at_min {
            return None;
        }
        let span = span.filter(|span| span.is_idle() || now <= span.last.later(MAX_GAP));
        let Some(usage) = usage else { return span };
        if usage.mean.saturating_mul(2) >= scale_point.milli {
            return None;
        }
        if !usage.is_complete() {
            return span;
        }
        Some(match span {
            Some(span) if now < span.last.later(LAST_INTERVAL) => span,
            Some(span) => Self { last: now, ..span },
            None => Self { since: now, last: now },
        })
    }

    /// Whether the workload has been idle for the whole history.
    pub fn is_idle(self) -> bool {
        self.last >= self.since.later(IDLE_AFTER)
    }

    /// How much of its time is known.
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.last.nanos_since(self.since).try_into().unwrap_or(0))
    }
}
