//! Proof that a failure costs no more than the time until it is over: nothing twice, nothing lost, nothing by half.

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

/// What no answer takes that is fine. Time steps over it once a fault is under way.
const LIMIT: Duration = Duration::from_hours(1);

/// What a server answers that has lost a part of itself.
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
async fn reading_goes_on_where_it_stopped() {
    let Some((server, end)) = server().await else { return };
    let (undisturbed, report) = read(&server.url(), small_limits(), end, &VPAS).await;
    let way = FaultyProxy::start(&server.url()).await;
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, ..short_limits() };
    let storage = storage(way.url(), limits, small_limits(), end);
    storage.schema(&["shop"]).await.expect("a schema");
    let mut remember = CollectingSink::default();
    let (mut loading, _) = storage.start_load(&owners_of(&VPAS), None, None).await.expect("begun");
    let mut stalls = 0;
    let faults = [
        Fault::Disconnected(100),
        Fault::Replaced(500, "text/plain", "out of order"),
        Fault::Replaced(200, "text/html", "<title>Sign in</title>"),
        Fault::Redirect,
        Fault::Busy(1),
    ];
    // Each time a little further.
    for (requests, fault) in [3, 1, 4, 2, 5].into_iter().zip(faults) {
        let mut next = vec![Fault::None; requests];
        next.push(fault.clone());
        way.fail_next(next);
        let before = loading.progress().0;
        let stalled = loading.advance(&mut remember).await.expect_err("it stalls");
        assert!(!stalled.to_string().contains('\n'), "{stalled}");
        assert!(stalled.batches == 1 && !matches!(stalled.failure, QueryError::BadQuery(_)));
        assert!(loading.progress().0 >= before && !loading.is_done(), "{fault:?}");
        assert_eq!(loading.pending().count(), 2);
        assert!(remember.whole.is_empty(), "half a history is not whole");
        stalls += 1;
    }
    way.fail_next([]);
    loading.advance(&mut remember).await.expect("it is over");
    assert_eq!(stalls, 5);
    assert!(loading.is_done() && remember == undisturbed, "nothing twice, nothing lost");
    assert_eq!(loading.report().samples, report.samples);
}

/// What may happen, how often, and what is said of it.
fn faults() -> Vec<(Fault, usize, &'static str)> {
    let html = "<!doctype html><title>Sign in to Acme</title>";
    let large = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#;
    vec![
        (Fault::Slow(200, LIMIT * 2), 1, "within 3600s"),
        (Fault::Hang, 1, "within 3600s"),
        (Fault::Disconnected(100), 1, "the answer breaks off after"),
        (Fault::Truncated(100), 1, "the answer breaks off after 100 bytes"),
        (Fault::Replaced(500, "text/plain", "out of\norder"), 1, "500 Internal Server Error"),
        (Fault::Replaced(502, "text/html", "<title>Bad Gateway</title>"), 1, "Bad Gateway"),
        // However little is asked for.
        (Fault::Replaced(422, "application/json", large), 40, "too many samples into memory"),
        (Fault::Busy(1), 1, "too busy: 429"),
        (Fault::Replaced(200, "text/html", html), 1, "titled \"Sign in to Acme\""),
        (Fault::Typed("text/plain"), 1, "no Prometheus (200 OK, text/plain"),
        (Fault::Replaced(200, "application/json", "[]"), 1, "no Prometheus"),
        (Fault::Redirect, 1, "redirects to"),
        (Fault::Replaced(401, "text/plain", "the token has expired"), 1, "(401)"),
        (Fault::Replaced(403, "text/plain", "no"), 1, "(403)"),
        (Fault::Replaced(200, "application/json", PARTIAL), 1, "partial"),
    ]
}

#[tokio::test]
async fn each_fault_is_one_line_and_is_forgotten_when_it_is_over() {
    let Some((server, end)) = server().await else { return };
    let (undisturbed, _) = read(&server.url(), small_limits(), end, &VPAS).await;
    let way = FaultyProxy::start(&server.url()).await;
    let limits =
        QueryLimits { max_in_flight: 1, max_attempts: 1, timeout: LIMIT, ..short_limits() };
    let storage = storage(way.url(), limits, small_limits(), end);
    for (fault, times, words) in faults() {
        let mut remember = CollectingSink::default();
        let (mut loading, _) =
            storage.start_load(&owners_of(&VPAS), None, None).await.expect("begun");
        // In the middle of the third slice.
        let mut next = vec![Fault::None; 5];
        next.extend(vec![fault.clone(); times]);
        way.fail_next(next);
        let before = way.request_count();
        let over = async {
            if words.contains("within") {
                way.time_out_at(before + 6, LIMIT).await;
            }
        };
        let (stalled, ()) = tokio::join!(loading.advance(&mut remember), over);
        let stalled = stalled.expect_err(words).to_string();
        assert!(stalled.contains(words) && !stalled.contains('\n'), "{fault:?}: {stalled}");
        let about = "1 of 1 batches of history could not be read, the first in namespace shop: ";
        assert!(stalled.starts_with(about), "{stalled}");
        assert!(remember.whole.is_empty() && loading.pending().count() == 2, "{fault:?}");
        let (done, all) = loading.progress();
        assert!(!done.is_zero() && done < all, "{fault:?}: what came before it counts");
        way.fail_next([]);
        loading.advance(&mut remember).await.expect("it is over");
        assert!(
            loading.is_done() && remember == undisturbed,
            "{fault:?}: nothing twice, nothing lost"
        );
    }
}

