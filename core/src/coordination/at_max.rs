//! At the maximum of replicas: there is no room to add any, so the pods may become larger, and the scale point with them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ScalePoint, scaled};
use crate::types::Time;

/// How long replicas have to be at the maximum with the ratio above tolerance.
pub const AT_MAX_FOR: Duration = Duration::from_mins(15);
/// The raised scale point in percent of the request.
const RAISED_PERCENT: i64 = 90;
/// How long a raised scale point outlasts the need for it: a day, because most loads peak once a day. Without it, the
/// replicas would return to the maximum with every peak.
pub const OUTLASTS_NEED: Duration = Duration::from_hours(24);

/// A scale point that was raised at the maximum of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Raised {
    /// The raised scale point.
    pub milli: i64,
    /// The scale point that it replaces. It ends when a user changes that.
    pub base: i64,
    /// When it was raised first.
    pub since: Time,
    /// When the load last needed more replicas than the maximum at the base scale point.
    pub needed: Time,
}

/// A measurement of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The mean usage of the pods that count; `None` if it is unknown.
    pub usage_per_pod: Option<i64>,
    pub replicas: i32,
    pub max: i32,
    /// The tolerance for scaling up.
    pub tolerance: f64,
}

impl Load {
    /// Whether the replicas are at the maximum, and the ratio is above tolerance.
    pub fn lacks_replicas(self, scale_point: ScalePoint) -> bool {
        self.replicas >= self.max && self.is_above(scale_point, self.replicas)
    }

    fn is_above(self, scale_point: ScalePoint, replicas: i32) -> bool {
        let usage = self.usage_per_pod.unwrap_or(0) as f64 * f64::from(self.replicas);
        let capacity = scale_point.milli as f64 * f64::from(replicas);
        usage > capacity * (1.0 + self.tolerance)
    }

    /// What is left of a raised scale point.
    pub fn keep(self, raised: Option<Raised>, base: ScalePoint, now: Time) -> Option<Raised> {
        let raised = raised.filter(|raised| raised.base == base.milli)?;
        // An unknown load could still need it.
        let is_needed = self.usage_per_pod.is_none() || self.is_above(base, self.max);
        let needed = if is_needed { now } else { raised.needed };
        (now < needed.later(OUTLASTS_NEED)).then_some(Raised { needed, ..raised })
    }
}

/// Raises the scale point for a new request.
pub(super) fn raise(
    raised: Option<Raised>,
    base: ScalePoint,
    request: i64,
    now: Time,
) -> Option<Raised> {
    let milli = scaled(request, RAISED_PERCENT, 100);
    let current = raised.map_or(base.milli, |raised| raised.milli);
    if milli <= current {
        return raised;
    }
    let since = raised.map_or(now, |raised| raised.since);
    Some(Raised { milli, base: base.milli, since, needed: now })
}
