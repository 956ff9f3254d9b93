//! What reading a history came to, for a log line, for metrics and for whoever wonders.

use std::time::Duration;

use super::slice::Passed;
use crate::prometheus::client::{Tally, merge};

/// Counts of one loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Samples of CPU and memory that were handed on, once for each VPA that wanted them.
    pub samples: u64,
    /// Kills for lack of memory among them.
    pub kills: u64,
    /// What was passed over.
    pub passed: Passed,
    /// Batches whose owners or kills could not be asked about.
    pub unproven: u64,
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
    pub time: Duration,
    /// What the server warned of, each once: some leave out what they cannot reach, and say so here alone.
    pub warnings: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, tally: &Tally) {
        self.queries += tally.queries;
        self.retries += tally.retries;
        self.halvings += tally.halvings;
        self.points += tally.points;
        self.bytes += tally.bytes;
        self.time += tally.time;
        merge(&mut self.warnings, tally.warnings.iter().cloned());
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.kills += other.kills;
        self.passed.add(other.passed);
        self.unproven += other.unproven;
        self.queries += other.queries;
        self.retries += other.retries;
        self.halvings += other.halvings;
        self.points += other.points;
        self.bytes += other.bytes;
        self.time += other.time;
        merge(&mut self.warnings, other.warnings.iter().cloned());
    }
}
