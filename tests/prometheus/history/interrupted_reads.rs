//! A failed read resumes once the failure is over: no sample twice, none lost, no partial ones.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::prometheus::client::QueryLimits;
use plimsoll_storage::prometheus::history::HistorySettings;
use plimsoll_storage::prometheus::query_error::QueryError;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::collecting_sink::{CollectingSink, MINUTE, hours, last, owners_of, read, storage};
use crate::prometheus::label_flavors::CHART;
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::prometheus::releases::releases;
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};
use crate::support::wait;

const VPAS: [(&str, &str); 2] = [("db", "apps/StatefulSet/db"), ("log", "apps/DaemonSet/log")];

/// Longer than any healthy request takes. The clock steps past it while a fault is in progress.
const LIMIT: Duration = Duration::from_hours(1);

/// The response of a server that has lost part of its data.
const PARTIAL: &str =
    r#"{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}"#;

/// A day of two workloads.
fn day() -> (History, Timestamp) {
    let (mut history, end) = hours(25);
    for pod in ["db-0", "db-1", "log-x2x4z"] {
        let names = ["shop", pod, "app"];
        let used = |now: Timestamp| Some(now.as_second() as f64 % 1e7 * 0.1);
        history = CHART.usage(history, CPU_METRIC, names, used);
        history = CHART.usage(history, MEMORY_METRIC, names, |_| Some(1e8));
    }
    (history, end)
}

async fn server() -> Option<(PrometheusServer, Timestamp)> {
    let (history, end) = day();
    Some((PrometheusServer::with_history(PrometheusRelease::V3, history).await?, end))
}

fn small_limits() -> HistorySettings {
    HistorySettings { point_budget: 500, ..last(24) }
}

#[tokio::test]
async fn an_interrupted_history_read_resumes_where_it_stopped() {
    let Some((server, end)) = server().await else { return };
    let (uninterrupted, report) = read(&server.url(), small_limits(), end, &VPAS).await;
    let proxy = FaultyProxy::start(&server.url()).await;
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, ..short_limits() };
    let storage = storage(proxy.url(), limits, small_limits(), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    let mut sink = CollectingSink::default();
    let (mut loading, _) =
        storage.start_load(&owners_of(&VPAS), None, None).await.expect("load started");
    let mut stalls = 0;
    let faults = [
        Fault::Disconnected(100),
        Fault::Replaced(500, "text/plain", "out of order"),
        Fault::Replaced(200, "text/html", "<title>Sign in</title>"),
        Fault::Redirect,
        Fault::Busy(1),
    ];
    // Each attempt gets a little further.
    for (requests, fault) in [3, 1, 4, 2, 5].into_iter().zip(faults) {
        let mut next = vec![Fault::None; requests];
        next.push(fault.clone());
        proxy.fail_next(next);
        let before = loading.progress().0;
        let stalled = loading.advance(&mut sink).await.expect_err("times out");
        assert!(!stalled.to_string().contains('\n'), "{stalled}");
        assert!(stalled.batches == 1 && !matches!(stalled.failure, QueryError::BadQuery(_)));
        assert!(loading.progress().0 >= before && !loading.is_done(), "{fault:?}");
        assert_eq!(loading.pending().count(), 2);
        assert!(sink.whole.is_empty(), "a partial history is not complete");
        stalls += 1;
    }
    proxy.fail_next([]);
    loading.advance(&mut sink).await.expect("finished");
    assert_eq!(stalls, 5);
    assert!(loading.is_done() && sink == uninterrupted, "no sample is lost or duplicated");
    assert_eq!(loading.report.samples, report.samples);
}

