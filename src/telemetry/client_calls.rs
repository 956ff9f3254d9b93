//! Metrics of client requests: to the API server by verb and code, to Prometheus by outcome, with latencies.

use std::{sync::Arc, time::Duration};

use super::{
    definition::{Definition, RESPONSE_SECONDS, STEP_SECONDS, counter, histogram},
    family::Family,
    instruments::{Counter, Histogram},
    registry::Registry,
};

const NOT_YET_OBSERVED: &str = "it has not happened yet";

const API_REQUESTS: Definition = counter(
    "plimsoll_api_requests_total",
    "Requests to the API server, by response code; `none` without a response.",
)
.labels(&["code", "verb"], "up to 128")
.absent(NOT_YET_OBSERVED);
const API_SECONDS: Definition = histogram(
    "plimsoll_api_request_duration_seconds",
    "Latency of the API server, without client-side rate limiting. Watch events are not included.",
    STEP_SECONDS,
)
.labels(&["verb"], "up to 8 of 26")
.unit("seconds")
.absent(NOT_YET_OBSERVED);
const QUERIES: Definition =
    counter("plimsoll_prometheus_queries_total", "Prometheus queries, by outcome.")
        .labels(&["outcome", "role"], "9 per role that queries")
        .absent("no Prometheus is configured");
const QUERY_SECONDS: Definition = histogram(
    "plimsoll_prometheus_query_duration_seconds",
    "Latency of Prometheus queries, without client-side queueing.",
    RESPONSE_SECONDS,
)
.labels(&[], "1 of 24")
.unit("seconds")
.absent("no Prometheus is configured");

/// Metrics of requests to the API server.
#[derive(Clone, Debug)]
pub struct ApiRequestMetrics {
    requests: Arc<Family<Counter, 2>>,
    seconds: Arc<Family<Histogram, 1>>,
}

impl ApiRequestMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            requests: registry.family(API_REQUESTS, 128),
            seconds: registry.family(API_SECONDS, 8),
        }
    }

    /// Records a request with its response code; `None` without a response.
    pub fn observe(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.with_labels([&code, verb]).increment();
        self.seconds.with_labels([verb]).observe(took.as_secs_f64());
    }
}

/// Metrics of Prometheus queries.
#[derive(Clone, Debug)]
pub struct PrometheusQueryMetrics {
    queries: Arc<Family<Counter, 2>>,
    seconds: Arc<Family<Histogram>>,
    role: &'static str,
}

impl PrometheusQueryMetrics {
    /// Adds the families to a registry. They have no series until [`Self::init_outcomes`] is called.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        let (queries, seconds) = (registry.family(QUERIES, 32), registry.family(QUERY_SECONDS, 1));
        Self { queries, seconds, role }
    }

    /// Creates the series of these outcomes at zero, so that the first query is visible as an increase.
    pub fn init_outcomes(&self, outcomes: &[&str]) {
        for outcome in outcomes {
            self.queries.with_labels([outcome, self.role]);
        }
        self.seconds.with_labels([]);
    }

    /// Records a query with its outcome.
    pub fn observe(&self, outcome: &str, took: Duration) {
        self.queries.with_labels([outcome, self.role]).increment();
        self.seconds.with_labels([]).observe(took.as_secs_f64());
    }
}
