//! The state of a CPU plan: decayed usage by hour of the day, recent usage, daily peaks, and how much was requested for
//! the usage.

use std::time::Duration;

use crate::types::Time;

use super::{
    bucket_weights::BucketWeights,
    buckets::plan_buckets,
    decision::{CpuDecision, CpuOutcome, KeptBecause},
    evaluation, merge,
    settings::CpuPlanSettings,
};

/// Number of hours in a day, each with its own weights.
pub(super) const HOURS: usize = 24;

pub(super) const DAY_NANOS: i64 = 86_400_000_000_000;

/// Weights are rescaled before they grow beyond two to the power of this, and after gaps that are as long.
const HALF_LIVES_BEFORE_RESCALE: f64 = 40.0;

/// The CPU usage of one container, as a plan needs it. All profiles read the same state.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuPlan {
    /// Decayed usage by hour of the UTC day.
    pub(super) hours: BucketWeights<HOURS>,
    /// Usage of about the last half hour.
    pub(super) recent: BucketWeights<1>,
    /// The half-life of `hours` in seconds; 0 before the first sample.
    pub(super) half_life: u32,
    /// The times at which a sample weighs 1.
    pub(super) hours_reference: Time,
    pub(super) recent_reference: Time,
    /// When the first day began.
    pub(super) start: Time,
    /// The current day, counted from `start`.
    pub(super) day: u32,
    /// The bucket of the highest usage of each day, today's first; `None` for a day without samples.
    pub(super) peaks: Vec<Option<u8>>,
    /// The lowest bucket that a sample was ever in.
    pub(super) lowest: Option<u8>,
    /// Decayed sums of requests and of the usage at the same times.
    pub(super) requested: f64,
    pub(super) used: f64,
    pub(super) ratio_at: Time,
    pub(super) last_sample: Option<Time>,
    pub samples: u64,
    /// When the next plan is due; `None` before the first one.
    pub(super) next_plan: Option<Time>,
    /// The last planned request in cores.
    pub target: Option<f64>,
}

impl CpuPlan {
    /// Creates a plan without samples. Days are counted from `start`, which should be the time of the first sample.
    pub fn new(start: Time) -> Self {
        Self {
            hours: BucketWeights::default(),
            recent: BucketWeights::default(),
            half_life: 0,
            hours_reference: start,
            recent_reference: start,
            start,
            day: 0,
            peaks: vec![None],
            lowest: None,
            requested: 0.0,
            used: 0.0,
            ratio_at: start,
            last_sample: None,
            samples: 0,
            next_plan: None,
            target: None,
        }
    }