/// The faults, how often each occurs, and its error message.
fn faults() -> Vec<(Fault, usize, &'static str)> {
    let html = "<!doctype html><title>Sign in to Acme</title>";
    let large = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#;
    vec![
        (Fault::Slow(200, LIMIT * 2), 1, "within 3600s"),
        (Fault::Hang, 1, "within 3600s"),
        (Fault::Disconnected(100), 1, "the response was truncated after"),
        (Fault::Truncated(100), 1, "the response was truncated after 100 bytes"),
        (Fault::Replaced(500, "text/plain", "out of\norder"), 1, "500 Internal Server Error"),
        (Fault::Replaced(502, "text/html", "<title>Bad Gateway</title>"), 1, "Bad Gateway"),
        // Whatever the size of the query.
        (Fault::Replaced(422, "application/json", large), 40, "too many samples into memory"),
        (Fault::Busy(1), 1, "too busy: 429"),
        (Fault::Replaced(200, "text/html", html), 1, "titled \"Sign in to Acme\""),
        (Fault::Typed("text/plain"), 1, "not from Prometheus (200 OK, text/plain"),
        (Fault::Replaced(200, "application/json", "[]"), 1, "not from Prometheus"),
        (Fault::Redirect, 1, "redirects to"),
        (Fault::Replaced(401, "text/plain", "the token has expired"), 1, "(401)"),
        (Fault::Replaced(403, "text/plain", "no"), 1, "(403)"),
        (Fault::Replaced(200, "application/json", PARTIAL), 1, "partial"),
    ]
}

#[tokio::test]
async fn each_fault_is_one_line_and_is_cleared_when_it_ends() {
    let Some((server, end)) = server().await else { return };
    let (uninterrupted, _) = read(&server.url(), small_limits(), end, &VPAS).await;
    let proxy = FaultyProxy::start(&server.url()).await;
    let limits =
        QueryLimits { max_in_flight: 1, max_attempts: 1, timeout: LIMIT, ..short_limits() };
    let storage = storage(proxy.url(), limits, small_limits(), end);
    for (fault, times, words) in faults() {
        let mut sink = CollectingSink::default();
        let (mut loading, _) =
            storage.start_load(&owners_of(&VPAS), None, None).await.expect("load started");
        // In the middle of the third slice.
        let mut next = vec![Fault::None; 5];
        next.extend(vec![fault.clone(); times]);
        proxy.fail_next(next);
        let before = proxy.request_count();
        let timeout = async {
            if words.contains("within") {
                proxy.time_out_at(before + 6, LIMIT).await;
            }
        };
        let (stalled, ()) = tokio::join!(loading.advance(&mut sink), timeout);
        let stalled = stalled.expect_err(words).to_string();
        assert!(stalled.contains(words) && !stalled.contains('\n'), "{fault:?}: {stalled}");
        let about = "failed to load 1 of 1 batches of history, the first in namespace shop: ";
        assert!(stalled.starts_with(about), "{stalled}");
        assert!(sink.whole.is_empty() && loading.pending().count() == 2, "{fault:?}");
        let (done, all) = loading.progress();
        assert!(!done.is_zero() && done < all, "{fault:?}: earlier samples are kept");
        proxy.fail_next([]);
        loading.advance(&mut sink).await.expect("finished");
        assert!(
            loading.is_done() && sink == uninterrupted,
            "{fault:?}: no sample is lost or duplicated"
        );
    }
}

#[tokio::test]
async fn queries_are_split_for_a_server_with_low_limits() {
    for release in releases() {
        let (history, end) = day();
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let (uninterrupted, report) = read(&server.url(), last(24), end, &VPAS).await;
        assert_eq!(report.reads.halvings, 0);
        drop(server);
        let (history, _) = day();
        let flags = ["--query.max-samples=1000"];
        let Some(server) = PrometheusServer::with_flags(release, history, &flags).await else {
            return;
        };
        let (sink, report) = read(&server.url(), last(24), end, &VPAS).await;
        assert!(report.reads.halvings > 2, "{report:?}");
        assert!(sink == uninterrupted, "{release:?}");
    }
}

