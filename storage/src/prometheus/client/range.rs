//! What was so over a time, asked in parts that the server can bear.

use std::time::Duration;

use super::{PrometheusClient, QueryStats, backoff, request};
use crate::prometheus::{
    decode::{ResponseDecoder, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    schema::Dialect,
};
use plimsoll_core::types::Time;

const PATH: &str = "/api/v1/query_range";

/// The moments that a range is asked for: the first, and each step after it up to the end, which is one of them if
/// the steps meet it.
///
/// A range query asks its expression at each moment by itself, so a range that is cut between two moments answers
/// the same as a whole one, on every release: none is lost, none is doubled. What differs between releases is inside
/// of an expression: a window `[10m]` has both its edges on Prometheus 2 and is open on the left from 3 on. That
/// depends on the moment alone, and not on where a range is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRange {
    start: Time,
    step: Duration,
    moments: u64,
}

/// Why there is no grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQueryRange {
    /// Less than a millisecond, or no whole ones: Prometheus knows nothing shorter.
    #[error("a range cannot have steps of {0:?}: give whole milliseconds")]
    InvalidStep(Duration),
    /// It ends before it starts.
    #[error("a range cannot end ({end}) before it starts ({start})")]
    EndBeforeStart {
        /// When it should start.
        start: Time,
        /// When it should end.
        end: Time,
    },
}

impl QueryRange {
    /// From one time to another. Times are taken to the millisecond before.
    pub fn new(start: Time, end: Time, step: Duration) -> Result<Self, InvalidQueryRange> {
        if step.is_zero() || !step.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(InvalidQueryRange::InvalidStep(step));
        }
        if end < start {
            return Err(InvalidQueryRange::EndBeforeStart { start, end });
        }
        let start = Time::from_nanos(start.as_nanos().div_euclid(1_000_000) * 1_000_000);
        let length = u128::try_from(end.nanos_since(start)).unwrap_or_default();
        let moments = u64::try_from(length / step.as_nanos() + 1).unwrap_or(u64::MAX);
        Ok(Self { start, step, moments })
    }

    /// How many moments there are.
    pub fn step_count(&self) -> u64 {
        self.moments
    }

    /// One of them, counted from 0.
    pub fn step_time(&self, index: u64) -> Time {
        let steps = u32::try_from(index).unwrap_or(u32::MAX);
        self.start.later(self.step.saturating_mul(steps))
    }
}

/// A range that could not be read to its end. Everything before `next` was, and counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct RangeInterrupted {
    /// Why.
    pub failure: QueryError,
    /// The first moment that is missing: where to go on later.
    pub resume_at: Time,
}

impl PrometheusClient {
    /// Streams what a query answered over a time, part by part, in order of time; the visitor is told to `finish` after
    /// each part. A part that the server or the budget finds too large is halved, one that takes too long too, and
    /// when the server is busy or away it is asked again, until the attempts without any progress are used up.
    pub async fn range<S: SeriesVisitor + ?Sized>(
        &self,
        query: &Query,
        grid: QueryRange,
        visitor: &mut S,
    ) -> Result<QueryStats, RangeInterrupted> {
        let mut tally = QueryStats::default();
        let mut next = 0;
        let mut most = u64::from(self.limits.max_steps.max(1));
        let mut failures = 0;
        while next < grid.moments {
            let count = most.min(grid.moments - next);
            let mut form = vec![
                ("query", query.to_string()),
                ("start", request::time(grid.step_time(next))),
                ("end", request::time(grid.step_time(next + count - 1))),
                ("step", request::seconds(grid.step)),
            ];
            if self.dialect == Dialect::MetricsQl {
                form.push(("nocache", "1".to_owned()));
            }
            let failure = match self.exchange(PATH, &form, ResponseDecoder::new(), visitor).await {
                Ok((summary, time)) => {
                    tally.add(summary, time);
                    next += count;
                    failures = 0;
                    continue;
                }
                Err(failure) => failure,
            };
            let halves = count > 1;
            if halves && matches!(failure, QueryError::TooLarge(_) | QueryError::Timeout(_)) {
                // It stays so for the rest, which is like this part.
                most = count.div_ceil(2);
                tally.halvings += 1;
                if matches!(failure, QueryError::TooLarge(_)) {
                    tracing::debug!(%failure, moments = most, "a range is asked in smaller parts");
                    continue;
                }
            }
            failures += 1;
            if !failure.is_transient() || failures >= self.limits.max_attempts {
                return Err(RangeInterrupted { failure, resume_at: grid.step_time(next) });
            }
            tally.retries += 1;
            let wait = backoff::pause(&self.limits, failures, &failure);
            tracing::debug!(%failure, ?wait, "part of a range is asked again");
            tokio::time::sleep(wait).await;
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_its_ends_where_the_steps_meet_them() {
        let (at, minute) = (Time::from_secs, Duration::from_mins(1));
        for (end, moments) in [(0, 1), (59, 1), (60, 2), (119, 2), (691_200, 11_521)] {
            let grid = QueryRange::new(at(0), at(end), minute).expect("a grid");
            assert_eq!(grid.step_count(), moments, "{end}");
            assert!(grid.step_time(moments - 1) <= at(end) && grid.step_time(moments) > at(end));
        }
        assert!(QueryRange::new(at(1), at(0), minute).is_err());
        for step in [Duration::ZERO, Duration::from_micros(1500)] {
            assert!(QueryRange::new(at(0), at(1), step).is_err());
        }
        let half = QueryRange::new(Time::from_nanos(1_500_000), at(1), minute).expect("a grid");
        assert_eq!(half.step_time(0), Time::from_nanos(1_000_000));
    }
}
