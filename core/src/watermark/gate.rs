//! Whether replicas may be changed now: windows after the last change, and delays outside of the band.

use std::time::Duration;

use crate::types::Time;

use crate::types::compat::{Fix, Fixes};

/// The way that replicas go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// More of them.
    Up,
    /// Fewer of them.
    Down,
}

impl Way {
    /// The word for it, as labels have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "upscale",
            Self::Down => "downscale",
        }
    }
}

/// Since when something holds, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// Whether it holds.
    pub holds: bool,
    /// Since when that is so.
    pub at: Time,
}

/// What the gate looks at.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// When replicas were last changed.
    pub last: Option<Time>,
    /// After a change none are added for so long.
    pub up_window: Duration,
    /// After a change none are removed for so long.
    pub down_window: Duration,
    /// A metric has to be above its band for so long.
    pub up_delay: Duration,
    /// Metrics have to be below their bands for so long.
    pub down_delay: Duration,
    /// Whether a metric is above its band.
    pub above: Since,
    /// Whether a metric is below its band.
    pub below: Since,
    /// Whether all metrics are inside of their bands, so that delays do not matter.
    pub is_stable: bool,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

/// Why replicas are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// There is nothing to change.
    Same,
    /// The last change was too short a while ago.
    Window {
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
pub struct Passage {
    /// Why replicas stay, if they do.
    pub held: Option<Hold>,
    /// Seconds until replicas may be added and removed again, for all that the last change says.
    pub left: Option<Left>,
}

/// Seconds until replicas may be changed again; zero when they may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
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

impl Left {
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

impl Gate {
    /// Whether replicas may go from one number to another.
    pub fn passage(&self, from: i32, to: i32) -> Passage {
        let Some(last) = self.last else {
            if !self.fixes.has(Fix::FirstPassIsNoChange) {
                return Passage { held: None, left: None };
            }
            return Passage { held: self.held(from, to, None), left: None };
        };
        let left = Left {
            up: self.seconds_until(last.later(self.up_window)),
            down: self.seconds_until(last.later(self.down_window)),
        };
        Passage { held: self.held(from, to, Some(last)), left: Some(left) }
    }

    fn seconds_until(&self, end: Time) -> f64 {
        (end.nanos_since(self.now) as f64 / 1e9).max(0.0)
    }

    fn held(&self, from: i32, to: i32, last: Option<Time>) -> Option<Hold> {
        let (window, since, delay) = match to.cmp(&from) {
            std::cmp::Ordering::Equal => return Some(Hold::Same),
            std::cmp::Ordering::Greater => (self.up_window, self.above, self.up_delay),
            std::cmp::Ordering::Less => (self.down_window, self.below, self.down_delay),
        };
        if !delay.is_zero() && !self.is_stable {
            // Whole seconds, as times of conditions have no others.
            let waited = self.now.nanos_since(since.at) / 1_000_000_000;
            let needed = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
            if needed > waited || !since.holds {
                let until = since.holds.then(|| since.at.later(delay));
                return Some(Hold::Delay { until });
            }
        }
        let until = last.map(|last| last.later(window)).filter(|until| *until > self.now);
        until.map(|until| Hold::Window { until })
    }
}
