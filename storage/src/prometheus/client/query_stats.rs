//! Statistics of reading a result, over all the queries that it was split into.

use std::time::Duration;

use crate::prometheus::decode::ResponseSummary;

const MAX_WARNINGS: usize = 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    pub queries: u64,
    /// Queries that failed and were retried.
    pub retries: u64,
    /// How often a query was halved because it was too large or too slow.
    pub halvings: u64,
    /// Series. One in several queries counts several times.
    pub series: u64,
    pub points: u64,
    /// Native histograms that were skipped.
    pub histograms: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Duration of the queries, without waiting for permits.
    pub time: Duration,
    /// Distinct warnings of the server.
    pub warnings: Vec<String>,
}

impl QueryStats {
    pub(super) fn add(&mut self, summary: ResponseSummary, time: Duration) {
        let ResponseSummary { series, points, histograms, bytes, warnings, .. } = summary;
        self.merge(Self {
            queries: 1,
            series,
            points,
            histograms,
            bytes,
            time,
            warnings,
            ..Self::default()
        });
    }

    pub(in crate::prometheus) fn merge(&mut self, other: Self) {
        self.queries += other.queries;
        self.retries += other.retries;
        self.halvings += other.halvings;
        self.series += other.series;
        self.points += other.points;
        self.histograms += other.histograms;
        self.bytes += other.bytes;
        self.time += other.time;
        // The parts of a range repeat warnings, perhaps with other numbers in them.
        for warning in other.warnings {
            if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}
