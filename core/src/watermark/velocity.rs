//! How many replicas may be added or removed at once, and the fewest and the most of them.

use super::whole::saturate;
use crate::types::{
    compat::{Fix, Fixes},
    quantity::Quantity,
};

/// What limits a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The fewest replicas; none at all is a value that only objects have that nobody filled in.
    pub min: i32,
    /// The most replicas.
    pub max: i32,
    /// Percentage of the replicas that may be added at once.
    pub up: Quantity,
    /// Percentage of the replicas that may be removed at once.
    pub down: Quantity,
}

/// What a proposal ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limited {
    /// Nothing.
    Not,
    /// It would remove too many at once.
    DownscaleSpeed,
    /// It would add too many at once.
    UpscaleSpeed,
    /// It is below the fewest.
    TooFew,
    /// It is above the most.
    TooMany,
    /// There is no fewest, and it is below one.
    BelowOne,
}

impl Limited {
    /// Upstream's word for it, which for one of them is none.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Not => "DesiredWithinRange",
            Self::DownscaleSpeed => "ScaleDownLimit",
            Self::UpscaleSpeed => "ScaleUpLimit",
            Self::TooFew => "TooFewReplicas",
            Self::TooMany => "TooManyReplicas",
            Self::BelowOne => "",
        }
    }

    /// Upstream's sentence for it.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Not => "the desired count is within the acceptable range",
            Self::DownscaleSpeed => {
                "the desired replica count is decreasing faster than the maximum scale rate"
            }
            Self::UpscaleSpeed => {
                "the desired replica count is increasing faster than the maximum scale rate"
            }
            Self::TooFew => "the desired replica count is below the minimum replica count",
            Self::TooMany => "the desired replica count is above the maximum replica count",
            Self::BelowOne => "",
        }
    }
}

/// A proposal within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normal {
    /// So many replicas.
    pub replicas: i32,
    /// What it ran into.
    pub limited: Limited,
    /// Whether too many would be removed at once, if that was looked at.
    pub downscale_capping: Option<bool>,
    /// Whether too many would be added at once, if that was looked at.
    pub upscale_capping: Option<bool>,
}

impl Limits {
    /// The most that one step up leads to: at least one more, unless none may be added.
    pub fn up_to(&self, current: i32) -> i32 {
        if self.up.value() == 0 {
            return current;
        }
        saturate(i128::from(current) + step(self.up, current))
    }

    /// The fewest that one step down leads to: at least one fewer, unless none may be removed.
    pub fn down_to(&self, current: i32) -> i32 {
        if self.down.value() == 0 {
            return current;
        }
        saturate(i128::from(current) - step(self.down, current))
    }

    /// Brings a proposal within its limits.
    pub fn normalise(&self, current: i32, proposed: i32, ready: u32, fixes: Fixes) -> Normal {
        let (up_to, down_to) = (self.up_to(current), self.down_to(current));
        let shows_right = fixes.has(Fix::CappingIsShownRight);
        let (is_too_fast_down, is_too_fast_up) = (proposed < down_to, proposed > up_to);
        let done = |replicas, limited, downscale, upscale| Normal {
            replicas,
            limited,
            downscale_capping: if shows_right { Some(is_too_fast_down) } else { downscale },
            upscale_capping: if shows_right { Some(is_too_fast_up) } else { upscale },
        };
        let (least, below, mut downscale) = if self.min == 0 {
            (1, Limited::BelowOne, None)
        } else if is_too_fast_down {
            let least = down_to.max(self.min);
            let ready = i32::try_from(ready).unwrap_or(i32::MAX);
            // With so few ready pods nothing is taken away.
            let least = if ready > 0 && ready < least { current } else { least };
            (least, Limited::DownscaleSpeed, Some(true))
        } else {
            (self.min, Limited::TooFew, Some(false))
        };
        if proposed < least {
            return done(least, below, downscale, None);
        }
        let (most, above, upscale) = if is_too_fast_up {
            (up_to.min(self.max), Limited::UpscaleSpeed, Some(true))
        } else {
            // Upstream means the other one.
            downscale = Some(false);
            (self.max, Limited::TooMany, None)
        };
        if proposed > most {
            return done(most, above, downscale, upscale);
        }
        done(proposed, Limited::Not, downscale, upscale)
    }
}

/// A percentage of the replicas, cut off, and at least one.
fn step(percent: Quantity, current: i32) -> i128 {
    let share = (percent.milli_value() as f64 / 1000.0 * f64::from(current) / 100.0).floor();
    share.max(1.0) as i128
}
