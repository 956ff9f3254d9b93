//! Every fault of a connection is one clear line, adds no samples, and has no effect once it is over.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::client::{PrometheusClient, QueryLimits, QueryRange, QueryStats};
use plimsoll_storage::prometheus::promql::Query;
use plimsoll_storage::prometheus::selector::Selector;

use super::proxy::{Fault, FaultyProxy};
use super::series_collector::{SeriesCollector, client, short_limits};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

/// Longer than any healthy request takes. The clock steps past it while a fault is in progress.
const LIMIT: Duration = Duration::from_hours(1);
const LOGIN: &str = "<!doctype html><html><head><title>Sign in\n to Acme</title></head></html>";
const MIMIR: &str = r#"{"status":"error","errorType":"bad_data","error":"the query exceeded the maximum number of chunks"}"#;

struct Fixture {
    proxy: FaultyProxy,
    client: PrometheusClient,
    query: Query,
    grid: QueryRange,
    _server: PrometheusServer,
}

/// A day of ten series with one-minute samples, behind a faulty proxy.
async fn fixture(limits: QueryLimits) -> Option<Fixture> {
    let end =
        Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("valid timestamp");
    let start = end - SignedDuration::from_hours(24);
    let mut history = History::new(start, end, SignedDuration::from_mins(1));
    for series in 0..10 {
        let value = move |now: Timestamp| Some((now.as_second() * series) as f64);
        history = history.series("x", &[("s", &series.to_string())], value);
    }
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
    let proxy = FaultyProxy::start(&server.url()).await;
    let client = client(proxy.url(), limits);
    let grid = QueryRange::new(start.into(), end.into(), Duration::from_mins(1)).expect("a grid");
    Some(Fixture { proxy, client, query: Selector::metric("x").into(), grid, _server: server })
}

impl Fixture {
    async fn query_all(&self) -> (Result<QueryStats, String>, SeriesCollector) {
        let mut collector = SeriesCollector::default();
        let read = self.client.range(&self.query, self.grid, &mut collector).await;
        (read.map_err(|interrupted| interrupted.to_string()), collector)
    }

    async fn assert_recovered(&self) {
        self.proxy.fail_next([]);
        let (stats, collector) = self.query_all().await;
        let stats = stats.expect("finished");
        assert_eq!((stats.queries, stats.retries, stats.points), (1, 0, 14_410));
        assert_eq!((collector.complete.len(), collector.finishes), (10, 1));
    }
}

#[tokio::test]
async fn a_transient_error_is_retried_and_samples_count_once() {
    let Some(stage) = fixture(short_limits()).await else { return };
    for (fault, halvings) in [
        (Fault::Disconnected(100_000), 0),
        (Fault::Disconnected(0), 0),
        (Fault::Truncated(100_000), 0),
        (Fault::Replaced(500, "text/plain", "oops"), 0),
        (Fault::Replaced(502, "text/html", "<title>Bad Gateway</title>"), 0),
        (
            Fault::Replaced(
                503,
                "application/json",
                r#"{"status":"error","errorType":"unavailable","error":"starting"}"#,
            ),
            0,
        ),
        (
            Fault::Replaced(
                503,
                "application/json",
                r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
            ),
            1,
        ),
        (Fault::Busy(0), 0),
        (Fault::Replaced(422, "application/json", MIMIR), 1),
    ] {
        stage.proxy.fail_next([fault.clone()]);
        let (stats, collector) = stage.query_all().await;
        let stats = stats.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let asked_again = stats.retries.max(stats.halvings);
        assert_eq!((asked_again, stats.halvings), (1, halvings), "{fault:?}");
        assert_eq!((stats.points, collector.discards), (14_410, 1), "{fault:?}");
        assert!(collector.complete.values().all(|points| points.len() == 1441), "{fault:?}");
    }
    stage.assert_recovered().await;
}

