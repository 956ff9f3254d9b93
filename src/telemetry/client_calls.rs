//! What others are asked: the API server by verb and code, a Prometheus by what came of it, and how long that took.

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
    "Requests to the API server, by the code of the answer; none where there was no answer.",
)
.labels(&["code", "verb"], "up to 128")
.absent(NOT_YET_OBSERVED);
const API_SECONDS: Definition = histogram(
    "plimsoll_api_request_duration_seconds",
    "How long the API server takes to answer, without waiting for a turn. What watches tell is no part of it.",
    STEP_SECONDS,
)
.labels(&["verb"], "up to 8 of 26")
.unit("seconds")
.absent(NOT_YET_OBSERVED);
const QUERIES: Definition =
    counter("plimsoll_prometheus_queries_total", "Queries to a Prometheus, by what came of them.")
        .labels(&["outcome", "role"], "9 per role that asks")
        .absent("no Prometheus is known");
const QUERY_SECONDS: Definition = histogram(
    "plimsoll_prometheus_query_duration_seconds",
    "How long a Prometheus takes to answer, without waiting for a turn.",
    RESPONSE_SECONDS,
)
.labels(&[], "1 of 24")
.unit("seconds")
.absent("no Prometheus is known");

/// Requests to the API server.
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

    /// A request was answered with this code, or not at all.
    pub fn observe(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.with_labels([&code, verb]).increment();
        self.seconds.with_labels([verb]).observe(took.as_secs_f64());
    }
}

/// Queries to a Prometheus.
#[derive(Clone, Debug)]
pub struct PrometheusQueryMetrics {
    queries: Arc<Family<Counter, 2>>,
    seconds: Arc<Family<Histogram>>,
    role: &'static str,
}

impl PrometheusQueryMetrics {
    /// Adds the families to a registry. They have no series until somebody is about to ask.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        let (queries, seconds) = (registry.family(QUERIES, 32), registry.family(QUERY_SECONDS, 1));
        Self { queries, seconds, role }
    }

    /// Queries may come to these ends: their series are there before the first of them, so that it is an increase.
    pub fn init_outcomes(&self, outcomes: &[&str]) {
        for outcome in outcomes {
            self.queries.with_labels([outcome, self.role]);
        }
        self.seconds.with_labels([]);
    }

    /// A query came to this end.
    pub fn observe(&self, outcome: &str, took: Duration) {
        self.queries.with_labels([outcome, self.role]).increment();
        self.seconds.with_labels([]).observe(took.as_secs_f64());
    }
}
