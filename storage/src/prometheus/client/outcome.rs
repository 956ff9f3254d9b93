//! One number for an autoscaler, or why there is none.

use std::time::Duration;

use super::Client;
use crate::prometheus::{
    answer::{Kind, Labels, Series, Wants},
    failure::Failure,
    query::Query,
};
use plimsoll_core::types::Time;

/// What a query for one number came to. None of the others is zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
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
    Several(u64),
    /// There is no answer.
    Error(Failure),
}

/// The only series of an answer, if it is.
#[derive(Debug, Default)]
struct Lone {
    series: u64,
    last: Option<(Time, f64)>,
}

impl Series for Lone {
    fn begin(&mut self, _: Labels<'_>) -> Wants {
        self.series += 1;
        Wants::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        self.last = Some((at, value));
    }

    fn discard(&mut self) {
        *self = Self::default();
    }
}

impl Client {
    /// One number, no older than `oldest` at the moment `at`.
    ///
    /// How old a number is depends on the query. One selector (`queue_length{queue="mail"}`) has samples with times of
    /// their own, which are asked about too; with a window (`…[5m]`) the last sample counts. Anything else is worked
    /// out by the server at `at` from whatever it finds, so it is never stale: let it come out empty instead, by a
    /// short window.
    pub async fn value(&self, query: &Query, at: Time, oldest: Duration) -> Outcome {
        match self.number(query, at).await {
            Err(failure) => Outcome::Error(failure),
            Ok(Lone { series: 0, .. }) => Outcome::Empty,
            Ok(Lone { series: 1, last: None }) => Outcome::NotANumber { at },
            Ok(Lone { series: 1, last: Some((time, value)) }) => {
                if time < at.earlier(oldest) {
                    Outcome::Stale { value, at: time }
                } else if value.is_finite() {
                    Outcome::Value { value, at: time }
                } else {
                    Outcome::NotANumber { at: time }
                }
            }
            Ok(Lone { series, .. }) => Outcome::Several(series),
        }
    }

    async fn number(&self, query: &Query, at: Time) -> Result<Lone, Failure> {
        let mut lone = Lone::default();
        let (summary, _) = self.answer(query, at, &mut lone).await?;
        if summary.kind == Some(Kind::String) {
            return Err(Failure::BadQuery("it answers a text, and no number".to_owned()));
        }
        if query.is_bare() && lone.series == 1 && lone.last.is_some() {
            let mut own = Lone::default();
            self.answer(&query.times(), at, &mut own).await?;
            if let (1, Some((_, seconds)), Some(last)) = (own.series, own.last, &mut lone.last) {
                last.0 = Time::from_nanos((seconds * 1e9) as i64);
            }
        }
        Ok(lone)
    }
}
