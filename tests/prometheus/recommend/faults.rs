//! Faults between the command and its Prometheus: no number from half a history, and one clear line.

use std::{path::Path, time::Duration};

use plimsoll::{
    cli::recommend_config,
    cluster::clock::Clock,
    report::recommend::run::{NoProgress, run_recommend},
};
use plimsoll_core::{
    rightsizing::report::{Report, ResourceReport},
    types::Time,
};

use super::{
    process::recommend,
    states::{HASH, WorkloadStates},
};
use crate::{
    prometheus::{
        history::collecting_sink::hours,
        proxy::{Fault, FaultyProxy},
        recommender::fixture::with_usage,
    },
    support::prometheus_server::{PrometheusRelease, PrometheusServer},
};

/// The path of all queries for history.
const HISTORY: &str = "/api/v1/query_range";
const NO_KUBECONFIG: &str = "/nonexistent";
const LOGIN: &str = "<!doctype html><html><head><title>Sign in</title></head></html>";
const STARTING: &str = r#"{"status":"error","errorType":"unavailable","error":"starting"}"#;

fn rows(report: &Report) -> Vec<&ResourceReport> {
    let workloads = report.workloads.iter();
    let containers = workloads.flat_map(|workload| &workload.containers);
    containers.flat_map(|container| &container.resources).collect()
}

/// Requests and targets.
fn numbers(report: &Report) -> Vec<[Option<i64>; 4]> {
    rows(report).iter().map(|row| [row.request, row.lower, row.target, row.upper]).collect()
}

#[tokio::test]
async fn a_fault_of_the_server_gives_no_number_and_a_clear_line() {
    let (mut history, end) = hours(49);
    for (name, cores) in [("web", 0.5), ("search", 2.0)] {
        let pods = [format!("{name}-{HASH}-x2x4z")];
        history = with_usage(history, "shop", &pods[0], cores, end);
        let requests = [1.0, 1e9];
        let states = WorkloadStates {
            namespace: "shop",
            kind: "Deployment",
            name,
            pods: &pods,
            requests,
            memory_limit: None,
        };
        history = states.add_to(history);
    }
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await;
    let Some(server) = server else { return };
    let proxy = FaultyProxy::start(&server.url()).await;
    let clock = Clock::fake(Time::from(end));
    let (address, until) =
        (format!("--prometheus-address={}", proxy.url()), format!("--until={}", Time::from(end)));
    let flags =
        ["--source=prometheus", &*address, &*until, "--history-length=2d", "--peak-length=2d"];
    let config = recommend_config(&flags).expect("valid flags");
    let report = async || {
        let mut progress = NoProgress;
        let work = Box::pin(run_recommend(&config, &clock, &mut progress));
        proxy.without_pauses(work).await
    };

    let healthy = report().await.expect("a report");
    assert_eq!(healthy.unread, []);
    let expected = numbers(&healthy);
    assert_eq!(expected.len(), 4);
    assert!(expected.iter().flatten().all(Option::is_some), "{expected:?}");

    // What is over after a few requests changes nothing.
    for fault in [
        Fault::Disconnected(10),
        Fault::Truncated(30),
        Fault::Busy(1),
        Fault::Replaced(503, "application/json", STARTING),
        Fault::Slow(4096, Duration::from_millis(1)),
    ] {
        proxy.fail_matching(HISTORY, fault.clone(), 2);
        let report = report().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(report.unread, [], "{fault:?}");
        assert_eq!(numbers(&report), expected, "{fault:?}");
    }

    // What lasts gives no numbers. A fault of the memory of pods alone is no reason for half an answer either.
    for (part, fault, words) in [
        (HISTORY, Fault::Disconnected(10), "truncated"),
        (HISTORY, Fault::Truncated(30), "truncated"),
        (HISTORY, Fault::Busy(1), "429 Too Many Requests"),
        (HISTORY, Fault::Replaced(503, "application/json", STARTING), "starting"),
        ("container_memory_working_set_bytes", Fault::Replaced(502, "text/html", LOGIN), "502"),
    ] {
        proxy.fail_matching(part, fault.clone(), usize::MAX);
        let lines: Vec<String> = match report().await {
            Ok(report) => {
                let unsaid = |row: &&ResourceReport| row.unsaid.is_some() && row.target.is_none();
                assert!(rows(&report).iter().all(unsaid), "{fault:?}: {:?}", numbers(&report));
                assert!(rows(&report).iter().all(|row| row.request.is_some()), "{fault:?}");
                report.unread.iter().map(|one| format!("{}: {}", one.what, one.why)).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        assert!(lines.iter().any(|line| line.contains(words)), "{fault:?}: {lines:?}");
        assert!(lines.iter().all(|line| !line.contains('\n')), "{fault:?}: {lines:?}");
    }

    // The exit codes, with a fault that is not retried.
    let run =
        async || recommend(Path::new(NO_KUBECONFIG), &[&flags[..], &["-o", "csv"]].concat()).await;
    proxy.fail_matching(HISTORY, Fault::Replaced(200, "text/html", LOGIN), usize::MAX);
    let incomplete = run().await;
    assert_eq!(incomplete.code, Some(4), "{incomplete:?}");
    assert!(incomplete.stderr.contains("plimsoll: could not read "), "{incomplete:?}");
    assert!(incomplete.stderr.contains("titled \"Sign in\""), "{incomplete:?}");
    assert_eq!(incomplete.stdout.lines().count(), 1 + expected.len(), "{incomplete:?}");
    proxy.fail_matching("/", Fault::Replaced(200, "text/html", LOGIN), usize::MAX);
    let failed = run().await;
    assert_eq!((failed.code, &*failed.stdout), (Some(1), ""), "{failed:?}");
    let errors: Vec<_> = failed.stderr.lines().filter(|line| line.contains("Sign in")).collect();
    assert_eq!(errors.len(), 1, "{failed:?}");

    proxy.fail_matching("/", Fault::None, usize::MAX);
    let recovered = run().await;
    assert_eq!((recovered.code, recovered.stdout.lines().count()), (Some(0), 1 + expected.len()));
    assert_eq!(numbers(&report().await.expect("a report")), expected);
}
