//! When each object's metric was queried, and whether each period had a query.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Query times of each object in seconds, in order.
#[derive(Clone, Debug, Default)]
pub struct QueryTimes(pub HashMap<String, Vec<f64>>);

/// Statistics of periods.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeriodStats {
    /// Number of expected reads: one for each object and period.
    pub due: usize,
    /// Number of periods in which an object was read.
    pub made: usize,
    /// Number of all reads.
    pub reads: usize,
    /// Longest time between two reads of an object, in seconds.
    pub longest: f64,
}

impl QueryTimes {
    /// Statistics of `count` periods from `start` on. Each object has its own offset within the period, which starts
    /// half a period before its first read here, so that an early or late read counts for its own period.
    pub fn periods(&self, objects: usize, start: f64, period: Duration, count: u32) -> PeriodStats {
        let (length, end) = (period.as_secs_f64(), start + (period * count).as_secs_f64());
        let mut periods = PeriodStats { due: objects * count as usize, ..PeriodStats::default() };
        for times in self.0.values() {
            let within: Vec<f64> =
                times.iter().copied().filter(|at| (start..end).contains(at)).collect();
            let Some(first) = within.first() else { continue };
            let place = |at: &f64| ((at - first) / length).round() as u32;
            let covered: HashSet<u32> = within.iter().map(place).filter(|at| *at < count).collect();
            periods.made += covered.len();
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
