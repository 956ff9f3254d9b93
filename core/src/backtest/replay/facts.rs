//! What is true of a recording whatever the policy: demand, days, and how much of it is known.

use std::collections::BTreeMap;

use super::usage::{self, MINUTES_PER_WINDOW};
use crate::{
    backtest::recording::{
        CPU_STEP_SECONDS, ContainerRecording, Evaluation, MEMORY_STEP_SECONDS, PodContainer,
        WorkloadRecording, amounts_at,
    },
    types::{Time, units::Bytes},
};

pub(super) const DAY_SECONDS: i64 = 86_400;
const MINUTES_PER_DAY: usize = 1_440;
/// A day is judged with samples of half of it.
const NEEDED_MINUTES: u32 = 720;
/// A killed container needed this much more than its limit, as the recommender assumes.
const KILL_FACTOR: f64 = 1.2;
/// The share of the day's means of five minutes that slack is measured from.
const PERCENTILE: f64 = 0.95;

/// What is true of a recording whatever the policy.
pub(crate) struct Facts {
    first_day: i64,
    pub containers: Vec<ContainerFacts>,
    pub(super) missing_minutes: u64,
    pub(super) sampled_minutes: u64,
}

/// What is true of a container.
pub(crate) struct ContainerFacts {
    days: Vec<DayFacts>,
    /// Windows with a kill, by pod and window.
    assumed: BTreeMap<(usize, u32), AssumedDemand>,
    pub(super) has_requests: bool,
    pub(super) is_elastic: bool,
}

/// What a container that was killed in fact needed at least.
#[derive(Clone, Copy, Debug)]
struct AssumedDemand {
    bytes: f64,
    /// The first kill of the window.
    killed_at: Time,
}

/// What a container needed in a window of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowDemand {
    pub bytes: f64,
    /// The peak that was measured; `None` if it was killed before there was a sample.
    pub measured: Option<f64>,
    /// When it was killed in fact; the demand is an assumption then.
    pub killed_at: Option<Time>,
}

/// A day within the evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DayFacts {
    /// Whether enough of it was recorded.
    pub is_judged: bool,
    /// The p95 of the means of five minutes, all pods together.
    pub p95: Option<f64>,
    /// The largest peak of memory.
    pub peak: Option<f64>,
}

impl Facts {
    pub fn new(recording: &WorkloadRecording, evaluation: &Evaluation) -> Self {
        let first_day = recording.from.as_secs().div_euclid(DAY_SECONDS);
        let mut facts =
            Self { first_day, containers: Vec::new(), missing_minutes: 0, sampled_minutes: 0 };
        for (index, container) in recording.containers.iter().enumerate() {
            let found = facts.container(recording, evaluation, index, container);
            facts.containers.push(found);
        }
        facts
    }

    /// The number of a day, from the first of the recording.
    pub fn day_index(&self, at: Time) -> usize {
        (at.as_secs().div_euclid(DAY_SECONDS) - self.first_day).max(0) as usize
    }

    /// The beginning of a day.
    pub(super) fn day_at(&self, index: usize) -> Time {
        Time::from_secs((self.first_day + index as i64) * DAY_SECONDS)
    }

    pub(super) fn unknown_requests(&self) -> u32 {
        self.containers.iter().filter(|container| !container.has_requests).count() as u32
    }

    fn container(
        &mut self,
        recording: &WorkloadRecording,
        evaluation: &Evaluation,
        index: usize,
        container: &ContainerRecording,
    ) -> ContainerFacts {
        let mut days = DayCollector::default();
        let mut assumed = BTreeMap::new();
        for (pod, recorded) in recording.pods.iter().enumerate() {
            let Some(usage) = recorded.containers.get(index) else { continue };
            assume_demand(recording, container, usage, |window, kill| {
                let known: &mut AssumedDemand = assumed.entry((pod, window)).or_insert(kill);
                known.bytes = known.bytes.max(kill.bytes);
            });
            let judged = usage::minutes_of(recording, recorded, evaluation);
            for minute in judged.clone() {
                if usage::cpu_at(usage, minute).is_some() {
                    self.sampled_minutes += 1;
                } else {
                    self.missing_minutes += 1;
                }
            }
            self.collect(recording, usage, pod, judged, &assumed, &mut days);
        }
        ContainerFacts {
            days: days.finish(),
            assumed,
            has_requests: !container.requests.is_empty(),
            is_elastic: container.is_memory_elastic,
        }
    }

    fn collect(
        &self,
        recording: &WorkloadRecording,
        usage: &PodContainer,
        pod: usize,
        minutes: std::ops::Range<u32>,
        assumed: &BTreeMap<(usize, u32), AssumedDemand>,
        days: &mut DayCollector,
    ) {
        let (mut sum, mut count) = (0.0, 0_u32);
        for minute in minutes.clone() {
            let at = usage::time_of(recording, minute);
            let day = self.day_index(at);
            let window = minute / MINUTES_PER_WINDOW;
            if let Some(cores) = usage::cpu_at(usage, minute) {
                sum += f64::from(cores);
                count += 1;
                days.see_minute(
                    day,
                    (at.as_secs().rem_euclid(DAY_SECONDS) / CPU_STEP_SECONDS) as usize,
                );
            }
            let is_last = (minute + 1) % MINUTES_PER_WINDOW == 0 || minute + 1 == minutes.end;
            if is_last && count > 0 {
                days.day(day).means.push(sum / f64::from(count));
                (sum, count) = (0.0, 0);
            }
            let begins = minute % MINUTES_PER_WINDOW == 0 || minute == minutes.start;
            if begins {
                let assumed = assumed.get(&(pod, window)).map(|assumed| assumed.bytes);
                let peak = assumed.or_else(|| usage::memory_at(usage, window).map(f64::from));
                if let Some(peak) = peak {
                    days.see_window(day, at, peak);
                }
            }
        }
    }
}

