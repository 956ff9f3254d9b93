//! How many replicas may be added or removed at once, and the fewest and the most of them.

use super::rounding::saturate_to_replicas;
use crate::types::{
    compat::{Fix, Fixes},
    quantity::Quantity,
};

/// What limits a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLimits {
    /// The fewest replicas; none at all is a value that only objects have that nobody filled in.
    pub min: i32,
    /// The most replicas.
    pub max: i32,
    /// Percentage of the replicas that may be added at once.
    pub upscale_percent: Quantity,
    /// Percentage of the replicas that may be removed at once.
    pub downscale_percent: Quantity,
}

/// What a proposal ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitHit {
    /// Nothing.
    Unlimited,
    /// It would remove too many at once.
    DownscaleRate,
    /// It would add too many at once.
    UpscaleRate,
    /// It is below the fewest.
    BelowMin,
    /// It is above the most.
    AboveMax,
    /// There is no fewest, and it is below one.
    BelowOne,
}

impl LimitHit {
    /// Upstream's word for it, which for one of them is none.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unlimited => "DesiredWithinRange",
            Self::DownscaleRate => "ScaleDownLimit",
            Self::UpscaleRate => "ScaleUpLimit",
            Self::BelowMin => "TooFewReplicas",
            Self::AboveMax => "TooManyReplicas",
            Self::BelowOne => "",
        }
    }

    /// Upstream's sentence for it.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unlimited => "the desired count is within the acceptable range",
            Self::DownscaleRate => {
                "the desired replica count is decreasing faster than the maximum scale rate"
            }
            Self::UpscaleRate => {
                "the desired replica count is increasing faster than the maximum scale rate"
            }
            Self::BelowMin => "the desired replica count is below the minimum replica count",
            Self::AboveMax => "the desired replica count is above the maximum replica count",
            Self::BelowOne => "",
        }
    }
}

/// A proposal within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedReplicas {
    /// So many replicas.
    pub replicas: i32,
    /// What it ran into.
    pub limit_hit: LimitHit,
    /// Whether too many would be removed at once, if that was looked at.
    pub downscale_capping: Option<bool>,
    /// Whether too many would be added at once, if that was looked at.
    pub upscale_capping: Option<bool>,
}

impl ReplicaLimits {
    /// The most that one step up leads to: at least one more, unless none may be added.
    pub fn upscale_limit(&self, current: i32) -> i32 {
        if self.upscale_percent.value() == 0 {
            return current;
        }
        saturate_to_replicas(i128::from(current) + percentage_of(self.upscale_percent, current))
    }

    /// The fewest that one step down leads to: at least one fewer, unless none may be removed.
    pub fn downscale_limit(&self, current: i32) -> i32 {
        if self.downscale_percent.value() == 0 {
            return current;
        }
        saturate_to_replicas(i128::from(current) - percentage_of(self.downscale_percent, current))
    }

    /// Brings a proposal within its limits.
    pub fn apply_limits(
        &self,
        current: i32,
        proposed: i32,
        ready: u32,
        fixes: Fixes,
    ) -> LimitedReplicas {
        let (up_to, down_to) = (self.upscale_limit(current), self.downscale_limit(current));
        let shows_right = fixes.has(Fix::CappingIsShownRight);
        let (is_too_fast_down, is_too_fast_up) = (proposed < down_to, proposed > up_to);
        let done = |replicas, limited, downscale, upscale| LimitedReplicas {
            replicas,
            limit_hit: limited,
            downscale_capping: if shows_right { Some(is_too_fast_down) } else { downscale },
            upscale_capping: if shows_right { Some(is_too_fast_up) } else { upscale },
        };
        let (least, below, mut downscale) = if self.min == 0 {
            (1, LimitHit::BelowOne, None)
        } else if is_too_fast_down {
            let least = down_to.max(self.min);
            let ready = i32::try_from(ready).unwrap_or(i32::MAX);
            // With so few ready pods nothing is taken away.
            let least = if ready > 0 && ready < least { current } else { least };
            (least, LimitHit::DownscaleRate, Some(true))
        } else {
            (self.min, LimitHit::BelowMin, Some(false))
        };
        if proposed < least {
            return done(least, below, downscale, None);
        }
        let (most, above, upscale) = if is_too_fast_up {
            (up_to.min(self.max), LimitHit::UpscaleRate, Some(true))
        } else {
            // Upstream means the other one.
            downscale = Some(false);
            (self.max, LimitHit::AboveMax, None)
        };
        if proposed > most {
            return done(most, above, downscale, upscale);
        }
        done(proposed, LimitHit::Unlimited, downscale, upscale)
    }
}

/// A percentage of the replicas, cut off, and at least one.
fn percentage_of(percent: Quantity, current: i32) -> i128 {
    let share = (percent.milli_value() as f64 / 1000.0 * f64::from(current) / 100.0).floor();
    share.max(1.0) as i128
}
