//! Range queries, split into parts that the server can handle.

use std::time::Duration;

use super::{PrometheusClient, QueryStats, request};
use crate::prometheus::{
    decode::{ResponseDecoder, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    schema::Dialect,
};
use plimsoll_core::types::Time;

const PATH: &str = "/api/v1/query_range";

/// The evaluation times of a range query: the start, and each step after it up to the end. The end is included if it is
/// a whole number of steps after the start.
///
/// A range query evaluates its expression at each time independently, so splitting a range between two times loses and
/// duplicates nothing, on every release. Releases differ only within an expression: a window `[10m]` includes both ends
/// on Prometheus 2 and is open on the left since 3. That does not depend on where a range is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRange {
    start: Time,
    step: Duration,
    step_count: u64,
}

impl QueryRange {
    /// Creates a range. Times are rounded down to milliseconds, the resolution of Prometheus. The step has to be a positive
    /// number of them.
    pub fn new(start: Time, end: Time, step: Duration) -> Result<Self, QueryError> {
        if step.is_zero() || !step.subsec_nanos().is_multiple_of(1_000_000) {
            let why = format!("invalid step {step:?}: use whole milliseconds");
            return Err(QueryError::BadQuery(why));
        }
        if end < start {
            let why = format!("the range ends ({end}) before it starts ({start})");
            return Err(QueryError::BadQuery(why));
        }
        let start = Time::from_nanos(start.as_nanos().div_euclid(1_000_000) * 1_000_000);
        let length = u128::try_from(end.nanos_since(start)).unwrap_or_default();
        let step_count = u64::try_from(length / step.as_nanos() + 1).unwrap_or(u64::MAX);
        Ok(Self { start, step, step_count })
    }

    /// The number of evaluation times.
    pub fn step_count(&self) -> u64 {
        self.step_count
    }

    /// The evaluation time with this index, from 0.
    pub fn step_time(&self, index: u64) -> Time {
        let steps = u32::try_from(index).unwrap_or(u32::MAX);
        self.start.later(self.step.saturating_mul(steps))
    }
}

/// A range that could not be read to its end. Everything before `resume_at` was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct RangeInterrupted {
    /// The cause.
    pub failure: QueryError,
    /// The first evaluation time that is missing.
    pub resume_at: Time,
}

impl PrometheusClient {
    /// Streams the result of a range query part by part, in order of time, and calls the visitor's `finish` after each part.
    /// A part that is too large or too slow is halved. While the server is busy or unavailable the part is retried, up to
    /// the maximum number of attempts without progress.
    pub async fn range(
        &self,
        query: &Query,
        grid: QueryRange,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<QueryStats, RangeInterrupted> {
        let mut stats = QueryStats::default();
        let mut next = 0;
        let mut max_steps = u64::from(self.limits.max_steps.max(1));
        let mut failures = 0;
        while next < grid.step_count {
            let count = max_steps.min(grid.step_count - next);
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
                    stats.add(summary, time);
                    next += count;
                    failures = 0;
                    continue;
                }
                Err(failure) => failure,
            };
            let can_halve = count > 1;
            if can_halve && matches!(failure, QueryError::TooLarge(_) | QueryError::Timeout(_)) {
                // Keep the smaller size: the rest of the range is probably as dense.
                max_steps = count.div_ceil(2);
                stats.halvings += 1;
                if matches!(failure, QueryError::TooLarge(_)) {
                    tracing::debug!(%failure, steps = max_steps, "splitting range query into smaller parts");
                    continue;
                }
            }
            self.wait_for_retry(&mut failures, failure)
                .await
                .map_err(|failure| RangeInterrupted { failure, resume_at: grid.step_time(next) })?;
            stats.retries += 1;
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_ends_at_the_last_whole_step() {
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