impl WindowDemand {
    /// This part of it.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let measured = self.measured.map(|bytes| bytes * factor);
        Self { bytes: self.bytes * factor, measured, ..self }
    }
}

impl ContainerFacts {
    /// A day; `None` if nothing of it is within the evaluation.
    pub fn day(&self, index: usize) -> Option<&DayFacts> {
        self.days.get(index)
    }

    /// The demand of memory in a window; `None` without a sample.
    pub(super) fn demand(
        &self,
        usage: &PodContainer,
        pod: usize,
        window: u32,
    ) -> Option<WindowDemand> {
        let measured = usage::memory_at(usage, window).map(f64::from);
        if !self.assumed.is_empty()
            && let Some(AssumedDemand { bytes, killed_at }) = self.assumed.get(&(pod, window))
        {
            return Some(WindowDemand { bytes: *bytes, measured, killed_at: Some(*killed_at) });
        }
        measured.map(|bytes| WindowDemand { bytes, measured, killed_at: None })
    }
}

/// Calls `each` with the windows in which a container was killed, in order of time.
fn assume_demand(
    recording: &WorkloadRecording,
    container: &ContainerRecording,
    usage: &PodContainer,
    mut each: impl FnMut(u32, AssumedDemand),
) {
    for kill in &usage.oom_kills {
        // As a peak, a kill at the end of a window is its own.
        let before = kill.nanos_since(recording.from) - 1;
        let window = before.div_euclid(MEMORY_STEP_SECONDS * 1_000_000_000);
        let Ok(window) = u32::try_from(window) else { continue };
        let used = usage::memory_at(usage, window).map(f64::from);
        let [_, limits] = usage.steps(container);
        let limit = amounts_at(limits, *kill).memory.map(Bytes::as_f64);
        // Without a known limit, what was used is all that is known.
        if let Some(known) = limit.or(used) {
            let bytes = used.unwrap_or_default().max(known * KILL_FACTOR);
            each(window, AssumedDemand { bytes, killed_at: *kill });
        }
    }
}

/// Collects the samples of days.
#[derive(Default)]
struct DayCollector {
    days: Vec<CollectedDay>,
}

#[derive(Clone, Default)]
struct CollectedDay {
    means: Vec<f64>,
    peak: Option<f64>,
    /// Minutes of the day with CPU, and with memory, in any pod.
    cpu_minutes: Vec<bool>,
    memory_minutes: Vec<bool>,
}

impl DayCollector {
    fn day(&mut self, index: usize) -> &mut CollectedDay {
        if self.days.len() <= index {
            self.days.resize(index + 1, CollectedDay::default());
        }
        &mut self.days[index]
    }

    fn see_minute(&mut self, day: usize, minute: usize) {
        let day = self.day(day);
        day.cpu_minutes.resize(MINUTES_PER_DAY, false);
        day.cpu_minutes[minute.min(MINUTES_PER_DAY - 1)] = true;
    }

    fn see_window(&mut self, day: usize, at: Time, peak: f64) {
        let day = self.day(day);
        day.peak = day.peak.into_iter().chain([peak]).reduce(f64::max);
        day.memory_minutes.resize(MINUTES_PER_DAY, false);
        let first = (at.as_secs().rem_euclid(DAY_SECONDS) / CPU_STEP_SECONDS) as usize;
        let end = (first + MINUTES_PER_WINDOW as usize).min(MINUTES_PER_DAY);
        day.memory_minutes[first.min(end)..end].fill(true);
    }

    fn finish(self) -> Vec<DayFacts> {
        let day = |mut day: CollectedDay| {
            let count = |minutes: &[bool]| minutes.iter().filter(|seen| **seen).count() as u32;
            let seen = count(&day.cpu_minutes).max(count(&day.memory_minutes));
            DayFacts { is_judged: seen >= NEEDED_MINUTES, p95: p95(&mut day.means), peak: day.peak }
        };
        self.days.into_iter().map(day).collect()
    }
}

/// The p95 of means of five minutes.
pub(super) fn p95(means: &mut [f64]) -> Option<f64> {
    nearest_rank(means, PERCENTILE)
}

/// The smallest value that at least this share of values does not exceed.
fn nearest_rank(values: &mut [f64], share: f64) -> Option<f64> {
    let rank = (share * values.len() as f64).ceil() as usize;
    let index = rank.max(1).min(values.len()).checked_sub(1)?;
    Some(*values.select_nth_unstable_by(index, f64::total_cmp).1)
}
