//! At the maximum of replicas: there is no room to add any, so the pods may become larger, and the scale point with them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    ScalePoint, UsagePerPod, scaled,
    usage_per_pod::Comparison::{self, Above, NotAbove, Unknown},
};
use crate::types::Time;

/// How long replicas have to be at the maximum with the ratio above tolerance.
pub const AT_MAX_FOR: Duration = Duration::from_mins(15);
/// The raised scale point in percent of the request.
const RAISED_PERCENT: i64 = 90;
/// How long a raised request outlasts the need for it: a day, because most loads peak once a day. Without it, the replicas
/// would return to the maximum with every peak.
pub const OUTLASTS_NEED: Duration = Duration::from_hours(24);
/// The time of the last need is this coarse, so that it need not be stored more often.
const NEEDED_INTERVAL: Duration = Duration::from_mins(10);

/// A request that was raised at the maximum of replicas, and the scale point with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Raised {
    /// The lowest request of a pod.
    pub request: i64,
    /// The scale point that is raised. It ends when a user changes that.
    pub base: i64,
    /// When it was raised first.
    pub since: Time,
    /// When the load last needed more replicas than the maximum at the base scale point, or shortly before.
    pub needed: Time,
}

impl Raised {
    /// The raised scale point, as far as the pods have the request.
    pub fn scale_point(self, mean_request: Option<i64>) -> i64 {
        at_request(self.request.min(mean_request.unwrap_or(0)))
    }
}

/// The scale point that belongs to a raised request.
pub(super) fn at_request(request: i64) -> i64 {
    scaled(request, RAISED_PERCENT, 100)
}

/// What was measured of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// The usage of its pods; `None` if it is unknown.
    pub usage: Option<UsagePerPod>,
    /// The mean actuated request of its pods; `None` if it is unknown.
    pub mean_request: Option<i64>,
    pub replicas: i32,
    pub min: i32,
    pub max: i32,
    /// The tolerance for scaling up.
    pub tolerance: f64,
    pub now: Time,
}

impl Measurement {
    /// Whether the replicas are at the maximum, and the ratio is above tolerance.
    pub(super) fn lacks_replicas(self, scale_point: ScalePoint) -> Comparison {
        if self.replicas < self.max {
            return NotAbove;
        }
        self.compare(scale_point, self.replicas)
    }

    fn compare(self, scale_point: ScalePoint, replicas: i32) -> Comparison {
        let Some(usage) = self.usage else { return Unknown };
        let capacity = scale_point.milli as f64 * f64::from(replicas);
        usage.compare(f64::from(self.replicas), capacity * (1.0 + self.tolerance))
    }

    /// What is left of a raised request.
    pub(super) fn keep(self, raised: Option<Raised>, base: ScalePoint) -> Option<Raised> {
        let raised = raised.filter(|raised| raised.base == base.milli)?;
        // An unknown load could still need it.
        let is_needed = matches!(self.compare(base, self.max), Above | Unknown);
        let now = self.now;
        let is_due = now >= raised.needed.later(NEEDED_INTERVAL);
        let needed = if is_needed && is_due { now } else { raised.needed };
        (now < needed.later(OUTLASTS_NEED)).then_some(Raised { needed, ..raised })
    }
}
