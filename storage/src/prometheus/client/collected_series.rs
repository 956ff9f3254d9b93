//! Collects the series of a response, for results that are small.

use std::collections::BTreeMap;

use crate::prometheus::{
    decode::{Interest, Labels, SeriesVisitor},
    selector::Selector,
};
use plimsoll_core::types::Time;

/// Maximum number of collected series: more than a cluster has pods.
const MAX_SERIES: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct SeriesCollector {
    pub series: Vec<CollectedSeries>,
}

#[derive(Clone, Debug, Default)]
pub struct CollectedSeries {
    pub labels: BTreeMap<String, String>,
    pub points: Vec<(Time, f64)>,
}

impl CollectedSeries {
    /// The value of a label, empty if it is missing, as in PromQL.
    pub fn get(&self, label: &str) -> &str {
        self.labels.get(label).map_or("", String::as_str)
    }

    /// The last value.
    pub fn value(&self) -> Option<f64> {
        self.points.last().map(|(_, value)| *value)
    }

    pub fn selector(&self) -> Selector {
        let name = self.get("__name__");
        let selector =
            if name.is_empty() { Selector::any_metric() } else { Selector::metric(name) };
        let labels = self.labels.iter().filter(|(label, _)| *label != "__name__");
        labels.fold(selector, |selector, (label, value)| selector.equals(label, value))
    }
}

impl SeriesVisitor for SeriesCollector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if self.series.len() >= MAX_SERIES {
            return Interest::LabelsOnly;
        }
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.series.push(CollectedSeries { labels: labels.collect(), points: Vec::new() });
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        if let Some(series) = self.series.last_mut() {
            series.points.push((at, value));
        }
    }

    fn discard(&mut self) {
        self.series.clear();
    }
}