    /// Starts a plan from the buckets of a decaying histogram: a usage in cores and its weight for each. The usage
    /// counts in every hour of the day. The recent usage stays unknown until samples come.
    ///
    /// The histogram has this number of samples, from `first` to `last`. Later samples weigh as much as if these had
    /// been added to the plan.
    pub fn from_histogram(
        settings: &CpuPlanSettings,
        [first, last]: [Time; 2],
        samples: u64,
        buckets: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let mut plan = Self::new(first);
        let is_valid = |(cores, weight): &(f64, f64)| {
            cores.is_finite() && *cores >= 0.0 && weight.is_finite() && *weight > 0.0
        };
        let buckets: Vec<(f64, f64)> = buckets.into_iter().filter(is_valid).collect();
        let total: f64 = buckets.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            return plan;
        }
        // The decayed weights of one sample a minute never add up to more than this.
        let limit = settings.half_life.as_secs_f64() / 60.0 / std::f64::consts::LN_2;
        let scale = (samples.max(1) as f64).min(limit) / total / HOURS as f64;
        plan.adopt_half_life(settings, first);
        plan.hours_reference = last;
        plan.recent_reference = last;
        plan.ratio_at = last;
        plan.last_sample = Some(last);
        plan.samples = samples;
        plan.day = u32::try_from(last.nanos_since(first).div_euclid(DAY_NANOS)).unwrap_or(0);
        for (cores, weight) in buckets {
            let bucket = plan_buckets().find(cores);
            plan.lowest = Some(plan.lowest.map_or(bucket, |lowest| lowest.min(bucket)));
            plan.peaks[0] = plan.peaks[0].max(Some(bucket));
            for hour in 0..HOURS {
                plan.hours.add(hour, bucket, weight * scale);
            }
        }
        plan
    }

    /// Adds the samples of another plan of the same container. The plan that began earlier keeps its target.
    pub fn merge(&mut self, other: Self, settings: &CpuPlanSettings) {
        if other.last_sample.is_none() || (self.last_sample.is_some() && self.start <= other.start)
        {
            merge::merge_later(self, other, settings);
        } else {
            let later = std::mem::replace(self, other);
            merge::merge_later(self, later, settings);
        }
    }

    /// Adds a usage sample in cores, and the request in force at that time if it is known. Returns whether it was
    /// added: negative and non-finite values are not.
    pub fn add(
        &mut self,
        settings: &CpuPlanSettings,
        at: Time,
        cores: f64,
        request: Option<f64>,
    ) -> bool {
        if !cores.is_finite() || cores < 0.0 {
            return false;
        }
        let bucket = plan_buckets().find(cores);
        self.lowest = Some(self.lowest.map_or(bucket, |lowest| lowest.min(bucket)));
        self.add_peak(settings, at, bucket);
        self.adopt_half_life(settings, at);
        let weight = weight_at(&mut self.hours, &mut self.hours_reference, settings.half_life, at);
        self.hours.add(hour_of_day(at), bucket, weight);
        let half_life = settings.recent_half_life;
        let weight = weight_at(&mut self.recent, &mut self.recent_reference, half_life, at);
        self.recent.add(0, bucket, weight);
        if let Some(request) = request.filter(|request| request.is_finite() && *request >= 0.0) {
            // Samples of several pods may arrive slightly out of order; sums never grow by decay.
            let x = half_lives(at, self.ratio_at, settings.half_life).max(0.0);
            let decay = (-x).exp2();
            self.ratio_at = self.ratio_at.max(at);
            self.requested = self.requested * decay + request;
            self.used = self.used * decay + cores;
        }
        self.last_sample = self.last_sample.max(Some(at));
        self.samples = self.samples.saturating_add(1);
        true
    }

    /// Decides whether to change a request. Plans are made every hour, and at once when much of the recent usage is
    /// above the request.
    pub fn decide(&mut self, settings: &CpuPlanSettings, now: Time, request: f64) -> CpuDecision {
        let kept = |because, alarm| CpuDecision {
            outcome: CpuOutcome::Kept(because),
            request,
            target: request,
            alarm,
            plan: None,
        };
        let Some(range) = self.bucket_range() else {
            return kept(KeptBecause::NoSamples, 0.0);
        };
        let alarm = evaluation::recent_share_above(self, range, request);
        let next_plan = *self.next_plan.get_or_insert(now);
        let is_alarm = alarm > settings.alarm_share;
        if now < next_plan && !is_alarm {
            return kept(KeptBecause::NotDue, alarm);
        }
        self.next_plan = Some(next_due(next_plan, now, settings.plan_interval));
        let plan = evaluation::evaluate(self, settings, range, now, request);
        let stale = self.last_sample.is_none_or(|last| now > last.later(settings.max_sample_age));
        let step = (plan.best - request).abs();
        let outcome = if plan.gain.is_nan() || plan.gain <= plan.price {
            CpuOutcome::Kept(KeptBecause::GainBelowPrice)
        } else if step <= settings.min_step * request {
            CpuOutcome::Kept(KeptBecause::StepTooSmall)
        } else if plan.best < request && stale {
            CpuOutcome::Kept(KeptBecause::NoRecentSamples)
        } else if plan.is_undone_within_the_hour(settings.min_step) && !is_alarm {
            CpuOutcome::Kept(KeptBecause::UndoneWithinTheHour)
        } else {
            CpuOutcome::Changed { out_of_turn: now < next_plan }
        };
        let target = if outcome.is_change() { plan.best } else { request };
        self.target = Some(target);
        CpuDecision { outcome, request, target, alarm, plan: Some(plan) }
    }

    /// Whether the samples cover a day. Before that, the default rule decides.
    pub fn covers_a_day(&self) -> bool {
        self.last_sample.is_some_and(|last| last.nanos_since(self.start) >= DAY_NANOS)
    }

    /// The lowest bucket that a sample was ever in, and that of the highest peak that counts.
    pub(super) fn bucket_range(&self) -> Option<(u8, u8)> {
        let high = self.peaks.iter().copied().flatten().max()?;
        Some((self.lowest?.min(high), high))
    }

    /// Converts the weights if the half-life was changed.
    pub(super) fn adopt_half_life(&mut self, settings: &CpuPlanSettings, now: Time) {
        let seconds = u32::try_from(settings.half_life.as_secs()).unwrap_or(u32::MAX).max(1);
        if self.half_life == seconds {
            return;
        }
        let known = Duration::from_secs(u64::from(self.half_life));
        self.half_life = seconds;
        if self.hours.len() > 0 && !known.is_zero() {
            let x = half_lives(now, self.hours_reference, known);
            self.hours.scale((-x).exp2());
            self.hours_reference = now;
        }
    }

    pub(super) fn add_peak(&mut self, settings: &CpuPlanSettings, at: Time, bucket: u8) {
        let days = (&mut self.start, &mut self.day, &mut self.peaks);
        if let Some(peak) = peak_of_day(days, settings.peak_days(), at) {
            *peak = (*peak).max(Some(bucket));
        }
    }
}

