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

mod document;
mod exchange;
mod instant;
mod outcome;
mod pace;
mod range;
mod series;
mod tally;
mod watch;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

pub(super) use self::tally::merge;
pub use self::{
    outcome::Outcome,
    range::{Grid, Interrupted, NoGrid},
    tally::Tally,
    watch::{Asked, Watch},
};
use super::{door::Transport, schema::Dialect};

/// How much may be asked at once, and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queries that may be under way at once, over all clones of a client. At least 1.
    pub in_flight: usize,
    /// The time for one query, the reading of its answer included. The server is told it too.
    pub timeout: Duration,
    /// Steps of one query; Prometheus refuses more than 11,000.
    pub steps: u32,
    /// Bytes that one answer may bring, after decompression. A query above it counts as too large. Answers are read as
    /// they arrive, so it bounds time and not memory; no answer that is of use is as long as the default.
    pub answer_bytes: Option<u64>,
    /// Points that one answer may bring. A query above it counts as too large.
    pub answer_points: Option<u64>,
    /// How often one query is tried before it has failed. At least 1.
    pub attempts: u32,
    /// The pause after a first failure. It doubles with each one more.
    pub first_pause: Duration,
    /// The longest pause, whatever the server asks for.
    pub longest_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: 2,
            timeout: Duration::from_mins(2),
            steps: 11_000,
            answer_bytes: Some(512 << 20),
            answer_points: Some(20_000_000),
            attempts: 6,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_mins(1),
        }
    }
}

/// Asks one server. Clones share its limits.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Arc<dyn Transport>,
    limits: Limits,
    permits: Arc<Semaphore>,
    dialect: Dialect,
    /// Whether half an answer is none.
    insists: bool,
    watch: Option<Arc<dyn Watch>>,
}

impl Client {
    /// Asks through this transport.
    pub fn new(transport: Arc<dyn Transport>, limits: Limits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let dialect = Dialect::default();
        Self { transport, limits, permits, dialect, insists: false, watch: None }
    }

    /// Asks for ranges as this dialect wants them. VictoriaMetrics moves the start of a range to its own steps, unless it
    /// is told not to by `nocache=1`.
    #[must_use]
    pub fn speaking(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Takes an answer for a failure that its server calls partial: for whoever would take it for all that there is, and
    /// never asks again.
    #[must_use]
    pub fn insisting(mut self) -> Self {
        self.insists = true;
        self
    }

    /// The same, but each query is tried so often: for whoever asks anew before long anyway.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.limits.attempts = attempts;
        self
    }

    /// The same with a limit of its own on queries under way, for questions that must not wait behind a long load.
    #[must_use]
    pub fn beside(&self, in_flight: usize) -> Self {
        let in_flight = in_flight.clamp(1, Semaphore::MAX_PERMITS);
        let limits = Limits { in_flight, ..self.limits };
        Self { limits, permits: Arc::new(Semaphore::new(in_flight)), ..self.clone() }
    }

    /// Tells of each question.
    #[must_use]
    pub fn watched_by(mut self, watch: Arc<dyn Watch>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
