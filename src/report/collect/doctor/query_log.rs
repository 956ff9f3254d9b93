//! Everything that was asked, and what the answers took; and answers that are short enough to be kept.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, PoisonError},
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{self, QueryObserver},
    decode::{Interest, Labels, SeriesVisitor},
};

use crate::report::doctor::report::{Evidence, Range};

/// Writes down what is asked.
#[derive(Debug, Default)]
pub(super) struct QueryLog(Mutex<Vec<Evidence>>);

impl QueryLog {
    /// What was asked since the last time.
    pub(super) fn drain(&self) -> Vec<Evidence> {
        // Nothing is half written in it.
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl QueryObserver for QueryLog {
    fn on_query(&self, asked: &client::CompletedQuery<'_>) {
        let field = |name: &str| {
            asked.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
        };
        let seconds = |name: &str| field(name)?.parse::<f64>().ok();
        let time =
            |name: &str| Some(Time::from_nanos((seconds(name)? * 1e3).round() as i64 * 1_000_000));
        let range = time("start").zip(time("end")).zip(seconds("step"));
        let range = range.map(|((from, to), step_seconds)| Range { from, to, step_seconds });
        let mut evidence = Evidence {
            asked: field("query").unwrap_or(asked.path).to_owned(),
            range,
            millis: u64::try_from(asked.duration.as_millis()).unwrap_or(u64::MAX),
            requests: 1,
            ..Evidence::default()
        };
        match asked.outcome {
            Ok(summary) => {
                evidence.series = summary.series;
                evidence.points = summary.points;
                evidence.bytes = summary.bytes;
            }
            Err(failure) => evidence.error = Some(failure.to_string()),
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(evidence);
    }
}

/// A series of an answer about one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VectorSample {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// All series of an answer about one moment.
#[derive(Debug, Default)]
pub(super) struct InstantVector {
    pub(super) samples: Vec<VectorSample>,
}

impl SeriesVisitor for InstantVector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.samples.push(VectorSample { labels: labels.collect(), value: 0.0 });
        Interest::Points
    }

    fn point(&mut self, _: Time, value: f64) {
        if let Some(group) = self.samples.last_mut() {
            group.value = value;
        }
    }

    fn discard(&mut self) {
        self.samples.clear();
    }
}
