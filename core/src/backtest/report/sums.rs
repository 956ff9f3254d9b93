//! Sums of container-days.

use crate::backtest::{account::ContainerDay, frontier::CountRange};

/// The share of minutes above the request that makes a CPU day bad.
const BAD_DAY_SHARE: f64 = 0.05;
/// Kills that make a day serious.
const SERIOUS_KILLS: u32 = 4;

/// Sums of container-days. They are added in a fixed order, so that the same days give the same bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub days: u64,
    pub cpu_minutes: u64,
    pub memory_windows: u64,
    pub cpu_requested: f64,
    pub cpu_used: f64,
    pub cpu_slack: f64,
    pub cpu_short_minutes: u64,
    pub cpu_short: f64,
    pub throttled_minutes: u64,
    pub memory_requested: f64,
    pub memory_slack: f64,
    pub memory_short_windows: u64,
    pub oom_kills: u64,
    pub oom_days: CountRange,
    pub known_oom_days: u64,
    pub serious_days: u64,
    pub bad_cpu_days: CountRange,
    pub evicted: u64,
    pub resized: u64,
    pub born_changed: u64,
    /// Minutes and windows of five minutes whose demand is unknown, and all of them, in minutes.
    pub unknown_minutes: u64,
    pub all_minutes: u64,
}

/// Whether more than 5 % of the minutes of a day were short.
pub(super) fn is_bad(short_minutes: u64, minutes: u64) -> bool {
    short_minutes as f64 > BAD_DAY_SHARE * minutes as f64
}

impl Sums {
    pub fn add(&mut self, day: &ContainerDay) {
        self.days += 1;
        self.cpu_minutes += day.cpu_minutes;
        self.memory_windows += day.memory_windows;
        self.cpu_requested += day.cpu_requested;
        self.cpu_used += day.cpu_used;
        self.cpu_slack += day.cpu_slack;
        self.cpu_short_minutes += day.cpu_short_minutes;
        self.cpu_short += day.cpu_short;
        self.throttled_minutes += day.throttled_minutes;
        self.memory_requested += day.memory_requested;
        self.memory_slack += day.memory_slack;
        self.memory_short_windows += day.memory_short_windows;
        self.oom_kills += u64::from(day.oom_kills);
        self.oom_days.lower += u64::from(day.oom_kills > day.uncertain_kills);
        self.oom_days.upper += u64::from(day.oom_kills > 0 || day.uncertain_windows > 0);
        self.known_oom_days += u64::from(day.oom_kills > 0);
        self.serious_days += u64::from(day.oom_kills >= SERIOUS_KILLS);
        let most = day.cpu_short_minutes + day.uncertain_minutes;
        self.bad_cpu_days.lower += u64::from(is_bad(day.cpu_short_minutes, day.cpu_minutes));
        self.bad_cpu_days.upper += u64::from(is_bad(most, day.cpu_minutes));
        self.evicted += u64::from(day.evicted);
        self.resized += u64::from(day.resized);
        self.born_changed += u64::from(day.born_changed);
        self.unknown_minutes +=
            day.censored_minutes + 5 * (day.assumed_windows + day.left_out_windows);
        self.all_minutes += day.cpu_minutes + 5 * (day.memory_windows + day.left_out_windows);
    }

    pub fn of<'a>(days: impl IntoIterator<Item = &'a ContainerDay>) -> Self {
        let mut sums = Self::default();
        days.into_iter().for_each(|day| sums.add(day));
        sums
    }

    /// Changed pods.
    pub fn changes(&self) -> u64 {
        self.evicted + self.resized + self.born_changed
    }
}

/// A part of a whole; `None` if there is no whole.
pub(super) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
