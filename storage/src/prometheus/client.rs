//! A Prometheus client: queries with streamed responses, under limits that protect both sides.
//!
//! ```text
//!   range ──▶ parts of at most 11,000 steps ──▶ one query each: permit, timeout, budget ──▶ Transport
//!     ▲ halves parts that are too large or too slow; backs off and retries when the server is busy
//! ```
//!
//! The crate prometheus-http-query is not used. Its requests cannot go through a [`Transport`], and it reads responses
//! without a limit. Its types reject what servers return: strings, histograms, the build information of every server but
//! Prometheus, and a retention by size; and they ignore that a response is partial.

mod queries;
mod query_stats;
mod range;
mod request;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

pub use self::{
    queries::CollectedSeries,
    query_stats::QueryStats,
    range::{QueryRange, RangeInterrupted},
};
use super::{
    decode::ResponseSummary, query_error::QueryError, schema::Dialect, transport::Transport,
};

/// Limits of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Maximum number of concurrent queries over all clones of a client. At least 1.
    pub max_in_flight: usize,
    /// Timeout of one query, including reading the response. It is sent to the server too.
    pub timeout: Duration,
    /// Maximum number of steps of one query. Prometheus rejects more than 11,000.
    pub max_steps: u32,
    /// Maximum size of a response in bytes, after decompression. A query above it counts as too large. Responses are
    /// streamed, so this bounds time and not memory. No useful response is as long as the default.
    pub max_response_bytes: Option<u64>,
    /// Maximum number of points in a response. A query above it counts as too large.
    pub max_response_points: Option<u64>,
    /// Maximum number of attempts of one query. At least 1.
    pub max_attempts: u32,
    /// Backoff after the first failure. It doubles with each further failure.
    pub initial_backoff: Duration,
    /// Maximum backoff, even if the server asks for more.
    pub max_backoff: Duration,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            max_in_flight: 2,
            timeout: Duration::from_mins(2),
            max_steps: 11_000,
            max_response_bytes: Some(512 << 20),
            max_response_points: Some(20_000_000),
            max_attempts: 6,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_mins(1),
        }
    }
}

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

/// A client of one server. Clones share its limits.
#[derive(Clone, Debug)]
pub struct PrometheusClient {
    transport: Arc<dyn Transport>,
    limits: QueryLimits,
    permits: Arc<Semaphore>,
    dialect: Dialect,
    /// Whether a partial response is an error.
    rejects_partial: bool,
    observer: Option<Arc<dyn QueryObserver>>,
}

impl PrometheusClient {
    /// Creates a client that sends its requests through this transport.
    pub fn new(transport: Arc<dyn Transport>, limits: QueryLimits) -> Self {
        let permits =
            Arc::new(Semaphore::new(limits.max_in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let dialect = Dialect::default();
        Self { transport, limits, permits, dialect, rejects_partial: false, observer: None }
    }

    /// Sends range queries in this dialect. VictoriaMetrics aligns the start of a range to its own steps unless a query
    /// has `nocache=1`.
    #[must_use]
    pub fn with_dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Treats a partial response as a failure, for callers that would otherwise take it as complete and never retry.
    #[must_use]
    pub fn rejecting_partial(mut self) -> Self {
        self.rejects_partial = true;
        self
    }

    /// Sets the number of attempts of a query. Use few if the caller queries again soon anyway.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.limits.max_attempts = attempts;
        self
    }

    /// Returns a client with a separate limit on concurrent queries, for queries that must not wait behind a long load.
    #[must_use]
    pub fn with_separate_permits(&self, max_in_flight: usize) -> Self {
        let max_in_flight = max_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let limits = QueryLimits { max_in_flight, ..self.limits };
        Self { limits, permits: Arc::new(Semaphore::new(max_in_flight)), ..self.clone() }
    }

    /// Reports every completed query to this observer.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn QueryObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Returns the limits of queries.
    pub fn limits(&self) -> &QueryLimits {
        &self.limits
    }
}
