//! A client of Prometheus for whoever asks it: queries whose answers are read as streams, and single numbers for
//! autoscalers, under limits that keep both sides well.
//!
//! ```text
//!   range ──▶ parts of at most 11,000 steps ──▶ one query each: permit, time limit, budget ──▶ Transport
//!     ▲ halves what is too large or too slow, waits when the server is busy, and asks again
//! ```
//!
//! Sending and reading are our own and not the crate prometheus-http-query: that holds whole answers, several times
//! over, knows whole seconds only, and keeps the status of an answer to itself that is no JSON.

mod backoff;
mod instant;
mod observer;
mod query_stats;
mod range;
mod request;
mod scalar;
mod series;
mod server_info;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

pub(super) use self::query_stats::merge;
pub use self::{
    observer::{CompletedQuery, QueryObserver},
    query_stats::QueryStats,
    range::{InvalidQueryRange, QueryRange, RangeInterrupted},
    scalar::ScalarResult,
};
use super::{schema::Dialect, transport::Transport};

/// How much may be asked at once, and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Queries that may be under way at once, over all clones of a client. At least 1.
    pub max_in_flight: usize,
    /// The time for one query, the reading of its answer included. The server is told it too.
    pub timeout: Duration,
    /// Steps of one query; Prometheus refuses more than 11,000.
    pub max_steps: u32,
    /// Bytes that one answer may bring, after decompression. A query above it counts as too large. Answers are read as
    /// they arrive, so it bounds time and not memory; no answer that is of use is as long as the default.
    pub max_response_bytes: Option<u64>,
    /// Points that one answer may bring. A query above it counts as too large.
    pub max_response_points: Option<u64>,
    /// How often one query is tried before it has failed. At least 1.
    pub max_attempts: u32,
    /// The pause after a first failure. It doubles with each one more.
    pub initial_backoff: Duration,
    /// The longest pause, whatever the server asks for.
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

/// Asks one server. Clones share its limits.
#[derive(Clone, Debug)]
pub struct PrometheusClient {
    transport: Arc<dyn Transport>,
    limits: QueryLimits,
    permits: Arc<Semaphore>,
    dialect: Dialect,
    /// Whether half an answer is none.
    rejects_partial: bool,
    watch: Option<Arc<dyn QueryObserver>>,
}

impl PrometheusClient {
    /// Asks through this transport.
    pub fn new(transport: Arc<dyn Transport>, limits: QueryLimits) -> Self {
        let permits =
            Arc::new(Semaphore::new(limits.max_in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let dialect = Dialect::default();
        Self { transport, limits, permits, dialect, rejects_partial: false, watch: None }
    }

    /// Asks for ranges as this dialect wants them. VictoriaMetrics moves the start of a range to its own steps, unless it
    /// is told not to by `nocache=1`.
    #[must_use]
    pub fn with_dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Takes an answer for a failure that its server calls partial: for whoever would take it for all that there is, and
    /// never asks again.
    #[must_use]
    pub fn rejecting_partial(mut self) -> Self {
        self.rejects_partial = true;
        self
    }

    /// The same, but each query is tried so often: for whoever asks anew before long anyway.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.limits.max_attempts = attempts;
        self
    }

    /// The same with a limit of its own on queries under way, for questions that must not wait behind a long load.
    #[must_use]
    pub fn with_separate_permits(&self, in_flight: usize) -> Self {
        let in_flight = in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let limits = QueryLimits { max_in_flight: in_flight, ..self.limits };
        Self { limits, permits: Arc::new(Semaphore::new(in_flight)), ..self.clone() }
    }

    /// Tells of each question.
    #[must_use]
    pub fn with_observer(mut self, watch: Arc<dyn QueryObserver>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// The limits.
    pub fn limits(&self) -> &QueryLimits {
        &self.limits
    }
}