#[tokio::test]
async fn a_server_that_lets_little_be_loaded_at_once_is_asked_for_less() {
    for release in releases() {
        let (history, end) = day();
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let (undisturbed, report) = read(&server.url(), last(24), end, &VPAS).await;
        assert_eq!(report.halvings, 0);
        drop(server);
        let (history, _) = day();
        let flags = ["--query.max-samples=1000"];
        let Some(server) = PrometheusServer::with_flags(release, history, &flags).await else {
            return;
        };
        let (remember, report) = read(&server.url(), last(24), end, &VPAS).await;
        assert!(report.halvings > 2, "{report:?}");
        assert!(remember == undisturbed, "{release:?}");
    }
}

#[tokio::test]
async fn giving_up_in_the_middle_loses_nothing() {
    let Some((server, end)) = server().await else { return };
    let (undisturbed, _) = read(&server.url(), small_limits(), end, &VPAS).await;
    let way = FaultyProxy::start(&server.url()).await;
    let storage = storage(way.url(), short_limits(), small_limits(), end);
    storage.schema(&["shop"]).await.expect("a schema");
    let mut remember = CollectingSink::default();
    let (mut loading, _) = storage.start_load(&owners_of(&VPAS), None, None).await.expect("begun");
    way.fail_next([Fault::None, Fault::None, Fault::None, Fault::None, Fault::Hang]);
    let before = way.request_count();
    tokio::select! {
        _ = loading.advance(&mut remember) => panic!("nobody answers"),
        () = wait::until("the fifth question is asked", || async {
            (way.request_count() == before + 5).then_some(())
        }) => {}
    }
    assert!(!loading.is_done() && loading.pending().count() == 2);
    way.fail_next([]);
    loading.advance(&mut remember).await.expect("it goes on");
    assert!(loading.is_done() && remember == undisturbed);
}

#[tokio::test]
async fn one_batch_that_fails_leaves_the_others() {
    let (mut history, end) = hours(3);
    for namespace in ["shop", "bank"] {
        let names = [namespace, "db-0", "app"];
        history = CHART.usage(history, CPU_METRIC, names, |_| Some(1.0));
        history = CHART.usage(history, MEMORY_METRIC, names, |_| Some(1e8));
    }
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let way = FaultyProxy::start(&server.url()).await;
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, ..short_limits() };
    let storage = storage(way.url(), limits, last(2), end);
    storage.schema(&["shop"]).await.expect("a schema");
    let mut vpas = owners_of(&[("db", "apps/StatefulSet/db")]);
    vpas.insert(ObjectKey::new("bank", "db"), Some("apps/StatefulSet/db".into()));
    let (mut loading, _) = storage.start_load(&vpas, None, None).await.expect("begun");
    let mut remember = CollectingSink::default();
    way.fail_next([Fault::Disconnected(10)]);
    let stalled = loading.advance(&mut remember).await.expect_err("one of them");
    assert_eq!((stalled.batches, stalled.asked), (1, 2));
    let left: Vec<_> = loading.pending().map(|vpa| vpa.namespace.to_string()).collect();
    assert_eq!(left, [stalled.namespace.to_string()]);
    assert_eq!(remember.replicas.len(), 1, "the other one is there");
    assert!(
        remember.whole.len() == 1 && !remember.whole.iter().any(|vpa| *vpa.namespace == *left[0])
    );
    loading.advance(&mut remember).await.expect("later");
    assert_eq!(remember.replicas.len(), 2);
}

#[tokio::test]
async fn after_a_downtime_only_the_missing_hours_are_asked_for() {
    let Some((server, end)) = server().await else { return };
    let storage = storage(&server.url(), short_limits(), last(24), end);
    let mut remember = CollectingSink::default();
    let missing = Time::from(end).earlier(180 * MINUTE + MINUTE / 2);
    let begun = storage.start_load(&owners_of(&VPAS), Some(missing), None).await;
    let (mut loading, _) = begun.expect("begun");
    loading.advance(&mut remember).await.expect("read");
    let db = remember.samples_of("db", "app", "db-0").expect("it is there");
    assert_eq!((db.cpu.len(), db.memory.len()), (185, 37), "from the last whole step on");
    assert_eq!(loading.until(), end.into());
}

#[tokio::test]
async fn what_was_too_slow_to_come_is_asked_for_in_smaller_parts_the_next_time_too() {
    let Some((server, end)) = server().await else { return };
    let way = FaultyProxy::start(&server.url()).await;
    // Long enough for answers that are not held up, on a machine that stands still for a second.
    let timeout = Duration::from_secs(4);
    let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, timeout, ..short_limits() };
    let storage = storage(way.url(), limits, last(24), end);
    storage.schema(&["shop"]).await.expect("a schema");
    let (mut loading, _) = storage.start_load(&owners_of(&VPAS), None, None).await.expect("begun");
    way.fail_all(Fault::Slow(8, Duration::from_millis(800)));
    let mut ends = Vec::new();
    for _ in 0..3 {
        way.take_requests();
        let stalled =
            loading.advance(&mut CollectingSink::default()).await.expect_err("it is slow");
        assert!(matches!(stalled.failure, QueryError::Timeout(_)), "{stalled}");
        let asked = way.take_requests();
        let range = asked.iter().find(|asked| asked.contains("query_range?")).expect("one");
        let (_, rest) = range.split_once("end=").expect("it has an end");
        ends.push(rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    }
    assert!(ends.is_sorted_by(|longer, shorter| shorter < longer), "{ends:?}");
    way.fail_all(Fault::None);
    let mut remember = CollectingSink::default();
    loading.advance(&mut remember).await.expect("it is not slow any more");
    assert_eq!(remember.samples_of("db", "app", "db-0").expect("it is there").cpu.len(), 24 * 60);
}
