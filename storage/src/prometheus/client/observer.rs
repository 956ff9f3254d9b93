//! Who wants to know what a client asks: logs, metrics, reports.

use std::{fmt, time::Duration};

use crate::prometheus::{decode::ResponseSummary, query_error::QueryError};

/// One question to the server.
#[derive(Clone, Copy, Debug)]
pub struct CompletedQuery<'a> {
    /// Its path below the server's address.
    pub path: &'a str,
    /// What was asked: `query`, `time`, `start`, `end`, `step`.
    pub parameters: &'a [(&'a str, String)],
    /// The status of the answer; `None` where nobody answered.
    pub status: Option<u16>,
    /// How long it took, without waiting for a turn.
    pub duration: Duration,
    /// What came; of a document that is no query's answer, its size alone.
    pub outcome: Result<&'a ResponseSummary, &'a QueryError>,
}

/// Is told of each question, after it was answered or failed.
pub trait QueryObserver: fmt::Debug + Send + Sync {
    /// One was asked.
    fn on_query(&self, asked: &CompletedQuery<'_>);
}
