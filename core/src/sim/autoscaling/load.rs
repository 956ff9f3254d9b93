//! The load of a workload, in millicores over all its pods. Shapes repeat every week, so that weeks can be compared; only
//! fast noise differs.

use crate::{
    sim::{
        demand::{daily_traffic, is_weekend},
        noise::Noise,
    },
    types::Time,
};

const STEPS_PER_WEEK: u64 = 7 * super::STEPS_PER_DAY;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadCurve {
    /// Daily traffic with quiet nights.
    Daily {
        night: f64,
        peak: f64,
        /// The fraction of the difference that remains on weekends.
        weekend: f64,
    },
    /// Levels that last for hours.
    Stepped {
        /// The lowest level.
        low: f64,
        /// The highest level.
        high: f64,
        /// How long a level lasts, in hours.
        hours: u64,
    },
    /// Daily traffic with bursts of a few minutes.
    Bursty {
        night: f64,
        peak: f64,
        /// The load that a burst adds at most.
        burst: f64,
    },
}

/// A load over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub curve: LoadCurve,
    pub noise: Noise,
}

impl Load {
    pub fn at(&self, now: Time, step: u64) -> f64 {
        let level = match self.curve {
            LoadCurve::Daily { night, peak, weekend } => daily(now, night, peak, weekend),
            LoadCurve::Stepped { low, high, hours } => {
                let index = step % STEPS_PER_WEEK / (hours.max(1) * 60 * super::STEPS_PER_MINUTE);
                let bits = self.noise.for_name("level").bits(index) & 0xFFFF;
                low + (high - low) * bits as f64 / 65535.0
            }
            LoadCurve::Bursty { night, peak, burst } => {
                daily(now, night, peak, 0.7) + burst * self.burst(step)
            }
        };
        let slow = self.noise.for_name("load").drift(step, 40);
        let fast = self.noise.for_name("load").bell_shaped(step);
        level * (1.0 + 0.04 * slow + 0.01 * fast)
    }

    /// The height of a burst: about one in two hours, of 3 to 12 minutes.
    fn burst(&self, step: u64) -> f64 {
        let (slot, within) = (step % STEPS_PER_WEEK / 120, step % 120);
        let bits = self.noise.for_name("burst").bits(slot);
        let length = 12 + bits % 37;
        if (bits >> 32).is_multiple_of(4) && within < length {
            0.4 + 0.6 * ((bits >> 40 & 0xFF) as f64 / 255.0)
        } else {
            0.0
        }
    }
}

fn daily(now: Time, night: f64, peak: f64, weekend: f64) -> f64 {
    let traffic = daily_traffic(now);
    // Squared: peaks are shorter than nights.
    let share = traffic * traffic * if is_weekend(now) { weekend } else { 1.0 };
    night + (peak - night) * share
}
