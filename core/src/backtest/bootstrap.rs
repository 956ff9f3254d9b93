//! Intervals by a bootstrap: the same figure of samples that are drawn with replacement, with a fixed seed.

use super::report::Interval;
use crate::sim::noise::Noise;

/// The seed of all draws, so that the same input gives the same intervals.
const SEED: u64 = 1_905;

/// Draws of a number of units, such as workloads or series.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap {
    units: usize,
    draws: u32,
}

impl Bootstrap {
    /// A bootstrap of this many units.
    pub const fn new(units: usize, draws: u32) -> Self {
        Self { units, draws }
    }

    /// The interval between the 2.5th and the 97.5th percentile of a figure. It is of no width with fewer than two units.
    pub fn interval(&self, estimate: f64, mut figure: impl FnMut(&[usize]) -> f64) -> Interval {
        if self.units < 2 || self.draws == 0 {
            return Interval { estimate, lower: estimate, upper: estimate };
        }
        let mut drawn = vec![0; self.units];
        let mut figures: Vec<f64> = (0..self.draws)
            .map(|draw| {
                let noise = Noise::new(SEED).for_number(u64::from(draw));
                for (tick, unit) in drawn.iter_mut().enumerate() {
                    // The product of a 64-bit number and the number of units, divided by 2^64, is uniform.
                    let scaled = u128::from(noise.bits(tick as u64)) * self.units as u128;
                    *unit = (scaled >> 64) as usize;
                }
                figure(&drawn)
            })
            .collect();
        figures.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| figures[(share * (figures.len() - 1) as f64).round() as usize];
        Interval { estimate, lower: at(0.025), upper: at(0.975) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_drawn_and_the_interval_contains_the_estimate() {
        let values: Vec<f64> = (0..40).map(f64::from).collect();
        let mut seen = [false; 40];
        let interval = Bootstrap::new(40, 1_000).interval(19.5, |drawn| {
            for index in drawn {
                seen[*index] = true;
            }
            drawn.iter().map(|index| values[*index]).sum::<f64>() / 40.0
        });
        assert!(seen.iter().all(|drawn| *drawn));
        // The standard error is 11.54 / sqrt(40) = 1.825, so the interval is about 19.5 +- 3.58.
        assert!((15.4..16.5).contains(&interval.lower), "{interval:?}");
        assert!((22.5..23.6).contains(&interval.upper), "{interval:?}");
    }

    #[test]
    fn one_unit_has_an_interval_of_no_width() {
        let interval = Bootstrap::new(1, 1_000).interval(3.0, |_| 7.0);
        assert_eq!((interval.lower, interval.upper), (3.0, 3.0));
    }
}
