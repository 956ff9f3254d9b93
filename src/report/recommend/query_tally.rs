//! Counts the queries to a server, for the report.

use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_storage::prometheus::client::{CompletedQuery, QueryObserver};

/// The queries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryTotals {
    /// Requests, retries included.
    pub queries: u64,
    /// Bytes of responses, after decompression.
    pub bytes: u64,
    /// Bytes of responses as they were transferred.
    pub transferred_bytes: u64,
    /// The time that they took together.
    pub time: Duration,
}

/// Counts queries.
#[derive(Debug, Default)]
pub struct QueryTally(Mutex<QueryTotals>);

impl QueryTally {
    /// The totals so far.
    pub fn totals(&self) -> QueryTotals {
        *self.0.lock()
    }
}

impl QueryObserver for QueryTally {
    fn on_query(&self, query: &CompletedQuery<'_>) {
        let mut totals = self.0.lock();
        totals.queries += 1;
        totals.bytes += query.outcome.map_or(0, |summary| summary.bytes);
        totals.transferred_bytes += query.outcome.map_or(0, |summary| summary.transferred_bytes);
        totals.time += query.duration;
    }
}
