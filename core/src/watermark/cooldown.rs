//! Whether replicas may be changed now: forbidden windows after the last change, and delays while outside the band.

use std::time::Duration;

use crate::types::Time;

use crate::{
    coordination::RemovalHold,
    types::compat::{Fix, Fixes},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum ScaleDirection {
    #[strum(serialize = "upscale")]
    Up,
    #[strum(serialize = "downscale")]
    Down,
}

/// A state, and when it last changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSince {
    pub holds: bool,
    /// When it last changed.
    pub at: Time,
}

#[derive(Clone, Copy, Debug)]
pub struct Cooldown {
    /// When replicas were last changed.
    pub last_scale_time: Option<Time>,
    /// How long after a change no replicas are added.
    pub upscale_window: Duration,
    /// How long after a change no replicas are removed.
    pub downscale_window: Duration,
    /// How long a metric has to be above its band before replicas are added.
    pub upscale_delay: Duration,
    /// How long metrics have to be below their bands before replicas are removed.
    pub downscale_delay: Duration,
    pub above: StateSince,
    pub below: StateSince,
    /// Whether all metrics are inside their bands, so that delays do not apply.
    pub is_stable: bool,
    /// Why no replicas are removed, while pods are updated.
    pub removal_hold: Option<RemovalHold>,
    pub now: Time,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

/// Why replicas are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// The replicas are already as desired.
    NoChange,
    /// The last change is within the forbidden window, which ends then.
    ForbiddenWindow { until: Time },
    /// The value has not been outside its band for long enough.
    Delay {
        /// When the delay ends, if the value stays outside.
        until: Option<Time>,
    },
    /// The updater replaces or resizes pods, and replicas would be removed.
    UpdateWave {
        /// When replicas may be removed; `None` while pods are updated.
        until: Option<Time>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CooldownResult {
    /// Why replicas are not changed; `None` if they may be.
    pub hold_reason: Option<HoldReason>,
    /// Seconds until the forbidden windows end; `None` if there was no change yet.
    pub remaining: Option<CooldownRemaining>,
}

/// Seconds until replicas may be changed again; zero if they may be now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CooldownRemaining {
    /// Until replicas may be added.
    pub up: f64,
    /// Until replicas may be removed.
    pub down: f64,
}

impl Cooldown {
    /// Checks whether replicas may change from `from` to `to`.
    pub fn check(&self, from: i32, to: i32) -> CooldownResult {
        let Some(last) = self.last_scale_time else {
            let is_checked = self.fixes.has(Fix::FirstPassIsNoChange);
            let hold_reason = is_checked.then(|| self.hold_reason(from, to, None)).flatten();
            return CooldownResult { hold_reason, remaining: None };
        };
        let remaining = CooldownRemaining {
            up: self.seconds_until(last.later(self.upscale_window)),
            down: self.seconds_until(last.later(self.downscale_window)),
        };
        let hold_reason = self.hold_reason(from, to, Some(last));
        CooldownResult { hold_reason, remaining: Some(remaining) }
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
            // In whole seconds, because transition times of conditions have no fractions.
            let waited = self.now.nanos_since(since.at) / 1_000_000_000;
            let needed = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
            if needed > waited || !since.holds {
                let until = since.holds.then(|| since.at.later(delay));
                return Some(HoldReason::Delay { until });
            }
        }
        let until = last.map(|last| last.later(window)).filter(|until| *until > self.now);
        let wave = self.removal_hold.filter(|_| to < from);
        until
            .map(|until| HoldReason::ForbiddenWindow { until })
            .or_else(|| wave.map(|hold| HoldReason::UpdateWave { until: hold.until }))
    }
}
