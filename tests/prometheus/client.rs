//! The client reads real servers of both releases: numbers, long ranges in several requests, limits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::metric_sources::promql::PromqlCache;
use plimsoll_core::scaling::{MetricError, MetricValue};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::{QueryLimits, QueryRange};
use plimsoll_storage::prometheus::decode::IgnoreSeries;
use plimsoll_storage::prometheus::promql::{Query, RangeFunction};
use plimsoll_storage::prometheus::query_error::QueryError;
use plimsoll_storage::prometheus::selector::{
    LabelMatcher, LabelMatchers, MatchOperator, Selector,
};

use super::proxy::{Fault, FaultyProxy};
use super::series_collector::{SeriesByLabels, SeriesCollector, client, short_limits};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const MINUTE: Duration = Duration::from_mins(1);
const DAYS: i64 = 8;
/// The staleness marker at the end of a series.
const STALE: u64 = 0x7ff0_0000_0000_0002;

#[derive(serde::Deserialize)]
struct Build {
    version: String,
}

fn full_hour() -> Timestamp {
    Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("valid timestamp")
}

/// One-minute series that begin `hours` before `end`.
fn history(end: Timestamp, hours: i64) -> History {
    History::new(end - SignedDuration::from_hours(hours), end, SignedDuration::from_mins(1))
}

/// Parses a query as a user would write it.
fn query(text: &str) -> Query {
    Query::from_user(text, &LabelMatchers::default()).expect("a query")
}

#[tokio::test]
async fn scalar_results_are_distinguished_from_missing_and_invalid_ones_on_prometheus_2() {
    numbers(PrometheusRelease::V2).await;
}

#[tokio::test]
async fn scalar_results_are_distinguished_from_missing_and_invalid_ones_on_prometheus_3() {
    numbers(PrometheusRelease::V3).await;
}

async fn numbers(release: PrometheusRelease) {
    let end = full_hour();
    let before = move |now: Timestamp| end.duration_since(now).as_secs() / 60;
    let history = history(end, 1)
        .series("fine", &[], |_| Some(42.0))
        .series("nothing", &[], |_| Some(0.0))
        .series("nan", &[], |_| Some(f64::NAN))
        .series("infinite", &[], |_| Some(f64::NEG_INFINITY))
        // Within the five minutes of the server's lookback.
        .series("old", &[], move |now| (before(now) >= 3).then_some(7.0))
        .series("gone", &[], move |now| match before(now) {
            3.. => Some(7.0),
            2 => Some(f64::from_bits(STALE)),
            _ => None,
        })
        .series("two", &[("a", "1")], |_| Some(1.0))
        .series("two", &[("a", "2")], |_| Some(2.0));
    let Some(server) = PrometheusServer::with_history(release, history).await else { return };
    let client = client(&server.url(), short_limits());
    let now = Time::from(end);
    let ago = |minutes: u32| now.earlier(minutes * MINUTE);
    let mut queries = PromqlCache::new(client.clone(), MINUTE);
    queries.include_sample_age = true;
    let sum = |sum, at| Ok(MetricValue::Sum { sum, at: Some(at) });
    let (empty, not_a_number) =
        (Err(MetricError::Empty("Prometheus")), Err(MetricError::NotANumber));
    for (text, expected) in [
        ("fine", sum(42_000, now)),
        ("nothing", sum(0, now)),
        ("sum(two)", sum(3000, now)),
        ("two", sum(3000, now)),
        ("scalar(fine)", sum(42_000, now)),
        ("fine offset 10m", sum(42_000, now)),
        ("missing", empty.clone()),
        ("fine > 50", empty.clone()),
        ("gone", empty.clone()),
        ("old", sum(7000, ago(3))),
        // Evaluated now, from a sample that the server considers fresh.
        ("old + 1", sum(8000, now)),
        ("nan", not_a_number.clone()),
        ("scalar(missing)", not_a_number.clone()),
        ("infinite", not_a_number.clone()),
        ("nothing / 0", not_a_number.clone()),
    ] {
        assert_eq!(queries.get("shop", text, now, None).await, expected, "{text}");
    }
    for (text, expected) in [
        ("no_such_function(fine)", "the server rejected the query"),
        ("\"a text\"", "returns a string"),
        ("fine[5m]", "returns a range"),
        ("two + on () two", "the server rejected the query"),
    ] {
        let why = queries.get("shop", text, now, None).await.expect_err(text).to_string();
        assert!(why.contains(expected) && !why.contains('\n'), "{text}: {why}");
    }
    let build: Build = client.get_data("/api/v1/status/buildinfo", &[]).await.expect("a version");
    assert!(build.version.starts_with(['2', '3']), "{}", build.version);
}

#[tokio::test]
async fn eight_days_are_read_in_parts_without_gaps_from_prometheus_2() {
    eight_days(PrometheusRelease::V2).await;
}

#[tokio::test]
async fn eight_days_are_read_in_parts_without_gaps_from_prometheus_3() {
    eight_days(PrometheusRelease::V3).await;
}

