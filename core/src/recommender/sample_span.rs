//! What a span of time adds to a history: as much as the samples would have that a recommender takes in it.

use std::time::Duration;

use crate::{
    history::{SampleBatch, SampleStats},
    types::Time,
};

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest, replica_index},
    decay_cache::DecayCache,
    memory_window::{MemorySource, SampleRejected},
    settings::ModelRules,
};
use crate::types::units::{Bytes, MilliCpu};

/// No span is cut into more parts: a part of a day is then six minutes, and nothing fades in that time.
const MAX_SAMPLES_PER_SPAN: f64 = 240.0;

/// A run of values, and what of it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleSpan<'a> {
    /// The values, each for the time that it covers up to its own.
    pub(super) batch: SampleBatch<'a>,
    /// Until when the history that it goes on from was lived: that it has seen.
    pub(super) known_until: Option<Time>,
    /// From when on the pod was seen live.
    pub(super) live_from: Option<Time>,
    /// How late a value may be.
    pub(super) latest: Option<Time>,
    /// How often a recommender takes a sample.
    pub(super) sampling_interval: Duration,
}

/// The parts of samples that are seen but not counted yet: counts are whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SpanCarry(f64);

/// The samples that a span stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SpanSamples {
    /// When the last one was taken.
    at: Time,
    /// Nanoseconds from one to the next.
    spacing: i64,
    /// How many there are.
    count: i64,
    /// What each is worth: less than one sample where the span holds no whole number of them.
    weight: f64,
}

impl SampleSpan<'_> {
    /// Whether a value can be, and was not seen live.
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
}

/// Cuts spans into the samples of a recommender, each at the end of its part, as a live one is: it measured what was
/// before it. Of a course nearly all spans come out the same.
#[derive(Clone, Copy, Debug)]
struct SpanSplitter {
    covers: Option<Duration>,
    sampling_interval: Duration,
    /// The length of the last one, and what came of it.
    last: (i64, SpanSamples),
}

impl SpanSplitter {
    fn for_span(course: SampleSpan<'_>) -> Self {
        let SampleSpan { batch: SampleBatch { covers, .. }, sampling_interval: every, .. } = course;
        let point = SpanSamples { at: Time::EPOCH, spacing: 0, count: 1, weight: 1.0 };
        Self {
            covers: covers.filter(|covers| !covers.is_zero()),
            sampling_interval: every,
            last: (-1, point),
        }
    }

    /// What of the span that ends `at` lies after `before`.
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
        let (apart, worth) = (length / count as i64, samples / count);
        SpanSamples { at: Time::EPOCH, spacing: apart, count: count as i64, weight: worth }
    }
}

impl SpanSamples {
    /// When each of them was taken, the earliest first.
    fn times(self) -> impl Iterator<Item = Time> {
        let ago = move |parts: i64| Time::from_nanos(self.at.as_nanos() - parts * self.spacing);
        (0..self.count).rev().map(ago)
    }

    fn first(self) -> Time {
        self.times().next().unwrap_or(self.at)
    }

    /// Notes that they were seen.
    fn count_into(self, seen: &mut SampleStats, carry: &mut SpanCarry) {
        carry.0 += self.weight * self.count as f64;
        // What is missing to a whole by rounding alone is not missing.
        let whole = (carry.0 + 1e-6) as i64;
        carry.0 -= whole as f64;
        seen.count = seen.count.saturating_add(whole.unsigned_abs());
        seen.first = earliest(seen.first, Some(self.first()));
        seen.last = seen.last.max(Some(self.at));
    }
}