#[tokio::test]
async fn a_permanent_error_is_reported_in_one_line_and_nothing_counts() {
    let Some(stage) = fixture(short_limits()).await else { return };
    for (fault, tries, words) in [
        (Fault::Disconnected(100_000), 3, "the response was truncated after "),
        (Fault::Truncated(100_000), 3, "the response was truncated after 100000 bytes"),
        (
            Fault::Replaced(500, "text/plain", "oops\n"),
            3,
            "500 Internal Server Error, text/plain, starting with \"oops\"",
        ),
        (Fault::Busy(0), 3, "too busy: 429 Too Many Requests"),
        (
            Fault::Replaced(200, "text/html", LOGIN),
            1,
            "not from Prometheus (200 OK, text/html, titled \"Sign in to Acme\")",
        ),
        (
            Fault::Typed("text/plain"),
            1,
            "200 OK, text/plain, starting with \"{\\\"status\\\":\\\"success\\\"",
        ),
        (Fault::Replaced(200, "application/json", "[]"), 1, "not from Prometheus"),
        (Fault::Replaced(200, "application/json", ""), 3, "truncated after 0 bytes"),
        (Fault::Redirect, 1, "/login"),
        (Fault::Replaced(401, "text/plain", "no"), 1, "401"),
        (Fault::Replaced(404, "text/plain", "404 page not found"), 1, "404 Not Found"),
        (
            Fault::Replaced(
                400,
                "application/json",
                r#"{"status":"error","errorType":"bad_data","error":"invalid\nparameter"}"#,
            ),
            1,
            "bad_data: invalid parameter",
        ),
    ] {
        let before = stage.proxy.request_count();
        stage.proxy.fail_next(vec![fault.clone(); 3]);
        let (read, collector) = stage.query_all().await;
        let line = read.expect_err("still fails");
        assert!(line.contains(words) && !line.contains('\n'), "{fault:?}: {line}");
        assert_eq!(stage.proxy.request_count() - before, tries, "{fault:?}");
        assert!(collector.complete.is_empty() && collector.incomplete.is_empty(), "{fault:?}");
        assert_eq!((collector.finishes, collector.discards), (0, tries), "{fault:?}");
    }
    stage.assert_recovered().await;
}

#[tokio::test]
async fn a_query_to_a_slow_server_times_out_and_is_split() {
    let Some(stage) = fixture(QueryLimits { timeout: LIMIT, ..short_limits() }).await else {
        return;
    };
    // One never responds, the other sends its body over days.
    for fault in [Fault::Hang, Fault::Slow(1000, LIMIT * 2)] {
        stage.proxy.fail_next([fault.clone()]);
        let timeout = stage.proxy.time_out_at(stage.proxy.request_count() + 1, LIMIT);
        let ((stats, collector), ()) = tokio::join!(stage.query_all(), timeout);
        let stats = stats.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!((stats.queries, stats.retries, stats.halvings), (2, 1, 1), "{fault:?}");
        assert_eq!((stats.points, collector.discards), (14_410, 1), "{fault:?}");
    }
    stage.proxy.fail_next(vec![Fault::Hang; 3]);
    let before = stage.proxy.request_count();
    let timeout = async {
        for fault in 1..=3 {
            stage.proxy.time_out_at(before + fault, LIMIT).await;
        }
    };
    let ((read, _), ()) = tokio::join!(stage.query_all(), timeout);
    let line = read.expect_err("still fails");
    assert!(line.contains("within 3600s") && !line.contains('\n'), "{line}");
    stage.assert_recovered().await;
}

#[tokio::test]
async fn an_interrupted_range_query_resumes_where_it_stopped() {
    let Some(stage) = fixture(QueryLimits { max_steps: 500, ..short_limits() }).await else {
        return;
    };
    let down = || Fault::Replaced(500, "text/plain", "down");
    stage.proxy.fail_next([
        Fault::None,
        Fault::Disconnected(50_000),
        down(),
        Fault::Disconnected(20_000),
    ]);
    let mut collector = SeriesCollector::default();
    let interrupted = stage.client.range(&stage.query, stage.grid, &mut collector).await;
    interrupted.expect_err("three failures in a row");
    assert!(collector.complete.values().all(|points| points.len() == 500));

    let end = stage.grid.step_time(stage.grid.step_count - 1);
    let rest =
        QueryRange::new(stage.grid.step_time(500), end, Duration::from_mins(1)).expect("a grid");
    // Isolated failures do not add up to consecutive ones.
    stage.proxy.fail_next([down(), down(), Fault::None, down(), down(), Fault::None]);
    let stats = stage.client.range(&stage.query, rest, &mut collector).await.expect("the rest");
    assert_eq!((stats.queries, stats.retries), (2, 4));
    assert!(collector.complete.values().all(|points| points.len() == 1441));
}
