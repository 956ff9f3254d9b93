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

mod collected_series;
mod query_stats;
mod range;
mod request;

use std::{fmt, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;

pub use self::{collected_series::CollectedSeries, query_stats::QueryStats, range::QueryRange};
use self::{collected_series::SeriesCollector, request::RequestSender};
use super::{
    decode::{ResponseKind, ResponseSummary, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    schema::Dialect,
    selector::Selector,
    transport::Transport,
};
use plimsoll_core::types::Time;

const RANGE_PATH: &str = "/api/v1/query_range";

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
    fn on_query(&self, query: &CompletedQuery<'_>);
}

/// A client of one server. Clones share its limits.
#[derive(Clone, Debug)]
pub struct PrometheusClient {
    sender: RequestSender,
    dialect: Dialect,
}

/// The common envelope of Prometheus API responses.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResponse<T> {
    data: Option<T>,
    #[serde(default)]
    is_partial: bool,
}

impl PrometheusClient {
    pub fn new(transport: Arc<dyn Transport>, limits: QueryLimits) -> Self {
        Self { sender: RequestSender::new(transport, limits), dialect: Dialect::default() }
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
        self.sender.rejects_partial = true;
        self
    }

    /// Sets the number of attempts of a query. Use few if the caller queries again soon anyway.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.sender.limits.max_attempts = attempts;
        self
    }

    /// Returns a client with a separate limit on concurrent queries, for queries that must not wait behind a long load.
    #[must_use]
    pub fn with_separate_permits(&self, max_in_flight: usize) -> Self {
        Self { sender: self.sender.with_separate_permits(max_in_flight), ..*self }
    }

    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn QueryObserver>) -> Self {
        self.sender.observer = Some(observer);
        self
    }

    pub fn limits(&self) -> &QueryLimits {
        &self.sender.limits
    }

    /// Streams the result of an instant query. Retries while the server is busy or unavailable, up to the maximum number of
    /// attempts.
    pub async fn instant(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let form = [("query", query.to_string()), ("time", request::time(at))];
        let kind = ResponseKind::QueryResult;
        self.sender.query_with_retries("/api/v1/query", &form, kind, visitor).await
    }

    /// The first series of the result of an instant query.
    pub async fn vector(
        &self,
        query: &Query,
        at: Time,
    ) -> Result<Vec<CollectedSeries>, QueryError> {
        let mut collector = SeriesCollector::default();
        self.instant(query, at, &mut collector).await?;
        Ok(collector.series)
    }

    /// The result of an instant query that counts something; 0 if it has no series.
    pub async fn count(&self, query: &Query, at: Time) -> Result<u64, QueryError> {
        let series = self.vector(query, at).await?;
        Ok(series.first().and_then(CollectedSeries::value).unwrap_or(0.0) as u64)
    }

    /// Streams the labels of the series that existed within a time range. The server reads them from its index and reads no
    /// samples. Jobs that run every minute create many series, so none is held in memory.
    pub async fn series(
        &self,
        selector: &Selector,
        (from, to): (Time, Time),
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let form = [
            ("match[]", selector.to_string()),
            ("start", request::time(from)),
            ("end", request::time(to.later(Duration::from_secs(1)))),
        ];
        self.sender
            .query_with_retries("/api/v1/series", &form, ResponseKind::SeriesList, visitor)
            .await
    }

    /// Fetches the `data` of a response other than a query result, from a path like `/api/v1/status/buildinfo`. It is held
    /// in memory, so use it for small responses.
    pub async fn get_data<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<T, QueryError> {
        let mut failures = 0;
        loop {
            let decode_error = |why: String| {
                QueryError::NotPrometheus(format!("failed to decode the response of {path}: {why}"))
            };
            let result = match self.sender.fetch(path, form).await {
                Ok(body) => {
                    let response: ApiResponse<T> = serde_json::from_slice(&body)
                        .map_err(|why| decode_error(why.to_string()))?;
                    self.sender.check_partial(response.is_partial).map(|()| response.data)
                }
                Err(failure) => Err(failure),
            };
            match result {
                Ok(data) => return data.ok_or_else(|| decode_error("it has no data".to_owned())),
                Err(failure) => self.sender.wait_for_retry(&mut failures, failure).await?,
            }
        }
    }

    /// Streams the result of a range query part by part, in order of time, and calls the visitor's `finish` after each part.
    /// A part that is too large or too slow is halved. While the server is busy or unavailable the part is retried, up to
    /// the maximum number of attempts without progress.
    pub async fn range(
        &self,
        query: &Query,
        grid: QueryRange,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<QueryStats, QueryError> {
        let mut stats = QueryStats::default();
        let mut next = 0;
        let mut max_steps = u64::from(self.sender.limits.max_steps.max(1));
        let mut failures = 0;
        while next < grid.step_count {
            let count = max_steps.min(grid.step_count - next);
            let mut form = vec![
                ("query", query.to_string()),
                ("start", request::time(grid.step_time(next))),
                ("end", request::time(grid.step_time(next + count - 1))),
                ("step", request::seconds(grid.step)),
            ];
            if self.dialect == Dialect::MetricsQl {
                form.push(("nocache", "1".to_owned()));
            }
            let kind = ResponseKind::QueryResult;
            let failure = match self.sender.exchange(RANGE_PATH, &form, kind, visitor).await {
                Ok((summary, time)) => {
                    stats.add(summary, time);
                    next += count;
                    failures = 0;
                    continue;
                }
                Err(failure) => failure,
            };
            let can_halve = count > 1;
            if can_halve && matches!(failure, QueryError::TooLarge(_) | QueryError::Timeout(_)) {
                // Keep the smaller size: the rest of the range is probably as dense.
                max_steps = count.div_ceil(2);
                stats.halvings += 1;
                if matches!(failure, QueryError::TooLarge(_)) {
                    tracing::debug!(%failure, steps = max_steps, "splitting range query into smaller parts");
                    continue;
                }
            }
            self.sender.wait_for_retry(&mut failures, failure).await?;
            stats.retries += 1;
        }
        Ok(stats)
    }
}