impl ContainerHistory {
    /// Takes what a pod used of the CPU, span by span, and tells of each what became of it. What lies before the last
    /// sample of that pod, or before what is known, is part of the history already.
    pub(super) fn add_cpu_spans(
        &mut self,
        course: SampleSpan<'_>,
        (carry, fading): (&mut SpanCarry, &mut DecayCache),
        rules: &ModelRules,
        mut tell: impl FnMut(Result<(), SampleRejected>),
    ) {
        let (axis, mut cutter) = (rules.cpu_histogram_config(), SpanSplitter::for_span(course));
        let mut place = None;
        let mut take = |at, cores| {
            course.check(at, cores)?;
            let place = *place.get_or_insert_with(|| {
                self.adopt_half_lives(at, rules);
                replica_index(&mut self.replicas, course.batch.replica)
            });
            let replica = &mut self.replicas[place];
            let last = replica.last_cpu.max(course.known_until);
            if last.is_some_and(|last| at <= last) {
                return Err(SampleRejected::OutOfOrder);
            }
            replica.last_cpu = Some(at);
            let (usage, parts) = (MilliCpu::from_measured(cores), cutter.split(at, last));
            for at in parts.times() {
                let weight = CPU_WEIGHT * parts.weight;
                self.cpu.add_with_cache(axis, usage.as_cores(), weight, at, fading);
            }
            parts.count_into(&mut self.cpu_samples, carry);
            Ok(())
        };
        for &(at, cores) in course.batch.points {
            tell(take(at, cores));
        }
    }

    /// Takes the most that a pod used of the memory, span by span, and tells of each what became of it.
    pub(super) fn add_memory_spans(
        &mut self,
        course: SampleSpan<'_>,
        carry: &mut SpanCarry,
        rules: &ModelRules,
        mut tell: impl FnMut(Result<(), SampleRejected>),
    ) {
        let mut cutter = SpanSplitter::for_span(course);
        let mut place = None;
        let mut take = |at, bytes| {
            course.check(at, bytes)?;
            let place = *place
                .get_or_insert_with(|| replica_index(&mut self.replicas, course.batch.replica));
            if course.known_until.is_some_and(|known| at <= known) {
                return Err(SampleRejected::OutOfOrder);
            }
            self.adopt_half_lives(at, rules);
            let (last, seen) = (self.replicas[place].last_memory, self.memory_samples);
            self.add_memory_amount_at(
                place,
                at,
                Bytes::from_f64(bytes),
                MemorySource::Usage,
                rules,
            )?;
            self.memory_samples = seen;
            cutter
                .split(at, last.max(course.known_until))
                .count_into(&mut self.memory_samples, carry);
            Ok(())
        };
        for &(at, bytes) in course.batch.points {
            tell(take(at, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::history::UsageMetric;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn cutter(covers: u64) -> SpanSplitter {
        let run = SampleBatch {
            replica: &"web-0".into(),
            gauge: UsageMetric::Cpu,
            covers: Some(Duration::from_secs(covers)),
            points: &[],
        };
        SpanSplitter::for_span(SampleSpan {
            batch: run,
            known_until: None,
            live_from: None,
            latest: None,
            sampling_interval: MINUTE,
        })
    }

    fn cut(covers: u64, last: Option<i64>) -> (Vec<i64>, f64) {
        let mut cutter = cutter(covers);
        // Whatever was cut before.
        cutter.split(Time::from_secs(600), Some(Time::from_secs(590)));
        let parts = cutter.split(Time::from_secs(3600), last.map(Time::from_secs));
        (parts.times().map(Time::as_secs).collect(), parts.weight)
    }

    #[test]
    fn a_span_is_cut_into_the_samples_of_its_minutes() {
        assert_eq!(cut(60, None), (vec![3600], 1.0));
        assert_eq!(cut(300, None), (vec![3360, 3420, 3480, 3540, 3600], 1.0));
        assert_eq!(cut(30, None), (vec![3600], 0.5));
        assert_eq!(cut(90, None), (vec![3555, 3600], 0.75));
        assert_eq!(cut(0, None), (vec![3600], 1.0));
    }

    #[test]
    fn what_is_known_of_a_span_does_not_count_again() {
        assert_eq!(cut(300, Some(3300)).0.len(), 5);
        assert_eq!(cut(300, Some(3480)), (vec![3540, 3600], 1.0));
        assert_eq!(cut(60, Some(3585)), (vec![3600], 0.25));
    }

    #[test]
    fn fractions_of_samples_add_up_to_whole_ones() {
        let (mut seen, mut carry) = (SampleStats::default(), SpanCarry::default());
        let mut cutter = cutter(20);
        for third in 1..=9 {
            cutter.split(Time::from_secs(20 * third), None).count_into(&mut seen, &mut carry);
        }
        assert_eq!(seen.count, 3);
        assert_eq!(seen.last, Some(Time::from_secs(180)));
    }
}
