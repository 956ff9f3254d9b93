//! Metrics of client requests: to the API server by verb and code, to Prometheus by outcome, with latencies.

use std::time::Duration;

use super::{
    definition::{RESPONSE_SECONDS, STEP_SECONDS, counter, histogram},
    family::Family,
    instruments::{Counter, Histogram},
    registry::{Registry, metric_families},
};

const NO_PROMETHEUS: &str = "no Prometheus is configured";

metric_families! {
    #[derive(Clone, Debug)]
    pub struct ApiRequestMetrics via pub new {
        requests: Family<Counter, 2>[128] = counter(
            "plimsoll_api_requests_total",
            "Requests to the API server, by response code; `none` without a response.",
        ).labels(&["code", "verb"], "up to 128").absent_at_first();
        seconds: Family<Histogram, 1>[8] = histogram(
            "plimsoll_api_request_duration_seconds",
            "Latency of the API server, without client-side rate limiting. Watch events are not included.",
            STEP_SECONDS,
        ).labels(&["verb"], "up to 8 of 26").unit("seconds").absent_at_first();
    }
}

metric_families! {
    #[derive(Clone, Debug)]
    pub struct PrometheusQueryMetrics via register {
        queries: Family<Counter, 2>[32] =
            counter("plimsoll_prometheus_queries_total", "Prometheus queries, by outcome.")
            .labels(&["outcome", "role"], "9 per role that queries").absent(NO_PROMETHEUS);
        seconds: Family<Histogram>[1] = histogram(
            "plimsoll_prometheus_query_duration_seconds",
            "Latency of Prometheus queries, without client-side queueing.",
            RESPONSE_SECONDS,
        ).labels(&[], "1 of 24").unit("seconds").absent(NO_PROMETHEUS);
        ..
        role: &'static str = |_| "";
    }
}

impl ApiRequestMetrics {
    /// Records a request with its response code; `None` without a response.
    pub fn observe(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.with_labels([&code, verb]).increment();
        self.seconds.with_labels([verb]).observe_duration(took);
    }
}

impl PrometheusQueryMetrics {
    /// Adds the families to a registry. They have no series until [`Self::init_outcomes`] is called.
    pub fn new(registry: &mut Registry, role: &'static str) -> Self {
        Self { role, ..Self::register(registry) }
    }

    /// Creates the series of these outcomes at zero, so that the first query is visible as an increase.
    pub fn init_outcomes(&self, outcomes: &[&str]) {
        for outcome in outcomes {
            self.queries.with_labels([outcome, self.role]);
        }
        self.seconds.with_labels([]);
    }

    pub fn observe(&self, outcome: &str, took: Duration) {
        self.queries.with_labels([outcome, self.role]).increment();
        self.seconds.with_labels([]).observe_duration(took);
    }
}
