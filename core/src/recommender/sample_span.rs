//! Adds the samples of a time span to a history: as many as a recommender would have taken in that time.

use std::time::Duration;

use crate::{
    history::{SampleBatch, SampleStats},
    types::Time,
};

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest},
    decay_cache::DecayCache,
    memory_window::{MemorySource, SampleRejected, index_or_add},
    model_settings::ModelRules,
};
use crate::types::units::{Bytes, MilliCpu};

/// The maximum number of samples per span: for a day, one per six minutes, in which decay is negligible.
const MAX_SAMPLES_PER_SPAN: f64 = 240.0;

/// A batch of values, and which of them count.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleSpan<'a> {
    /// The values, each for the time that it covers up to its own time.
    pub(super) batch: SampleBatch<'a>,
    /// The time of the last sample of the history that this one continues: earlier samples are already part of it.
    pub(super) known_until: Option<Time>,
    /// When the pod was first observed live.
    pub(super) live_from: Option<Time>,
    /// The latest valid time of a value.
    pub(super) latest: Option<Time>,
    /// How often a recommender takes a sample.
    pub(super) sampling_interval: Duration,
}

/// The fraction of a sample that is not counted yet, because counts are integers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SpanCarry(f64);

#[derive(Clone, Copy, Debug, PartialEq)]
struct SpanSamples {
    at: Time,
    /// Nanoseconds between samples.
    spacing: i64,
    count: i64,
    /// Weight of each sample: less than 1 if the length of the span is not a multiple of the sampling interval.
    weight: f64,
}

impl SampleSpan<'_> {
    /// Checks that a value is valid and was not observed live.
    fn check(&self, at: Time, value: f64) -> Result<(), SampleRejected> {
        if self.latest.is_some_and(|latest| at > latest) {
            return Err(SampleRejected::InFuture);
        }
        if self.live_from.is_some_and(|live| at >= live) {
            return Err(SampleRejected::OutOfOrder);
        }
        if !value.is_finite() || value < 0.0 {
            return Err(SampleRejected::Negative);
        }
        Ok(())
    }

    /// Adds CPU usage of a pod, span by span, and calls `report` with each result. Anything before the last sample of the
    /// pod, or before `known_until`, is already part of the history.
    pub(super) fn add_cpu_to(
        self,
        history: &mut ContainerHistory,
        (carry, decay_cache): (&mut SpanCarry, &mut DecayCache),
        rules: &ModelRules,
        mut report: impl FnMut(Result<(), SampleRejected>),
    ) {
        let (config, mut splitter) = (rules.cpu_histogram_config(), SpanSplitter::for_span(self));
        let mut index = None;
        let mut add = |at, cores| {
            self.check(at, cores)?;
            let index = *index.get_or_insert_with(|| {
                history.adopt_half_lives(at, rules);
                index_or_add(&mut history.replicas, self.batch.replica)
            });
            let replica = &mut history.replicas[index];
            let last = replica.last_cpu.max(self.known_until);
            if last.is_some_and(|last| at <= last) {
                return Err(SampleRejected::OutOfOrder);
            }
            replica.last_cpu = Some(at);
            let (usage, parts) = (MilliCpu::from_measured(cores), splitter.split(at, last));
            for at in parts.times() {
                let weight = CPU_WEIGHT * parts.weight;
                history.add_planned_cpu(at, usage.as_cores(), false, rules);
                history.cpu.add_with_cache(config, usage.as_cores(), weight, at, decay_cache);
            }
            parts.count_into(&mut history.cpu_samples, carry);
            Ok(())
        };
        for &(at, cores) in self.batch.points {
            report(add(at, cores));
        }
    }

    /// Adds memory peaks of a pod, span by span, and calls `report` with each result.
    pub(super) fn add_memory_to(
        self,
        history: &mut ContainerHistory,
        carry: &mut SpanCarry,
        rules: &ModelRules,
        mut report: impl FnMut(Result<(), SampleRejected>),
    ) {
        let mut splitter = SpanSplitter::for_span(self);
        let mut index = None;
        let mut add = |at, bytes| {
            self.check(at, bytes)?;
            let index = *index
                .get_or_insert_with(|| index_or_add(&mut history.replicas, self.batch.replica));
            if self.known_until.is_some_and(|known| at <= known) {
                return Err(SampleRejected::OutOfOrder);
            }
            history.adopt_half_lives(at, rules);
            let (last, stats) = (history.replicas[index].last_memory, history.memory_samples);
            history.add_memory_amount_at(
                index,
                at,
                Bytes::from_f64(bytes),
                MemorySource::Usage,
                rules,
            )?;
            history.memory_samples = stats;
            splitter
                .split(at, last.max(self.known_until))
                .count_into(&mut history.memory_samples, carry);
            Ok(())
        };
        for &(at, bytes) in self.batch.points {
            report(add(at, bytes));
        }
    }
}

