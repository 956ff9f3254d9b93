//! Range queries, split into parts that the server can handle.

use std::time::Duration;

use crate::prometheus::query_error::QueryError;
use plimsoll_core::types::Time;

/// The evaluation times of a range query: the start, and each step after it up to the end. The end is included if it is
/// a whole number of steps after the start.
///
/// A range query evaluates its expression at each time independently, so splitting a range between two times loses and
/// duplicates nothing, on every release. Releases differ only within an expression: a window `[10m]` includes both ends
/// on Prometheus 2 and is open on the left since 3. That does not depend on where a range is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRange {
    start: Time,
    pub(super) step: Duration,
    pub step_count: u64,
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

    /// The evaluation time with this index, from 0.
    pub fn step_time(&self, index: u64) -> Time {
        let steps = u32::try_from(index).unwrap_or(u32::MAX);
        self.start.later(self.step.saturating_mul(steps))
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
            assert_eq!(grid.step_count, moments, "{end}");
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
