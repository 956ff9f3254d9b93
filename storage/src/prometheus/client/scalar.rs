//! One number for an autoscaler, or why there is none.

use std::time::Duration;

use super::PrometheusClient;
use crate::prometheus::{
    decode::{Interest, Labels, ResultType, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
};
use plimsoll_core::types::Time;

/// What a query for one number came to. None of the others is zero.
#[derive(Clone, Debug, PartialEq)]
pub enum ScalarResult {
    /// A number.
    Value {
        /// The number.
        value: f64,
        /// When it was so.
        at: Time,
    },
    /// The answer has no series.
    Empty,
    /// There is a number, and it is too old.
    Stale {
        /// The number.
        value: f64,
        /// When it was so.
        at: Time,
    },
    /// NaN, an infinity or a histogram: nothing to scale by.
    NotANumber {
        /// When it was so.
        at: Time,
    },
    /// So many series where there should be one. Which of them is meant, or whether their sum is, only the author of the
    /// query knows.
    MultipleSeries(u64),
    /// There is no answer.
    Error(QueryError),
}

/// The only series of an answer, if it is.
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
    /// One number, no older than `oldest` at the moment `at`.
    ///
    /// How old a number is depends on the query. One selector (`queue_length{queue="mail"}`) has samples with times of
    /// their own, which are asked about too; with a window (`…[5m]`) the last sample counts. Anything else is worked
    /// out by the server at `at` from whatever it finds, so it is never stale: let it come out empty instead, by a
    /// short window.
    pub async fn scalar(&self, query: &Query, at: Time, oldest: Duration) -> ScalarResult {
        match self.number(query, at).await {
            Err(failure) => ScalarResult::Error(failure),
            Ok(SingleSeries { series: 0, .. }) => ScalarResult::Empty,
            Ok(SingleSeries { series: 1, last: None }) => ScalarResult::NotANumber { at },
            Ok(SingleSeries { series: 1, last: Some((time, value)) }) => {
                if time < at.earlier(oldest) {
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
        let mut lone = SingleSeries::default();
        let (summary, _) = self.instant_with_summary(query, at, &mut lone).await?;
        if summary.kind == Some(ResultType::String) {
            return Err(QueryError::BadQuery("it answers a text, and no number".to_owned()));
        }
        if query.is_selector() && lone.series == 1 && lone.last.is_some() {
            let mut own = SingleSeries::default();
            self.instant_with_summary(&query.timestamps(), at, &mut own).await?;
            if let (1, Some((_, seconds)), Some(last)) = (own.series, own.last, &mut lone.last) {
                last.0 = Time::from_nanos((seconds * 1e9) as i64);
            }
        }
        Ok(lone)
    }
}