/// Splits spans into samples. Each sample is at the end of its part, as a live sample is, because it measures the time
/// before it. Nearly all spans of a batch have the same length.
#[derive(Clone, Copy, Debug)]
struct SpanSplitter {
    covers: Option<Duration>,
    sampling_interval: Duration,
    /// The length of the previous span, and its samples.
    last: (i64, SpanSamples),
}

impl SpanSplitter {
    fn for_span(span: SampleSpan<'_>) -> Self {
        let SampleSpan { batch: SampleBatch { covers, .. }, sampling_interval, .. } = span;
        let point = SpanSamples { at: Time::EPOCH, spacing: 0, count: 1, weight: 1.0 };
        Self {
            covers: covers.filter(|covers| !covers.is_zero()),
            sampling_interval,
            last: (-1, point),
        }
    }

    /// Returns the samples of the part of the span ending `at` that is after `before`.
    fn split(&mut self, at: Time, before: Option<Time>) -> SpanSamples {
        if let Some(covers) = self.covers {
            let start = at.earlier(covers);
            let start = before.map_or(start, |before| start.max(before));
            let length = at.nanos_since(start).max(0);
            if self.last.0 != length {
                self.last = (length, self.samples_for(length));
            }
        }
        SpanSamples { at, ..self.last.1 }
    }

    fn samples_for(&self, length: i64) -> SpanSamples {
        let samples = length as f64 / (self.sampling_interval.as_nanos() as f64).max(1.0);
        let count = samples.ceil().clamp(1.0, MAX_SAMPLES_PER_SPAN);
        let (spacing, weight) = (length / count as i64, samples / count);
        SpanSamples { at: Time::EPOCH, spacing, count: count as i64, weight }
    }
}

impl SpanSamples {
    /// Returns the times of the samples, in ascending order.
    fn times(self) -> impl Iterator<Item = Time> {
        let ago = move |parts: i64| Time::from_nanos(self.at.as_nanos() - parts * self.spacing);
        (0..self.count).rev().map(ago)
    }

    fn first(self) -> Time {
        self.times().next().unwrap_or(self.at)
    }

    /// Adds the samples to the statistics.
    fn count_into(self, stats: &mut SampleStats, carry: &mut SpanCarry) {
        carry.0 += self.weight * self.count as f64;
        // Tolerate rounding errors just below a whole sample.
        let whole = (carry.0 + 1e-6) as i64;
        carry.0 -= whole as f64;
        stats.count = stats.count.saturating_add(whole.unsigned_abs());
        stats.first = earliest(stats.first, Some(self.first()));
        stats.last = stats.last.max(Some(self.at));
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Resource;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn splitter(covers: u64) -> SpanSplitter {
        let batch = SampleBatch {
            replica: &"web-0".into(),
            gauge: Resource::Cpu,
            covers: Some(Duration::from_secs(covers)),
            points: &[],
        };
        SpanSplitter::for_span(SampleSpan {
            batch,
            known_until: None,
            live_from: None,
            latest: None,
            sampling_interval: MINUTE,
        })
    }

    fn split(covers: u64, last: Option<i64>) -> (Vec<i64>, f64) {
        let mut splitter = splitter(covers);
        // An earlier span must not matter.
        splitter.split(Time::from_secs(600), Some(Time::from_secs(590)));
        let samples = splitter.split(Time::from_secs(3600), last.map(Time::from_secs));
        (samples.times().map(Time::as_secs).collect(), samples.weight)
    }

    #[test]
    fn a_span_is_split_into_one_sample_per_minute() {
        assert_eq!(split(60, None), (vec![3600], 1.0));
        assert_eq!(split(300, None), (vec![3360, 3420, 3480, 3540, 3600], 1.0));
        assert_eq!(split(30, None), (vec![3600], 0.5));
        assert_eq!(split(90, None), (vec![3555, 3600], 0.75));
        assert_eq!(split(0, None), (vec![3600], 1.0));
    }

    #[test]
    fn the_known_part_of_a_span_does_not_count_again() {
        assert_eq!(split(300, Some(3300)).0.len(), 5);
        assert_eq!(split(300, Some(3480)), (vec![3540, 3600], 1.0));
        assert_eq!(split(60, Some(3585)), (vec![3600], 0.25));
    }

    #[test]
    fn fractions_of_samples_add_up_to_whole_ones() {
        let (mut stats, mut carry) = (SampleStats::default(), SpanCarry::default());
        let mut splitter = splitter(20);
        for third in 1..=9 {
            splitter.split(Time::from_secs(20 * third), None).count_into(&mut stats, &mut carry);
        }
        assert_eq!(stats.count, 3);
        assert_eq!(stats.last, Some(Time::from_secs(180)));
    }
}