#[tokio::test]
async fn cancelling_a_history_read_loses_nothing() {
    let Some((server, end)) = server().await else { return };
    let (uninterrupted, _) = read(&server.url(), small_limits(), end, &VPAS).await;
    let proxy = FaultyProxy::start(&server.url()).await;
    let storage = storage(proxy.url(), short_limits(), small_limits(), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    let mut sink = CollectingSink::default();
    let (mut loading, _) =
        storage.start_load(&owners_of(&VPAS), None, None).await.expect("load started");
    proxy.fail_next([Fault::None, Fault::None, Fault::None, Fault::None, Fault::Hang]);
    let before = proxy.request_count();
    tokio::select! {
        _ = loading.advance(&mut sink) => panic!("unexpected success"),
        () = wait::until("the fifth query is sent", || async {
            (proxy.request_count() == before + 5).then_some(())
        }) => {}
    }
    assert!(!loading.is_done() && loading.pending().count() == 2);
    proxy.fail_next([]);
    loading.advance(&mut sink).await.expect("continues");
    assert!(loading.is_done() && sink == uninterrupted);
}

#[tokio::test]
async fn a_failed_batch_does_not_affect_the_others() {
    let (mut history, end) = hours(3);
    for namespace in ["shop", "bank"] {
        let names = [namespace, "db-0", "app"];
        history = CHART.usage(history, CPU_METRIC, names, |_| Some(1.0));
        history = CHART.usage(history, MEMORY_METRIC, names, |_| Some(1e8));
    }
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, ..short_limits() };
    let storage = storage(proxy.url(), limits, last(2), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    let mut vpas = owners_of(&[("db", "apps/StatefulSet/db")]);
    vpas.insert(ObjectKey::new("bank", "db"), Some("apps/StatefulSet/db".into()));
    let (mut loading, _) = storage.start_load(&vpas, None, None).await.expect("load started");
    let mut sink = CollectingSink::default();
    proxy.fail_next([Fault::Disconnected(10)]);
    let stalled = loading.advance(&mut sink).await.expect_err("one of them fails");
    assert_eq!((stalled.batches, stalled.asked), (1, 2));
    let left: Vec<_> = loading.pending().map(|vpa| vpa.namespace.to_string()).collect();
    assert_eq!(left, [stalled.namespace.to_string()]);
    assert_eq!(sink.replicas.len(), 1, "the other workload is loaded");
    assert!(sink.whole.len() == 1 && !sink.whole.iter().any(|vpa| *vpa.namespace == *left[0]));
    loading.advance(&mut sink).await.expect("a later attempt succeeds");
    assert_eq!(sink.replicas.len(), 2);
}

#[tokio::test]
async fn after_a_downtime_only_the_missing_hours_are_queried() {
    let Some((server, end)) = server().await else { return };
    let storage = storage(&server.url(), short_limits(), last(24), end);
    let mut sink = CollectingSink::default();
    let missing = Time::from(end).earlier(180 * MINUTE + MINUTE / 2);
    let started = storage.start_load(&owners_of(&VPAS), Some(missing), None).await;
    let (mut loading, _) = started.expect("load started");
    loading.advance(&mut sink).await.expect("read");
    let db = sink.samples_of("db", "app", "db-0").expect("exists");
    assert_eq!((db.cpu.len(), db.memory.len()), (185, 37), "resumes at the last complete step");
    assert_eq!(loading.until(), end.into());
}

#[tokio::test]
async fn queries_that_timed_out_stay_split_on_the_next_attempt() {
    let Some((server, end)) = server().await else { return };
    let proxy = FaultyProxy::start(&server.url()).await;
    // Long enough for healthy responses, even if the machine stalls for a second.
    let timeout = Duration::from_secs(4);
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, timeout, ..short_limits() };
    let storage = storage(proxy.url(), limits, last(24), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    let (mut loading, _) =
        storage.start_load(&owners_of(&VPAS), None, None).await.expect("load started");
    proxy.fail_all(Fault::Slow(8, Duration::from_millis(800)));
    let mut ends = Vec::new();
    for _ in 0..3 {
        proxy.take_requests();
        let stalled = loading.advance(&mut CollectingSink::default()).await.expect_err("times out");
        assert!(matches!(stalled.failure, QueryError::Timeout(_)), "{stalled}");
        let requests = proxy.take_requests();
        let range =
            requests.iter().find(|requests| requests.contains("query_range?")).expect("one");
        let (_, rest) = range.split_once("end=").expect("has an end");
        ends.push(rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    }
    assert!(ends.is_sorted_by(|longer, shorter| shorter < longer), "{ends:?}");
    proxy.fail_all(Fault::None);
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("responds in time");
    assert_eq!(sink.samples_of("db", "app", "db-0").expect("exists").cpu.len(), 24 * 60);
}
