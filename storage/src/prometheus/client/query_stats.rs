//! What reading took, over all the queries that it was split into.

use std::time::Duration;

use crate::prometheus::decode::ResponseSummary;

/// What it took to read a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryStats {
    /// Queries that were answered.
    pub queries: u64,
    /// Queries that failed and were asked again.
    pub retries: u64,
    /// How often a query was too large or too slow and was halved.
    pub halvings: u64,
    /// Series, counted in each query by itself.
    pub series: u64,
    /// Points that were handed out.
    pub points: u64,
    /// Native histograms that were passed over.
    pub histograms: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Time under way, waiting excluded.
    pub time: Duration,
    /// What the server warns of, each once.
    pub warnings: Vec<String>,
    /// What the server remarks, each once.
    pub infos: Vec<String>,
}

impl QueryStats {
    pub(super) fn add(&mut self, summary: ResponseSummary, time: Duration) {
        let ResponseSummary { series, points, histograms, bytes, warnings, infos, .. } = summary;
        self.queries += 1;
        self.series += series;
        self.points += points;
        self.histograms += histograms;
        self.bytes += bytes;
        self.time += time;
        merge(&mut self.warnings, warnings);
        merge(&mut self.infos, infos);
    }
}

/// Adds what is not among them yet.
pub(in crate::prometheus) fn merge(
    into: &mut Vec<String>,
    notes: impl IntoIterator<Item = String>,
) {
    // A range of many parts repeats them, perhaps with other numbers in them.
    const MOST: usize = 20;
    for note in notes {
        if into.len() < MOST && !into.contains(&note) {
            into.push(note);
        }
    }
}
