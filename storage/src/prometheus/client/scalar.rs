//! A query for a single number, for autoscalers.

use std::time::Duration;

use super::PrometheusClient;
use crate::prometheus::{
    decode::{Interest, Labels, ResultType, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
};
use plimsoll_core::types::Time;

/// The result of a query for one number. Only `Value` may be used as a number: the others do not mean zero.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarResult {
    /// A number.
    Value {
        /// The number.
        value: f64,
        /// When it was measured.
        at: Time,
    },
    /// The result has no series.
    Empty,
    /// The number is too old.
    Stale {
        /// The number.
        value: f64,
        /// When it was measured.
        at: Time,
    },
    /// NaN, an infinity or a histogram, which cannot be used for scaling.
    NotANumber {
        /// When it was measured.
        at: Time,
    },
    /// The result has this many series instead of one. Only the author of the query knows which one, or whether the sum,
    /// is meant.
    MultipleSeries(u64),
    /// The query failed.
    Error(QueryError),
}

/// Collects the last point of a result, and counts its series.
#[derive(Debug, Default)]
struct SingleSeries {
    series: u64,
    last: Option<(Time, f64)>,
}

impl SeriesVisitor for SingleSeries {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        self.series += 1;
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        self.last = Some((at, value));
    }

    fn discard(&mut self) {
        *self = Self::default();
    }
}

impl PrometheusClient {
    /// Queries one number that is no older than `max_age` at the time `at`.
    ///
    /// How old a number is depends on the query. The samples of a plain selector (`queue_length{queue="mail"}`) have
    /// timestamps, which are queried too; with a window (`…[5m]`) the last sample counts. The server evaluates anything else
    /// at `at`, so the result is never stale: use a short window, so that it becomes empty instead.
    pub async fn scalar(&self, query: &Query, at: Time, max_age: Duration) -> ScalarResult {
        match self.number(query, at).await {
            Err(failure) => ScalarResult::Error(failure),
            Ok(SingleSeries { series: 0, .. }) => ScalarResult::Empty,
            Ok(SingleSeries { series: 1, last: None }) => ScalarResult::NotANumber { at },
            Ok(SingleSeries { series: 1, last: Some((time, value)) }) => {
                if time < at.earlier(max_age) {
                    ScalarResult::Stale { value, at: time }
                } else if value.is_finite() {
                    ScalarResult::Value { value, at: time }
                } else {
                    ScalarResult::NotANumber { at: time }
                }
            }
            Ok(SingleSeries { series, .. }) => ScalarResult::MultipleSeries(series),
        }
    }

    async fn number(&self, query: &Query, at: Time) -> Result<SingleSeries, QueryError> {
        let mut result = SingleSeries::default();
        let (summary, _) = self.instant_with_summary(query, at, &mut result).await?;
        if summary.kind == Some(ResultType::String) {
            return Err(QueryError::BadQuery("the result is a string and not a number".to_owned()));
        }
        if query.is_selector() && result.series == 1 && result.last.is_some() {
            let mut timestamp = SingleSeries::default();
            self.instant_with_summary(&query.timestamps(), at, &mut timestamp).await?;
            if let (1, Some((_, seconds)), Some(last)) =
                (timestamp.series, timestamp.last, &mut result.last)
            {
                last.0 = Time::from_nanos((seconds * 1e9) as i64);
            }
        }
        Ok(result)
    }
}
