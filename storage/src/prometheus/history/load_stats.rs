//! Statistics of a history load, for logs and metrics.

use std::time::Duration;

use super::time_slice::SkippedCounts;
use crate::prometheus::client::{QueryStats, merge};

/// Statistics of one load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Emitted samples, counted once for each VPA.
    pub samples: u64,
    /// OOM kills among the samples.
    pub oom_kills: u64,
    /// Skipped series and points.
    pub skipped: SkippedCounts,
    /// Batches whose pod owners or OOM kills could not be queried.
    pub without_owner_info: u64,
    /// Queries that succeeded.
    pub queries: u64,
    /// Queries that were retried.
    pub retries: u64,
    /// Queries that were halved because they were too large or too slow.
    pub halvings: u64,
    /// Points received.
    pub points: u64,
    /// Bytes received, after decompression.
    pub bytes: u64,
    /// Total duration of queries.
    pub query_time: Duration,
    /// Distinct warnings of the server. Some servers omit unreachable data and report that only here.
    pub warnings: Vec<String>,
}

impl LoadStats {
    pub(super) fn add(&mut self, stats: &QueryStats) {
        self.queries += stats.queries;
        self.retries += stats.retries;
        self.halvings += stats.halvings;
        self.points += stats.points;
        self.bytes += stats.bytes;
        self.query_time += stats.time;
        merge(&mut self.warnings, stats.warnings.iter().cloned());
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
