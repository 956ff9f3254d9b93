//! KRR's strategy `simple` on a series: once a day the p95 of the last 14 days.

use std::collections::VecDeque;

use super::rule::SeriesRule;

const DAY: f64 = 86_400.0;
const WINDOW: f64 = 14.0 * DAY;
const PERCENTILE: f64 = 0.95;
/// Requests are rounded up to powers of this, as the published comparison reads quantiles with this resolution. A smaller
/// difference between two days is no change.
const RESOLUTION: f64 = 1.002;

pub(super) struct Krr {
    floor: f64,
    next: f64,
    values: VecDeque<(f64, f64)>,
}

impl Krr {
    pub fn new(floor: f64, start: f64) -> Self {
        Self { floor, next: start + DAY, values: VecDeque::new() }
    }
}

impl SeriesRule for Krr {
    fn take(&mut self, at: f64, cores: f64, _: f64) {
        self.values.push_back((at, cores));
        while self.values.front().is_some_and(|(first, _)| *first < at - WINDOW) {
            self.values.pop_front();
        }
    }

    fn decide(&mut self, at: f64, request: f64) -> f64 {
        if at < self.next {
            return request;
        }
        while self.next <= at {
            self.next += DAY;
        }
        let mut values: Vec<f64> = self.values.iter().map(|(_, cores)| *cores).collect();
        quantile(&mut values, PERCENTILE).map_or(request, |found| round_up(found).max(self.floor))
    }
}

fn round_up(cores: f64) -> f64 {
    if cores <= 0.0 {
        return cores;
    }
    // Slightly less, so that a value on the grid stays on it.
    let power = (cores.ln() / RESOLUTION.ln() - 1e-9).ceil();
    RESOLUTION.powf(power)
}

/// The quantile of unordered values, between the two nearest as Prometheus and NumPy compute it; `None` without values.
pub(in crate::backtest) fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let rank = share * values.len().checked_sub(1)? as f64;
    let below = (rank.floor() as usize).min(values.len() - 1);
    let (_, lower, rest) = values.select_nth_unstable_by(below, f64::total_cmp);
    let lower = *lower;
    let upper = rest.iter().copied().min_by(f64::total_cmp).unwrap_or(lower);
    Some(lower + (upper - lower) * (rank - rank.floor()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_between_the_nearest_values() {
        let of = |values: &[f64], share| quantile(&mut values.to_vec(), share);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[3.0], 0.95), Some(3.0));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 1.0), Some(4.0));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 0.0), Some(1.0));
    }
}
