//! Collects the series of a response, each with the labels that a query keeps.

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::decode::{Interest, Labels, SeriesVisitor};

use super::super::timeline::Point;

/// The most series of one response: containers of a pod, or metrics and restrictions of an autoscaler.
pub(super) const MAX_SERIES: usize = 100;

/// A series: the values of the wanted labels, empty where it has none, and its points.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CollectedSeries {
    pub labels: Vec<String>,
    pub points: Vec<Point>,
}

/// Collects series. Points of a part that fails do not count.
#[derive(Debug)]
pub(super) struct Collector {
    wanted: &'static [&'static str],
    series: Vec<CollectedSeries>,
    pending: Vec<CollectedSeries>,
    is_skipping: bool,
}

impl Collector {
    /// Collects series by these labels.
    pub fn new(wanted: &'static [&'static str]) -> Self {
        Self { wanted, series: Vec::new(), pending: Vec::new(), is_skipping: false }
    }

    pub fn into_series(self) -> Vec<CollectedSeries> {
        self.series
    }
}

impl SeriesVisitor for Collector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        self.is_skipping = self.pending.len() >= MAX_SERIES;
        if self.is_skipping {
            return Interest::LabelsOnly;
        }
        let label = |name: &&str| labels.get(name).unwrap_or_default().to_owned();
        let labels = self.wanted.iter().map(label).collect();
        self.pending.push(CollectedSeries { labels, points: Vec::new() });
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        if let Some(series) =
            self.pending.last_mut().filter(|_| !self.is_skipping && value.is_finite())
        {
            series.points.push((at.as_secs(), value));
        }
    }

    fn finish(&mut self) {
        for one in self.pending.drain(..) {
            match self.series.iter_mut().find(|known| known.labels == one.labels) {
                Some(known) => known.points.extend(one.points),
                None => self.series.push(one),
            }
        }
    }

    fn discard(&mut self) {
        self.pending.clear();
    }
}
