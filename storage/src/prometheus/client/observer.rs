//! Observes the queries of a client, for logs, metrics and reports.

use std::{fmt, time::Duration};

use crate::prometheus::{decode::ResponseSummary, query_error::QueryError};

/// A completed request to the server.
#[derive(Clone, Copy, Debug)]
pub struct CompletedQuery<'a> {
    /// The path below the server's address.
    pub path: &'a str,
    /// The parameters: `query`, `time`, `start`, `end`, `step`.
    pub parameters: &'a [(&'a str, String)],
    /// The HTTP status; `None` without a response.
    pub status: Option<u16>,
    /// How long the request took, without waiting for a permit.
    pub duration: Duration,
    /// The summary of the response. For a document that is not a query result it has only the size.
    pub outcome: Result<&'a ResponseSummary, &'a QueryError>,
}

/// Receives each query after it succeeded or failed.
pub trait QueryObserver: fmt::Debug + Send + Sync {
    /// Called after each query.
    fn on_query(&self, query: &CompletedQuery<'_>);
}
