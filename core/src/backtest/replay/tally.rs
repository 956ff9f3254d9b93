//! Adds up what happens to the containers of a workload, day by day.

use super::{
    facts::{Facts, p95},
    held::Held,
    usage::MINUTES_PER_WINDOW,
};
use crate::{
    backtest::account::ContainerDay,
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

const MINUTES_PER_HOUR: f64 = 60.0;
const WINDOWS_PER_HOUR: f64 = MINUTES_PER_HOUR / MINUTES_PER_WINDOW as f64;
const GIB: f64 = 1_073_741_824.0;

/// The sums of the days of each container. Requests are added up as integers, so that sums do not depend on the order.
pub(super) struct Tally {
    /// Whether replicas are modelled, so that what a pod uses is not what was recorded.
    is_modelled: bool,
    containers: Vec<Vec<DaySums>>,
}

#[derive(Clone, Debug, Default)]
struct DaySums {
    cpu_minutes: u64,
    /// Requests, in millicores times minutes.
    cpu_requested: i64,
    used: f64,
    short_minutes: u64,
    short: f64,
    throttled: u64,
    censored: u64,
    uncertain_minutes: u64,
    windows: u64,
    /// Requests, in bytes times windows.
    memory_requested: i128,
    short_windows: u64,
    kills: u32,
    assumed: u64,
    uncertain_windows: u64,
    uncertain_kills: u32,
    left_out: u64,
    evicted: u32,
    resized: u32,
    born_changed: u32,
    /// Means of five minutes of each pod, and the largest peak of memory, if replicas are modelled.
    means: Vec<f64>,
    peak: Option<f64>,
}

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodChange {
    Evicted,
    Resized,
    BornChanged,
}

/// What is known of a window of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowOutcome {
    pub demand: f64,
    pub is_assumed: bool,
    /// Whether the limit is above that of the recording, so that a kill is not sure in an assumed window.
    pub is_limit_raised: bool,
    pub is_killed: bool,
}

impl Tally {
    pub fn new(containers: usize, is_modelled: bool) -> Self {
        Self { is_modelled, containers: vec![Vec::new(); containers] }
    }

    fn day(&mut self, container: usize, day: usize) -> &mut DaySums {
        let days = &mut self.containers[container];
        if days.len() <= day {
            days.resize(day + 1, DaySums::default());
        }
        &mut days[day]
    }

    #[inline]
    pub fn add_minute(
        &mut self,
        container: usize,
        day: usize,
        held: &Held,
        cores: f64,
        is_censored: bool,
    ) {
        let sums = self.day(container, day);
        let request = held.cpu.unwrap_or(MilliCpu(0));
        let excess = cores - request.as_cores();
        sums.cpu_minutes += 1;
        sums.cpu_requested += request.0;
        sums.used += cores;
        if excess > 0.0 {
            sums.short_minutes += 1;
            sums.short += excess;
        }
        sums.throttled += u64::from(held.cpu_limit.is_some_and(|limit| cores >= limit.as_cores()));
        if is_censored {
            sums.censored += 1;
            sums.uncertain_minutes += u64::from(excess <= 0.0);
        }
    }

    /// Adds the mean of the CPU of a pod in a window.
    pub fn add_mean(&mut self, container: usize, day: usize, cores: f64) {
        if self.is_modelled {
            self.day(container, day).means.push(cores);
        }
    }

    pub fn add_window(&mut self, container: usize, day: usize, held: &Held, window: WindowOutcome) {
        let sums = self.day(container, day);
        let request = held.memory.unwrap_or(Bytes(0));
        sums.windows += 1;
        sums.peak = sums.peak.into_iter().chain([window.demand]).reduce(f64::max);
        sums.memory_requested += i128::from(request.0);
        sums.short_windows += u64::from(window.demand > request.as_f64());
        sums.kills += u32::from(window.is_killed);
        sums.assumed += u64::from(window.is_assumed);
        if window.is_assumed && window.is_limit_raised {
            sums.uncertain_windows += 1;
            sums.uncertain_kills += u32::from(window.is_killed);
        }
    }

    pub fn leave_out_window(&mut self, container: usize, day: usize) {
        self.day(container, day).left_out += 1;
    }

    pub fn add_change(&mut self, container: usize, day: usize, change: PodChange) {
        let sums = self.day(container, day);
        match change {
            PodChange::Evicted => sums.evicted += 1,
            PodChange::Resized => sums.resized += 1,
            PodChange::BornChanged => sums.born_changed += 1,
        }
    }

    /// The container-days that are judged, in order of container and day.
    pub fn finish(self, facts: &Facts, leaves_out: impl Fn(usize) -> bool) -> Vec<ContainerDay> {
        let mut days = Vec::new();
        let is_modelled = self.is_modelled;
        for (container, sums) in self.containers.into_iter().enumerate() {
            if leaves_out(container) {
                continue;
            }
            for (index, mut sums) in sums.into_iter().enumerate() {
                let day = facts.containers[container].day(index).filter(|day| day.is_judged);
                if let Some(day) = day {
                    let at = facts.day_at(index);
                    let (p95, peak) = if is_modelled {
                        (p95(&mut sums.means), sums.peak)
                    } else {
                        (day.p95, day.peak)
                    };
                    days.push(sums.finish(container, at, p95, peak));
                }
            }
        }
        days
    }
}

impl DaySums {
    fn finish(
        &self,
        container: usize,
        day: Time,
        p95: Option<f64>,
        peak: Option<f64>,
    ) -> ContainerDay {
        let hours = self.cpu_minutes as f64 / MINUTES_PER_HOUR;
        let cpu_requested = self.cpu_requested as f64 / (1_000.0 * MINUTES_PER_HOUR);
        let memory_hours = self.windows as f64 / WINDOWS_PER_HOUR;
        let memory_requested = self.memory_requested as f64 / (GIB * WINDOWS_PER_HOUR);
        let unused = |requested: f64, needed: f64| (requested - needed).max(0.0);
        ContainerDay {
            container: container as u16,
            day,
            cpu_minutes: self.cpu_minutes,
            memory_windows: self.windows,
            cpu_requested,
            cpu_used: self.used / MINUTES_PER_HOUR,
            cpu_slack: unused(cpu_requested, p95.unwrap_or_default() * hours),
            cpu_short_minutes: self.short_minutes,
            cpu_short: self.short / MINUTES_PER_HOUR,
            throttled_minutes: self.throttled,
            censored_minutes: self.censored,
            memory_requested,
            memory_slack: unused(memory_requested, peak.unwrap_or_default() / GIB * memory_hours),
            memory_short_windows: self.short_windows,
            oom_kills: self.kills,
            assumed_windows: self.assumed,
            uncertain_minutes: self.uncertain_minutes,
            uncertain_windows: self.uncertain_windows,
            uncertain_kills: self.uncertain_kills,
            left_out_windows: self.left_out,
            evicted: self.evicted,
            resized: self.resized,
            born_changed: self.born_changed,
        }
    }
}
