//! The memory rule: the highest usage of today and of the days before, with a margin. Amounts are in bytes.

use crate::types::Time;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    cpu_plan::{DAY_NANOS, peak_of_day},
    merge::end_of_day,
    settings::PeakWindowSettings,
};

/// The memory peaks of one container across all its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct PeakWindow {
    /// When the first day began.
    pub(super) start: Time,
    /// The current day, counted from `start`.
    pub(super) day: u32,
    /// The highest usage of each day, today's first; `None` for a day without samples.
    pub(super) peaks: Vec<Option<f64>>,
    /// Time of the last change of the request.
    pub(super) last_change: Time,
    pub(super) last_sample: Option<Time>,
    /// The last OOM kill: its time and the request after it.
    pub(super) last_oom: Option<(Time, f64)>,
    pub target: Option<f64>,
}

/// The decision on a memory request, in bytes.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryDecision {
    pub outcome: MemoryOutcome,
    /// The request in force.
    pub request: f64,
    /// The request from now on.
    pub target: f64,
    /// The highest usage that counts.
    pub peak: f64,
    /// When the day of that usage began.
    pub peak_day: Time,
    /// Number of complete days that count besides today.
    pub days: u32,
    /// Fraction that is added to the highest usage.
    pub margin: f64,
    /// The request for the highest usage.
    pub wanted: f64,
    /// The last OOM kill whose request is still the highest usage: its time.
    pub oom_at: Option<Time>,
}

/// Whether a memory request is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryOutcome {
    Raised,
    Lowered,
    CloseEnough,
    /// The request would be lowered, but the last change is too recent.
    RecentlyChanged,
    /// The request would be lowered, but there are no recent samples.
    NoRecentSamples,
}

impl PeakWindow {
    /// Creates a window without samples. Days are counted from `start`.
    pub fn new(start: Time) -> Self {
        Self {
            start,
            day: 0,
            peaks: vec![None],
            last_change: Time::from_nanos(start.as_nanos().saturating_add(DAY_NANOS)),
            last_sample: None,
            last_oom: None,
            target: None,
        }
    }

    /// Adds a usage sample. Returns whether it was added: negative and non-finite values are not.
    pub fn add(&mut self, settings: &PeakWindowSettings, at: Time, bytes: f64) -> bool {
        if !bytes.is_finite() || bytes < 0.0 {
            return false;
        }
        self.add_peak(settings, at, bytes);
        self.last_sample = self.last_sample.max(Some(at));
        true
    }

    /// Adds an OOM kill at a request. Returns the request from now on, which today's peak keeps.
    pub fn add_oom(&mut self, settings: &PeakWindowSettings, at: Time, request: f64) -> f64 {
        let raised = request * settings.oom_ratio;
        if !raised.is_finite() || request < 0.0 {
            return request;
        }
        self.add_peak(settings, at, raised / (1.0 + settings.margin));
        self.last_change = self.last_change.max(at);
        if self.last_oom.is_none_or(|(last, _)| at >= last) {
            self.last_oom = Some((at, raised));
        }
        self.target = Some(self.target.map_or(raised, |target| target.max(raised)));
        raised
    }

    /// Decides whether to change a request. `None` without samples.
    pub fn decide(
        &mut self,
        settings: &PeakWindowSettings,
        now: Time,
        request: f64,
    ) -> Option<MemoryDecision> {
        let (age, peak) = self
            .peaks
            .iter()
            .enumerate()
            .filter_map(|(age, peak)| peak.map(|peak| (age, peak)))
            .reduce(|highest, other| if other.1 > highest.1 { other } else { highest })?;
        let wanted = (peak * (1.0 + settings.margin)).max(settings.floor_bytes);
        let delay = i64::try_from(settings.lower_delay.as_nanos()).unwrap_or(i64::MAX);
        let outcome = if wanted > request * (1.0 + settings.raise_above) {
            MemoryOutcome::Raised
        } else if wanted >= request * (1.0 - settings.lower_below) {
            MemoryOutcome::CloseEnough
        } else if now.nanos_since(self.last_change) < delay {
            MemoryOutcome::RecentlyChanged
        } else if self.last_sample.is_none_or(|last| now > last.later(settings.max_sample_age)) {
            MemoryOutcome::NoRecentSamples
        } else {
            MemoryOutcome::Lowered
        };
        let target = match outcome {
            MemoryOutcome::Raised | MemoryOutcome::Lowered => {
                self.last_change = now;
                wanted
            }
            _ => request,
        };
        self.target = Some(target);
        let day = i64::from(self.day) - age as i64;
        let is_of_oom = |(_, raised): &(Time, f64)| *raised >= wanted;
        Some(MemoryDecision {
            outcome,
            request,
            target,
            peak,
            peak_day: Time::from_nanos(
                self.start.as_nanos().saturating_add(day.saturating_mul(DAY_NANOS)),
            ),
            days: settings.days,
            margin: settings.margin,
            wanted,
            oom_at: self.last_oom.filter(is_of_oom).map(|(at, _)| at),
        })
    }

    /// Adds the peaks of another window of the same container. The window that began earlier keeps its target.
    pub fn merge(&mut self, mut other: Self, settings: &PeakWindowSettings) {
        let swaps = self.last_sample.is_none() || other.start < self.start;
        if swaps && other.last_sample.is_some() {
            std::mem::swap(self, &mut other);
        }
        let Some(last) = other.last_sample else { return };
        for (age, peak) in other.peaks.iter().enumerate().rev() {
            if let Some(peak) = peak {
                let end = end_of_day(other.start, i64::from(other.day) - age as i64);
                self.add_peak(settings, end.min(last), *peak);
            }
        }
        self.last_sample = self.last_sample.max(Some(last));
        self.last_change = self.last_change.max(other.last_change);
        self.last_oom = match (self.last_oom, other.last_oom) {
            (Some(ours), Some(theirs)) if theirs.0 > ours.0 => Some(theirs),
            (ours, theirs) => ours.or(theirs),
        };
        self.target = self.target.or(other.target);
    }

    /// Whether the samples cover a day. Before that, the default rule decides.
    pub fn covers_a_day(&self) -> bool {
        self.last_sample.is_some_and(|last| last.nanos_since(self.start) >= DAY_NANOS)
    }

    fn add_peak(&mut self, settings: &PeakWindowSettings, at: Time, bytes: f64) {
        let max_days = settings.days.min(PeakWindowSettings::MAX_DAYS) as usize + 1;
        let days = (&mut self.start, &mut self.day, &mut self.peaks);
        if let Some(peak) = peak_of_day(days, max_days, at) {
            *peak = Some(peak.map_or(bytes, |peak| peak.max(bytes)));
        }
    }
}
