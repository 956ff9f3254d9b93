//! What reading a history came to, for a log line, for metrics and for whoever wonders.

use std::time::Duration;

use super::time_slice::SkippedCounts;
use crate::prometheus::client::{QueryStats, merge};

/// Counts of one loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Samples of CPU and memory that were handed on, once for each VPA that wanted them.
    pub samples: u64,
    /// Kills for lack of memory among them.
    pub oom_kills: u64,
    /// What was passed over.
    pub skipped: SkippedCounts,
    /// Batches whose owners or kills could not be asked about.
    pub without_owner_info: u64,
    /// Queries that were answered.
    pub queries: u64,
    /// Queries that were asked again.
    pub retries: u64,
    /// Queries that were too large or too slow.
    pub halvings: u64,
    /// Points that came.
    pub points: u64,
    /// Bytes that came, after decompression.
    pub bytes: u64,
    /// Time of queries under way, added up.
    pub query_time: Duration,
    /// What the server warned of, each once: some leave out what they cannot reach, and say so here alone.
    pub warnings: Vec<String>,
}

impl LoadStats {
    pub(super) fn add(&mut self, tally: &QueryStats) {
        self.queries += tally.queries;
        self.retries += tally.retries;
        self.halvings += tally.halvings;
        self.points += tally.points;
        self.bytes += tally.bytes;
        self.query_time += tally.time;
        merge(&mut self.warnings, tally.warnings.iter().cloned());
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.oom_kills += other.oom_kills;
        self.skipped.add(other.skipped);
        self.without_owner_info += other.without_owner_info;
        self.queries += other.queries;
        self.retries += other.retries;
        self.halvings += other.halvings;
        self.points += other.points;
        self.bytes += other.bytes;
        self.query_time += other.query_time;
        merge(&mut self.warnings, other.warnings.iter().cloned());
    }
}
