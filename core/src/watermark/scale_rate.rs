//! Limits of a proposal: how many replicas may be added or removed at once, and the minimum and maximum.

use super::rounding::saturate_to_replicas;
use crate::types::{
    compat::{Fix, Fixes},
    quantity::Quantity,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// The minimum replicas; 0 only if the spec was not defaulted.
    pub min: i32,
    pub max: i32,
    /// Percentage of the replicas that may be added at once.
    pub upscale_percent: Quantity,
    /// Percentage of the replicas that may be removed at once.
    pub downscale_percent: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitHit {
    Unlimited,
    /// The proposal removes too many replicas at once.
    DownscaleRate,
    /// The proposal adds too many replicas at once.
    UpscaleRate,
    BelowMin,
    AboveMax,
    /// No minimum is set, and the proposal is below one.
    BelowOne,
}

impl LimitHit {
    /// Upstream's reason and message of the condition; empty for `BelowOne`.
    pub fn reason_and_message(self) -> (&'static str, String) {
        let (reason, what) = match self {
            Self::Unlimited => ("DesiredWithinRange", "count is within the acceptable range"),
            Self::DownscaleRate => {
                ("ScaleDownLimit", "replica count is decreasing faster than the maximum scale rate")
            }
            Self::UpscaleRate => {
                ("ScaleUpLimit", "replica count is increasing faster than the maximum scale rate")
            }
            Self::BelowMin => {
                ("TooFewReplicas", "replica count is below the minimum replica count")
            }
            Self::AboveMax => {
                ("TooManyReplicas", "replica count is above the maximum replica count")
            }
            Self::BelowOne => return ("", String::new()),
        };
        (reason, format!("the desired {what}"))
    }
}

/// A proposal after limits were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedReplicas {
    pub replicas: i32,
    pub limit_hit: LimitHit,
    /// Whether the proposal removes too many replicas at once; `None` if not checked.
    pub downscale_capping: Option<bool>,
    /// Whether the proposal adds too many replicas at once; `None` if not checked.
    pub upscale_capping: Option<bool>,
}

impl ReplicaLimits {
    /// The replicas after the largest step up: at least one more, unless none may be added.
    pub fn upscale_limit(&self, current: i32) -> i32 {
        if self.upscale_percent.value() == 0 {
            return current;
        }
        saturate_to_replicas(i128::from(current) + percentage_of(self.upscale_percent, current))
    }

    /// The replicas after the largest step down: at least one fewer, unless none may be removed.
    pub fn downscale_limit(&self, current: i32) -> i32 {
        if self.downscale_percent.value() == 0 {
            return current;
        }
        saturate_to_replicas(i128::from(current) - percentage_of(self.downscale_percent, current))
    }

    pub fn apply_limits(
        &self,
        current: i32,
        proposed: i32,
        ready: u32,
        fixes: Fixes,
    ) -> LimitedReplicas {
        let (up_to, down_to) = (self.upscale_limit(current), self.downscale_limit(current));
        let reports_correctly = fixes.has(Fix::CappingIsShownRight);
        let (is_too_fast_down, is_too_fast_up) = (proposed < down_to, proposed > up_to);
        let result = |replicas, limited, downscale, upscale| LimitedReplicas {
            replicas,
            limit_hit: limited,
            downscale_capping: if reports_correctly { Some(is_too_fast_down) } else { downscale },
            upscale_capping: if reports_correctly { Some(is_too_fast_up) } else { upscale },
        };
        let (least, below, mut downscale) = if self.min == 0 {
            (1, LimitHit::BelowOne, None)
        } else if is_too_fast_down {
            let least = down_to.max(self.min);
            let ready = i32::try_from(ready).unwrap_or(i32::MAX);
            // With fewer ready pods than that, remove nothing.
            let least = if ready > 0 && ready < least { current } else { least };
            (least, LimitHit::DownscaleRate, Some(true))
        } else {
            (self.min, LimitHit::BelowMin, Some(false))
        };
        if proposed < least {
            return result(least, below, downscale, None);
        }
        let (most, above, upscale) = if is_too_fast_up {
            (up_to.min(self.max), LimitHit::UpscaleRate, Some(true))
        } else {
            // Upstream sets this one by mistake instead of `upscale`.
            downscale = Some(false);
            (self.max, LimitHit::AboveMax, None)
        };
        if proposed > most {
            return result(most, above, downscale, upscale);
        }
        result(proposed, LimitHit::Unlimited, downscale, upscale)
    }
}

/// A percentage of the replicas, rounded down, but at least one.
fn percentage_of(percent: Quantity, current: i32) -> i128 {
    let share = (percent.milli_value() as f64 / 1000.0 * f64::from(current) / 100.0).floor();
    share.max(1.0) as i128
}
