//! A failed query is reported, leaves only its own values unknown, and does not affect the others.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::container_usage::pod_metrics::UsageError;
use plimsoll_storage::prometheus::detect::SchemaOverrides;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC, Schema};

use super::{fetch, fetch_within, schema, short};
use crate::prometheus::label_flavors::OPERATOR;
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

/// Longer than any healthy request takes. The clock steps past it while a fault is in progress.
const LIMIT: Duration = Duration::from_hours(1);
const BAD: Fault = Fault::Replaced(
    400,
    "application/json",
    r#"{"status":"error","errorType":"bad_data","error":"no such thing"}"#,
);
const LARGE: Fault = Fault::Replaced(
    422,
    "application/json",
    r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#,
);

/// Two pods in two namespaces, which are queried in separate batches.
struct Fixture {
    proxy: FaultyProxy,
    schema: Schema,
    wanted: Vec<String>,
    end: Timestamp,
    _server: PrometheusServer,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
        let start = end - SignedDuration::from_mins(10);
        let mut history = History::new(start, end, SignedDuration::from_secs(15));
        for (namespace, pod) in [("a", "first-0"), ("z", "second-0")] {
            let container = [namespace, pod, "main"];
            let counted = |now: Timestamp| Some((now.as_second() - 1_700_000_000) as f64 / 4.0);
            history = OPERATOR.usage(history, CPU_METRIC, container, counted);
            history = OPERATOR.usage(history, MEMORY_METRIC, container, |_| Some(1e8));
        }
        let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
        let proxy = FaultyProxy::start(&server.url()).await;
        let schema = schema(&server.url(), &SchemaOverrides::default(), &["a", "z"], end).await;
        let filler = |number| format!("nobody-is-here-{number:0>40}");
        let mut wanted: Vec<String> = (0..80).map(filler).collect();
        wanted.extend(["a".to_owned(), "z".to_owned()]);
        Some(Self { proxy, schema, wanted, end, _server: server })
    }

    fn wanted(&self) -> Vec<&str> {
        self.wanted.iter().map(String::as_str).collect()
    }
}

#[tokio::test]
async fn a_failed_query_does_not_affect_other_queries() {
    let Some(fixture) = Fixture::new().await else { return };
    let main = |cpu, memory| vec![("main", cpu, memory)];
    let fine = || main(Some(250), Some(100_000_000));
    // Memory and CPU of the first batch, then of the second.
    let (first, second) = (("first-0", 0, fine(), false), ("second-0", 0, fine(), false));
    let no_memory = ("first-0", 0, main(Some(250), None), true);
    let no_cpu = ("second-0", 0, main(None, Some(100_000_000)), true);
    for (faults, failed, seen, found) in [
        (vec![], 0, 4, vec![first.clone(), second.clone()]),
        (vec![BAD], 1, 4, vec![no_memory, second.clone()]),
        (vec![Fault::None, Fault::None, Fault::None, BAD], 1, 4, vec![first.clone(), no_cpu]),
        (vec![BAD, BAD], 2, 4, vec![second.clone()]),
        // Temporary errors are retried once.
        (vec![Fault::Busy(0)], 0, 5, vec![first.clone(), second.clone()]),
        (vec![Fault::Disconnected(200)], 0, 5, vec![first.clone(), second.clone()]),
        (vec![Fault::Busy(0), Fault::Busy(0), BAD], 2, 5, vec![second.clone()]),
    ] {
        fixture.proxy.fail_next(faults.clone());
        let before = fixture.proxy.request_count();
        let (report, pods) =
            fetch(fixture.proxy.url(), &fixture.schema, &fixture.wanted(), fixture.end).await;
        let report = report.expect("got a response");
        assert_eq!(short(&pods, fixture.end), found, "{faults:?}");
        assert_eq!((report.failed, report.pods), (failed, found.len() as u64), "{faults:?}");
        assert_eq!(fixture.proxy.request_count() - before, seen, "{faults:?}");
        for failure in &report.failures {
            let line = failure.to_string();
            assert!(line.contains(" namespaces (") && !line.contains('\n'), "{line}");
        }
    }
    fixture.proxy.fail_next(vec![BAD; 4]);
    let (report, pods) =
        fetch(fixture.proxy.url(), &fixture.schema, &fixture.wanted(), fixture.end).await;
    let error = report.expect_err("no response");
    assert!(matches!(error, UsageError::Prometheus { .. }) && pods.is_empty(), "{error}");
    let line = error.to_string();
    assert!(
        line.starts_with("Prometheus query for memory in ") && line.contains("no such thing"),
        "{line}"
    );

    fixture.proxy.fail_next([]);
    let (report, pods) =
        fetch(fixture.proxy.url(), &fixture.schema, &["nobody"], fixture.end).await;
    let report = report.expect("an empty result is valid");
    assert!(report.is_complete() && report.pods == 0 && pods.is_empty());
    let before = fixture.proxy.request_count();
    let (report, _) = fetch(fixture.proxy.url(), &fixture.schema, &[], fixture.end).await;
    assert!(
        report.is_ok() && fixture.proxy.request_count() == before,
        "without namespaces nothing is queried"
    );
}

