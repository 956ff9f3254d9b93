//! Whether replicas may be changed now: windows after the last change, and delays outside of the band.

use std::time::Duration;

use crate::types::Time;

use crate::types::compat::{Fix, Fixes};

/// The way that replicas go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleDirection {
    /// More of them.
    Up,
    /// Fewer of them.
    Down,
}

impl ScaleDirection {
    /// The word for it, as labels have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "upscale",
            Self::Down => "downscale",
        }
    }
}

/// Since when something holds, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSince {
    /// Whether it holds.
    pub holds: bool,
    /// Since when that is so.
    pub at: Time,
}

/// What the gate looks at.
#[derive(Clone, Copy, Debug)]
pub struct Cooldown {
    /// When replicas were last changed.
    pub last_scale_time: Option<Time>,
    /// After a change none are added for so long.
    pub upscale_window: Duration,
    /// After a change none are removed for so long.
    pub downscale_window: Duration,
    /// A metric has to be above its band for so long.
    pub upscale_delay: Duration,
    /// Metrics have to be below their bands for so long.
    pub downscale_delay: Duration,
    /// Whether a metric is above its band.
    pub above: StateSince,
    /// Whether a metric is below its band.
    pub below: StateSince,
    /// Whether all metrics are inside of their bands, so that delays do not matter.
    pub is_stable: bool,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

/// Why replicas are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// There is nothing to change.
    NoChange,
    /// The last change was too short a while ago.
    ForbiddenWindow {
        /// When it is long enough ago.
        until: Time,
    },
    /// The value was not outside for long enough.
    Delay {
        /// When it will have been, if it stays there.
        until: Option<Time>,
    },
}

/// What the gate says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CooldownResult {
    /// Why replicas stay, if they do.
    pub hold_reason: Option<HoldReason>,
    /// Seconds until replicas may be added and removed again, for all that the last change says.
    pub remaining: Option<CooldownRemaining>,
}

/// Seconds until replicas may be changed again; zero when they may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CooldownRemaining {
    /// Added.
    pub up: f64,
    /// Removed.
    pub down: f64,
}

/// Which windows are open: upstream's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// None may be removed.
    Downscale,
    /// None may be added.
    Upscale,
    /// Neither.
    Both,
}

impl CooldownRemaining {
    /// Which windows are open, if any is.
    pub fn backoff(&self) -> Option<Backoff> {
        match (self.up > 0.0, self.down > 0.0) {
            (true, true) => Some(Backoff::Both),
            (true, false) => Some(Backoff::Upscale),
            (false, true) => Some(Backoff::Downscale),
            (false, false) => None,
        }
    }
}

impl Cooldown {
    /// Whether replicas may go from one number to another.
    pub fn check(&self, from: i32, to: i32) -> CooldownResult {
        let Some(last) = self.last_scale_time else {
            if !self.fixes.has(Fix::FirstPassIsNoChange) {
                return CooldownResult { hold_reason: None, remaining: None };
            }
            return CooldownResult {
                hold_reason: self.hold_reason(from, to, None),
                remaining: None,
            };
        };
        let left = CooldownRemaining {
            up: self.seconds_until(last.later(self.upscale_window)),
            down: self.seconds_until(last.later(self.downscale_window)),
        };
        CooldownResult {
            hold_reason: self.hold_reason(from, to, Some(last)),
            remaining: Some(left),
        }
    }

    fn seconds_until(&self, end: Time) -> f64 {
        (end.nanos_since(self.now) as f64 / 1e9).max(0.0)
    }

    fn hold_reason(&self, from: i32, to: i32, last: Option<Time>) -> Option<HoldReason> {
        let (window, since, delay) = match to.cmp(&from) {
            std::cmp::Ordering::Equal => return Some(HoldReason::NoChange),
            std::cmp::Ordering::Greater => (self.upscale_window, self.above, self.upscale_delay),
            std::cmp::Ordering::Less => (self.downscale_window, self.below, self.downscale_delay),
        };
        if !delay.is_zero() && !self.is_stable {
            // Whole seconds, as times of conditions have no others.
            let waited = self.now.nanos_since(since.at) / 1_000_000_000;
            let needed = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
            if needed > waited || !since.holds {
                let until = since.holds.then(|| since.at.later(delay));
                return Some(HoldReason::Delay { until });
            }
        }
        let until = last.map(|last| last.later(window)).filter(|until| *until > self.now);
        until.map(|until| HoldReason::ForbiddenWindow { until })
    }
}
