//! What a span of time adds to a history: as much as the samples would have that a recommender takes in it.

use std::time::Duration;

use plimsoll_storage::{Observed, Time};

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest, find_or_add},
    settings::Rules,
    window::{Rejected, Source},
};
use crate::units::{Bytes, MilliCpu};

/// No span is cut into more parts: a part of a day is then six minutes, and nothing fades in that time.
const MOST_PARTS: f64 = 240.0;

/// The time that one value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its end.
    pub at: Time,
    /// Its length; `None` for a point, which counts as one sample.
    pub covers: Option<Duration>,
}

/// The parts of samples that are seen but not counted yet: counts are whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Carry(f64);

/// The samples that a span stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parts {
    /// When the last one was taken.
    at: Time,
    /// Nanoseconds from one to the next.
    apart: i64,
    /// How many there are.
    count: i64,
    /// What each is worth: less than one sample where the span holds no whole number of them.
    worth: f64,
}

impl Span {
    /// What of the span lies after `last`, cut into the samples of a recommender that takes one `every` so often.
    /// Each stands at the end of its part, as a live one does: it measured what was before it.
    fn parts(self, last: Option<Time>, every: Duration) -> Parts {
        let one = Parts { at: self.at, apart: 0, count: 1, worth: 1.0 };
        let Some(covers) = self.covers.filter(|covers| !covers.is_zero()) else { return one };
        let start = self.at.earlier(covers);
        let start = last.map_or(start, |last| start.max(last));
        let length = self.at.nanos_since(start).max(0);
        let samples = length as f64 / (every.as_nanos() as f64).max(1.0);
        let count = samples.ceil().clamp(1.0, MOST_PARTS);
        Parts {
            at: self.at,
            apart: length / count as i64,
            count: count as i64,
            worth: samples / count,
        }
    }
}

impl Parts {
    /// When each of them was taken, the earliest first.
    fn times(self) -> impl Iterator<Item = Time> {
        let ago = move |parts: i64| Time::from_nanos(self.at.as_nanos() - parts * self.apart);
        (0..self.count).rev().map(ago)
    }

    fn first(self) -> Time {
        self.times().next().unwrap_or(self.at)
    }

    /// Notes that they were seen.
    fn see(self, seen: &mut Observed, carry: &mut Carry) {
        carry.0 += self.worth * self.count as f64;
        // What is missing to a whole by rounding alone is not missing.
        let whole = (carry.0 + 1e-6).floor();
        carry.0 -= whole;
        seen.count = seen.count.saturating_add(whole as u64);
        seen.first = earliest(seen.first, Some(self.first()));
        seen.last = seen.last.max(Some(self.at));
    }
}

impl ContainerHistory {
    /// Takes what a pod used of the CPU in a span. What lies before the last sample of that pod, or before
    /// `known`, is part of the history already.
    pub(super) fn add_cpu_span(
        &mut self,
        (replica, known): (&str, Option<Time>),
        (span, every): (Span, Duration),
        usage: MilliCpu,
        carry: &mut Carry,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        if usage.0 < 0 {
            return Err(Rejected::Negative);
        }
        self.adopt(span.at, rules);
        let replica = find_or_add(&mut self.replicas, replica);
        let last = replica.last_cpu.max(known);
        if last.is_some_and(|last| span.at <= last) {
            return Err(Rejected::OutOfOrder);
        }
        replica.last_cpu = Some(span.at);
        let parts = span.parts(last, every);
        for at in parts.times() {
            self.cpu.add(rules.cpu_axis(), usage.as_cores(), CPU_WEIGHT * parts.worth, at);
        }
        parts.see(&mut self.cpu_seen, carry);
        Ok(())
    }

    /// Takes the most that a pod used of the memory in a span.
    pub(super) fn add_memory_span(
        &mut self,
        (replica, known): (&str, Option<Time>),
        (span, every): (Span, Duration),
        usage: Bytes,
        carry: &mut Carry,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        let last = find_or_add(&mut self.replicas, replica).last_memory;
        if known.is_some_and(|known| span.at <= known) {
            return Err(Rejected::OutOfOrder);
        }
        let seen = self.memory_seen;
        self.take_memory(replica, span.at, usage, Source::Usage, rules)?;
        self.memory_seen = seen;
        span.parts(last.max(known), every).see(&mut self.memory_seen, carry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn cut(covers: u64, last: Option<i64>) -> (Vec<i64>, f64) {
        let span = Span { at: Time::from_secs(3600), covers: Some(Duration::from_secs(covers)) };
        let parts = span.parts(last.map(Time::from_secs), MINUTE);
        (parts.times().map(Time::as_secs).collect(), parts.worth)
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
        let (mut seen, mut carry) = (Observed::default(), Carry::default());
        for third in 1..=9 {
            let covers = Some(Duration::from_secs(20));
            let span = Span { at: Time::from_secs(20 * third), covers };
            span.parts(None, MINUTE).see(&mut seen, &mut carry);
        }
        assert_eq!(seen.count, 3);
        assert_eq!(seen.last, Some(Time::from_secs(180)));
    }
}
