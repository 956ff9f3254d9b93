//! Logs all queries with their cost.

use std::mem;

use parking_lot::Mutex;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::{self, QueryObserver};

use crate::report::doctor::report::{Evidence, Range};

#[derive(Debug, Default)]
pub(super) struct QueryLog(Mutex<Vec<Evidence>>);

impl QueryLog {
    pub(super) fn drain(&self) -> Vec<Evidence> {
        mem::take(&mut *self.0.lock())
    }
}

impl QueryObserver for QueryLog {
    fn on_query(&self, query: &client::CompletedQuery<'_>) {
        let field = |name: &str| {
            query.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
        };
        let seconds = |name: &str| field(name)?.parse::<f64>().ok();
        let time =
            |name: &str| Some(Time::from_nanos((seconds(name)? * 1e3).round() as i64 * 1_000_000));
        let range = time("start").zip(time("end")).zip(seconds("step"));
        let range = range.map(|((from, to), step_seconds)| Range { from, to, step_seconds });
        let mut evidence = Evidence {
            asked: field("query").unwrap_or(query.path).to_owned(),
            range,
            millis: u64::try_from(query.duration.as_millis()).unwrap_or(u64::MAX),
            requests: 1,
            ..Evidence::default()
        };
        match query.outcome {
            Ok(summary) => {
                evidence.series = summary.series;
                evidence.points = summary.points;
                evidence.bytes = summary.bytes;
            }
            Err(failure) => evidence.error = Some(failure.to_string()),
        }
        self.0.lock().push(evidence);
    }
}
