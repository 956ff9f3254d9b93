//! When each object was asked about, and what that says of its periods.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// When each object was asked about: seconds since any moment, in order.
#[derive(Clone, Debug, Default)]
pub struct QueryTimes(pub HashMap<String, Vec<f64>>);

/// How periods were kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeriodStats {
    /// Reads that were due: one for each object and period.
    pub due: usize,
    /// Periods in which an object was asked about.
    pub made: usize,
    /// All reads.
    pub reads: usize,
    /// Seconds of the longest time in which an object was not asked about.
    pub longest: f64,
}

impl QueryTimes {
    /// Of so many objects, from `start` on for so many periods. Each object has a place of its own within the period, which
    /// begins half a period before its first read here, so that a read that comes a little early or late is of its own one.
    pub fn periods(&self, objects: usize, start: f64, period: Duration, count: u32) -> PeriodStats {
        let (length, end) = (period.as_secs_f64(), start + (period * count).as_secs_f64());
        let mut periods = PeriodStats { due: objects * count as usize, ..PeriodStats::default() };
        for times in self.0.values() {
            let within: Vec<f64> =
                times.iter().copied().filter(|at| (start..end).contains(at)).collect();
            let Some(first) = within.first() else { continue };
            let place = |at: &f64| ((at - first) / length).round() as u32;
            let kept: HashSet<u32> = within.iter().map(place).filter(|at| *at < count).collect();
            periods.made += kept.len();
            periods.reads += within.len();
            let ends = [start].into_iter().chain(within.iter().copied()).chain([end]);
            let ends: Vec<f64> = ends.collect();
            let longest = ends.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max);
            periods.longest = periods.longest.max(longest);
        }
        if self.0.len() < objects {
            periods.longest = end - start;
        }
        periods
    }
}
