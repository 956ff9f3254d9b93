//! The usage per pod: a measurement, and those of the last hour.

use std::{collections::VecDeque, time::Duration};

use super::{at_max::AT_MAX_FOR, scaled};
use crate::types::Time;

/// At most one measurement is kept in this time.
const SAMPLE_INTERVAL: Duration = Duration::from_mins(1);
/// Older measurements are forgotten.
const HISTORY: Duration = Duration::from_hours(1);
/// After a longer gap, the measurements before it are forgotten: in between, the usage could have been lower.
const MAX_GAP: Duration = Duration::from_mins(5);
/// The margin of the recommender, in percent of the usage.
const WITH_MARGIN_PERCENT: i64 = 115;

/// The mean usage of the pods of a workload that count, in milli-units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsagePerPod {
    pub mean: i64,
    pub counted: usize,
    /// The number of pods whose usage is unknown, or does not count yet.
    pub uncounted: usize,
}

/// How a usage relates to an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is above, whatever the pods use that do not count.
    Above,
    NotAbove,
    /// The pods that do not count decide.
    Unknown,
}

impl UsagePerPod {
    /// The usage of a workload whose pods all count.
    pub const fn of_all(mean: i64, pods: usize) -> Self {
        Self { mean, counted: pods, uncounted: 0 }
    }

    /// Whether all pods count.
    pub const fn is_complete(self) -> bool {
        self.uncounted == 0
    }

    /// The mean of all pods if those that do not count use nothing.
    fn at_least(self) -> f64 {
        let pods = self.counted.saturating_add(self.uncounted);
        self.mean as f64 * self.counted as f64 / (pods as f64).max(1.0)
    }

    /// Compares the usage of each pod, multiplied by a factor, with an amount.
    pub(super) fn compare(self, factor: f64, amount: f64) -> Comparison {
        if self.at_least() * factor > amount {
            Comparison::Above
        } else if self.mean as f64 * factor > amount {
            Comparison::Unknown
        } else {
            Comparison::NotAbove
        }
    }
}

/// The measurements of the last hour in which there were as many replicas as allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentUsage(VecDeque<(Time, i64)>);

impl RecentUsage {
    pub fn add(&mut self, usage: UsagePerPod, now: Time) {
        if let Some((last, _)) = self.0.back() {
            if now < last.later(SAMPLE_INTERVAL) && now >= *last {
                return;
            }
            if now > last.later(MAX_GAP) || now < *last {
                self.0.clear();
            }
        }
        self.0.push_back((now, usage.mean));
        while self.0.front().is_some_and(|(at, _)| at.later(HISTORY) <= now) {
            self.0.pop_front();
        }
    }

    /// The request that the 95th percentile asks for, with the margin of the recommender. `None` if there are too few
    /// measurements to know it.
    pub fn target(&self, now: Time) -> Option<i64> {
        let (first, last) = (self.0.front()?.0, self.0.back()?.0);
        if now < first.later(AT_MAX_FOR) || now > last.later(MAX_GAP) {
            return None;
        }
        let mut usage: Vec<i64> = self.0.iter().map(|(_, usage)| *usage).collect();
        usage.sort_unstable();
        let peak = usage.get(usage.len() * 95 / 100)?;
        Some(scaled(*peak, WITH_MARGIN_PERCENT, 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_secs(1_000_000);
    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn pods_that_do_not_count_may_use_anything() {
        for (counted, uncounted, expected) in
            [(10, 0, Comparison::Above), (9, 1, Comparison::Above), (5, 5, Comparison::Unknown)]
        {
            let usage = UsagePerPod { mean: 400, counted, uncounted };
            assert_eq!(usage.compare(1.0, 350.0), expected, "{usage:?}");
            assert_eq!(usage.compare(1.0, 400.0), Comparison::NotAbove, "{usage:?}");
        }
    }

    fn minutes(count: u32) -> RecentUsage {
        let mut recent = RecentUsage::default();
        for minute in 0..=count {
            let usage = 100 + i64::from(minute % 60);
            recent.add(UsagePerPod::of_all(usage, 3), START.later(minute * MINUTE));
        }
        recent
    }

    #[test]
    fn a_target_needs_measurements_of_the_whole_time_at_the_maximum() {
        assert_eq!(minutes(14).target(START.later(14 * MINUTE)), None);
        // Of few measurements it is the highest: 115.
        assert_eq!(minutes(15).target(START.later(15 * MINUTE)), Some(132));
        assert_eq!(minutes(15).target(START.later(20 * MINUTE)), Some(132));
        assert_eq!(minutes(15).target(START.later(21 * MINUTE)), None, "they are old");
        assert_eq!(RecentUsage::default().target(START), None);
        // Of an hour it is the fourth from the top.
        assert_eq!(minutes(179).target(START.later(179 * MINUTE)), Some(scaled(157, 115, 100)));
    }

    #[test]
    fn a_gap_starts_again_and_a_minute_has_one_measurement() {
        let mut recent = minutes(20);
        let again = START.later(26 * MINUTE);
        recent.add(UsagePerPod::of_all(50, 3), again);
        assert_eq!(recent.0.len(), 1);
        recent.add(UsagePerPod::of_all(900, 3), again.later(MINUTE / 2));
        assert_eq!(recent, RecentUsage([(again, 50)].into()));
        // The clock was set back.
        recent.add(UsagePerPod::of_all(70, 3), START);
        assert_eq!(recent, RecentUsage([(START, 70)].into()));
    }

    #[test]
    fn no_more_than_an_hour_is_kept() {
        assert_eq!(minutes(179).0.len(), 60);
    }
}