async fn eight_days(release: PrometheusRelease) {
    let end = full_hour();
    let start = end - SignedDuration::from_hours(24 * DAYS);
    let steps = move |now: Timestamp| now.duration_since(start).as_secs() / 60;
    let history = history(end, 24 * DAYS)
        .series("x", &[("c", "main")], move |now| Some(steps(now) as f64))
        .series("x", &[("c", "gaps")], move |now| (steps(now) % 100 < 50).then_some(1.0));
    let Some(server) = PrometheusServer::with_history(release, history).await else { return };
    let client = client(&server.url(), short_limits());
    let (start, end) = (Time::from(start), Time::from(end));
    let fine = QueryRange::new(start, end, MINUTE).expect("a grid");
    assert_eq!(fine.step_count, 11_521);
    let coarse = QueryRange::new(start, end, 7 * MINUTE).expect("a grid");

    let selector =
        Selector::metric("x").with(LabelMatcher::new("c", MatchOperator::NotMatches, r"\."));
    for (query, main) in [
        (Query::from(selector.clone()), 11_521),
        // Windows do not align with request boundaries: ten samples on release 3, eleven on release 2, throughout.
        (Query::range_function(RangeFunction::Count, &selector, 10 * MINUTE), 11_521),
        (Query::range_function(RangeFunction::Max, &selector, 10 * MINUTE), 11_521),
    ] {
        let mut by_minute = SeriesCollector::default();
        let stats = client.range(&query, fine, &mut by_minute).await.expect("query succeeded");
        assert_eq!((stats.queries, stats.retries, stats.halvings), (2, 0, 0));
        assert_eq!(by_minute.finishes, 2);
        let count: usize = by_minute.complete.values().map(Vec::len).sum();
        assert_eq!(stats.points, count as u64);
        let points = by_minute
            .complete
            .iter()
            .find_map(|(labels, points)| labels.contains("main").then_some(points))
            .expect("the series");
        assert_eq!(points.len(), main);
        for (step, (at, value)) in points.iter().enumerate() {
            assert_eq!(*at, fine.step_time(step as u64), "no point is lost or duplicated");
            let expected = match (query.as_str().get(..5), release) {
                (Some("count"), PrometheusRelease::V2) => (step + 1).min(11),
                (Some("count"), PrometheusRelease::V3) => (step + 1).min(10),
                _ => step,
            };
            assert_eq!(f64::from_bits(*value), expected as f64, "{query} at step {step}");
        }
        // A single query has no boundaries between requests.
        let mut at_once = SeriesCollector::default();
        let stats = client.range(&query, coarse, &mut at_once).await.expect("query succeeded");
        assert_eq!(stats.queries, 1);
        assert_eq!(thinned(by_minute.complete, coarse), at_once.complete, "{query}");
    }
}

/// The points at the steps of the grid.
fn thinned(gathered: SeriesByLabels, grid: QueryRange) -> SeriesByLabels {
    let moments: std::collections::HashSet<_> =
        (0..grid.step_count).map(|i| grid.step_time(i)).collect();
    gathered
        .into_iter()
        .map(|(labels, points)| {
            (labels, points.into_iter().filter(|(at, _)| moments.contains(at)).collect())
        })
        .collect()
}

#[tokio::test]
async fn queries_beyond_a_limit_of_the_server_or_the_budget_are_split() {
    let end = full_hour();
    let start = end - SignedDuration::from_hours(24);
    let mut history = history(end, 24);
    for series in 0..10 {
        let value = move |now: Timestamp| Some((now.as_second() + series) as f64);
        history = history.series("x", &[("s", &series.to_string())], value);
    }
    let flags = ["--query.max-samples=5000"];
    let Some(server) = PrometheusServer::with_flags(PrometheusRelease::V3, history, &flags).await
    else {
        return;
    };
    let grid = QueryRange::new(start.into(), end.into(), MINUTE).expect("a grid");
    let query = Query::from(Selector::metric("x"));
    let plain = client(&server.url(), short_limits());
    let mut collector = SeriesCollector::default();
    let stats = plain.range(&query, grid, &mut collector).await.expect("split query succeeds");
    assert!(stats.halvings > 0 && stats.retries == 0, "{stats:?}");
    assert_eq!(stats.points, 14_410);
    assert!(collector.complete.values().all(|points| points.len() == 1441));

    for limits in [
        QueryLimits { max_response_points: Some(3000), ..short_limits() },
        QueryLimits { max_response_bytes: Some(50_000), ..short_limits() },
    ] {
        let mut again = SeriesCollector::default();
        let thrifty = client(&server.url(), limits).range(&query, grid, &mut again).await;
        let thrifty = thrifty.expect("split query succeeds");
        assert!(thrifty.halvings > stats.halvings, "{thrifty:?}");
        assert_eq!(again.complete, collector.complete);
    }

    // A query that cannot be split is rejected at once, and the error says what to do.
    let huge = format!("max_over_time(({})[1d:10s])", query.as_str());
    let huge = Query::from_user(&huge, &LabelMatchers::default()).expect("a query");
    let failure = plain
        .instant(&huge, end.into(), &mut IgnoreSeries)
        .await
        .expect_err("8,640 samples per series are too many");
    assert!(matches!(failure, QueryError::TooLarge(_)), "{failure}");
    assert!(failure.to_string().contains("too many samples"), "{failure}");
    let interrupted = plain.range(&huge, grid, &mut IgnoreSeries).await.expect_err("must fail");
    assert!(matches!(interrupted, QueryError::TooLarge(_)), "{interrupted}");
}

#[tokio::test]
async fn concurrent_queries_are_limited() {
    let end = full_hour();
    let history = history(end, 1).series("fine", &[], |_| Some(42.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    let few = QueryLimits { max_in_flight: 2, ..short_limits() };
    let client = client(proxy.url(), few);
    proxy.fail_next(vec![Fault::Slow(32, Duration::from_millis(5)); 10]);
    let query = query("sum(fine)");
    let each = (0..10).map(|_| {
        let (client, query) = (client.clone(), query.clone());
        async move { client.instant(&query, end.into(), &mut IgnoreSeries).await }
    });
    for outcome in futures::future::join_all(each).await {
        assert_eq!(outcome.expect("query succeeded").series, 1);
    }
    assert_eq!((proxy.request_count(), proxy.max_in_flight()), (10, 2));
}