#[tokio::test]
async fn a_response_that_is_too_large_is_split() {
    let Some(fixture) = Fixture::new().await else { return };
    fixture.proxy.fail_next([LARGE, Fault::None, LARGE]);
    let before = fixture.proxy.request_count();
    let (report, pods) =
        fetch(fixture.proxy.url(), &fixture.schema, &fixture.wanted(), fixture.end).await;
    let report = report.expect("query succeeded");
    assert_eq!((report.pods, report.failed), (2, 0), "{report:?}");
    assert!(pods.iter().all(|pod| !pod.is_incomplete));
    // Memory of all; memory and CPU of one half; memory and CPU of its two quarters, and of the other half.
    assert_eq!(fixture.proxy.request_count() - before, 1 + 2 + 2 * 2 + 2 + 2);

    fixture.proxy.fail_next([LARGE]);
    let (report, pods) = fetch(fixture.proxy.url(), &fixture.schema, &["z"], fixture.end).await;
    let error = report.expect_err("one namespace cannot be halved");
    assert!(error.to_string().contains("memory in namespace z"), "{error}");
    assert!(pods.is_empty());
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let Some(fixture) = Fixture::new().await else { return };
    for (faults, pods) in [
        (vec![Fault::Hang], 0),
        // Half of the body arrives, then nothing.
        (vec![Fault::Slow(200, LIMIT * 2)], 0),
        (vec![Fault::None, Fault::None, Fault::Hang], 1),
        (vec![Fault::None, Fault::Hang], 1),
    ] {
        fixture.proxy.fail_next(faults.clone());
        let before = fixture.proxy.request_count();
        let wanted = fixture.wanted();
        let read = fetch_within(fixture.proxy.url(), &fixture.schema, &wanted, fixture.end, LIMIT);
        let timeout = fixture.proxy.time_out_at(before + faults.len(), LIMIT);
        let ((report, found), ()) = tokio::join!(read, timeout);
        let failure = match report {
            Ok(report) => report.failures.into_iter().next(),
            Err(error) => Some(error),
        };
        let failure = failure.expect("not answered");
        assert!(matches!(failure, UsageError::Timeout { .. }), "{failure}");
        assert!(failure.to_string().contains("namespaces"), "{failure}");
        assert_eq!(found.len(), pods, "{faults:?}");
        assert_eq!(
            fixture.proxy.request_count() - before,
            faults.len(),
            "no further query is sent"
        );
        let has_all = found.iter().all(|pod| !pod.is_incomplete);
        assert_eq!(has_all, faults.len() != 2, "{faults:?}");
    }
}