/// The peak of the day of a sample, among those of the last days, today's first. Begins days up to that of the sample.
/// `None` if the day is too long ago to count.
pub(super) fn peak_of_day<'a, T: Clone>(
    (start, today, peaks): (&mut Time, &mut u32, &'a mut Vec<Option<T>>),
    max_days: usize,
    at: Time,
) -> Option<&'a mut Option<T>> {
    if at < *start {
        // An earlier sample of another pod. Days stay where they are and get other numbers.
        let days = start.nanos_since(at).div_euclid(DAY_NANOS) + 1;
        let nanos = start.as_nanos().saturating_sub(days.saturating_mul(DAY_NANOS));
        *start = Time::from_nanos(nanos);
        *today = today.saturating_add(u32::try_from(days).unwrap_or(u32::MAX));
    }
    let day = u32::try_from(at.nanos_since(*start).div_euclid(DAY_NANOS)).unwrap_or(0);
    let begun = day.saturating_sub(*today) as usize;
    if begun > 0 {
        *today = day;
        peaks.splice(..0, std::iter::repeat_n(None, begun.min(max_days)));
    }
    peaks.truncate(max_days);
    let age = (*today - day) as usize;
    if age >= max_days {
        return None;
    }
    if peaks.len() <= age {
        peaks.resize(age + 1, None);
    }
    Some(&mut peaks[age])
}

/// The hour of the UTC day.
pub(super) fn hour_of_day(at: Time) -> usize {
    (at.as_nanos().rem_euclid(DAY_NANOS) / (DAY_NANOS / HOURS as i64)) as usize
}

/// The weight of a sample. Rescales the others first if it would grow too large.
fn weight_at<const SLOTS: usize>(
    weights: &mut BucketWeights<SLOTS>,
    reference: &mut Time,
    half_life: Duration,
    at: Time,
) -> f64 {
    let x = half_lives(at, *reference, half_life);
    if x > HALF_LIVES_BEFORE_RESCALE {
        weights.scale((-x).exp2());
        *reference = at;
        return 1.0;
    }
    x.exp2()
}

pub(super) fn half_lives(at: Time, reference: Time, half_life: Duration) -> f64 {
    at.nanos_since(reference) as f64 / half_life.as_nanos() as f64
}

/// Returns the first time after `now` on the grid of plans.
fn next_due(due: Time, now: Time, interval: Duration) -> Time {
    let interval_nanos = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
    if now < due {
        return due;
    }
    let periods = now.nanos_since(due) / interval_nanos + 1;
    Time::from_nanos(due.as_nanos().saturating_add(periods.saturating_mul(interval_nanos)))
}
