//! Recorded usage series are read instead of the raw ones if they are complete, with the same results.

use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::PrometheusClient;
use plimsoll_storage::prometheus::history::{HistorySettings, PrometheusHistory};
use plimsoll_storage::prometheus::schema::{
    CPU_METRIC, MEMORY_METRIC, RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules,
};
use plimsoll_storage::prometheus::transport::WallClock;
use serde_json::json;

use super::collecting_sink::{
    CollectingSink, MINUTE, PodSamples, hours, last, nearly, owners_of, read,
};
use super::recording_transport::RecordingTransport;
use crate::prometheus::label_flavors::{AGENT, LabelFlavor, OPERATOR};
use crate::prometheus::releases::{by_turns, releases};
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/recommender/rules.yaml");
const VPAS: [(&str, &str); 1] = [("db", "apps/StatefulSet/db")];

/// A time in minutes.
fn minute(at: Timestamp) -> i64 {
    at.as_second() / 60
}

/// CPU seconds up to this minute, with a burst in nine minutes of ten.
fn counter(minute: i64) -> f64 {
    (40 * minute + 3 * (minute % 10)) as f64
}

fn cores(minute: i64) -> f64 {
    (counter(minute) - counter(minute - 1)) / 60.0
}

fn bytes(minute: i64) -> f64 {
    1e8 + (minute * 7919 % 1000) as f64 * 1e5
}

/// Usage of two pods over some hours; one ends half-way.
fn usage(flavor: &LabelFlavor, hours_of_it: i64) -> (History, Timestamp, Timestamp) {
    let (mut history, end) = hours(hours_of_it);
    let half = end - SignedDuration::from_hours(2);
    for (pod, last) in [("db-0", end), ("db-1", half)] {
        let names = ["shop", pod, "app"];
        let used = move |now: Timestamp| (now <= last).then(|| counter(minute(now)));
        history = flavor.usage(history, CPU_METRIC, names, used);
        let memory = move |now: Timestamp| (now <= last).then(|| bytes(minute(now)));
        history = flavor.usage(history, MEMORY_METRIC, names, memory);
    }
    (history, end, half)
}

/// The series that the rules would have recorded from `from` on.
fn recordings(
    mut history: History,
    (from, half, end): (Timestamp, Timestamp, Timestamp),
) -> History {
    for (pod, last) in [("db-0", end), ("db-1", half)] {
        for replica in ["a", "b"] {
            let labels = [
                ("namespace", "shop"),
                ("pod", pod),
                ("container", "app"),
                ("prometheus_replica", replica),
            ];
            // The last two scrapes are visible for a minute more.
            let cpu = move |now: Timestamp| {
                let is_known = now >= from && now <= last + SignedDuration::from_mins(1);
                is_known.then(|| cores(minute(now.min(last))))
            };
            let memory = move |now: Timestamp| {
                let held = (minute(now) - 4..=minute(now)).filter(|at| *at <= minute(last));
                held.map(bytes).reduce(f64::max).filter(|_| now >= from)
            };
            history = history.series(RECORDED_CPU_METRIC, &labels, cpu);
            history = history.series(RECORDED_MEMORY_METRIC, &labels, memory);
        }
    }
    history
}

/// Reads through a recording transport. Returns the result, the range queries, and the detected schema.
async fn read_recorded(
    server: &PrometheusServer,
    settings: HistorySettings,
    end: Timestamp,
    after: Option<Time>,
) -> (CollectingSink, Vec<String>, RecordingRules) {
    let recorder = RecordingTransport::in_front_of(&server.url());
    let client = PrometheusClient::new(recorder.clone(), short_limits());
    let now = WallClock::new(move || end.into());
    let storage = PrometheusHistory::new("here", client, settings, now);
    let (mut loading, _) =
        storage.start_load(&owners_of(&VPAS), after, None).await.expect("load started");
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("read");
    let ranges =
        recorder.take().into_iter().filter(|request| request.path.ends_with("/query_range"));
    let query = |(name, text): (String, String)| (name == "query").then_some(text);
    let ranges = ranges.flat_map(|request| request.form.into_iter().filter_map(query)).collect();
    (sink, ranges, loading.schema().recording_rules)
}

fn same(one: &PodSamples, other: &PodSamples) -> bool {
    let same = |one: &[(Time, f64)], other: &[(Time, f64)]| {
        one.len() == other.len()
            && one.iter().zip(other).all(|(a, b)| a.0 == b.0 && nearly(a.1, b.1))
    };
    same(&one.cpu, &other.cpu) && same(&one.memory, &other.memory) && one.covers == other.covers
}

#[tokio::test]
async fn complete_recording_rules_are_used_and_give_the_same_history() {
    for (flavor, release) in by_turns([OPERATOR, AGENT]) {
        let (history, end, half) = usage(&flavor, 6);
        let always = end - SignedDuration::from_hours(6) + SignedDuration::from_mins(1);
        let history = recordings(history, (always, half, end));
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let (recorded, queries, of) = read_recorded(&server, last(5), end, None).await;
        let name = format!("{} on {release:?}", flavor.name);
        assert_eq!(of, RecordingRules::Complete, "{name}");
        assert!(queries.len() >= 2, "{queries:?}");
        for query in queries {
            assert!(query.contains("(last_over_time(plimsoll:"), "{name}: {query}");
        }

        let (history, ..) = usage(&flavor, 6);
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let (raw, queries, of) = read_recorded(&server, last(5), end, None).await;
        assert_eq!(of, RecordingRules::Absent, "{name}");
        assert!(!queries.iter().any(|query| query.contains("plimsoll:")), "{name}");
        assert_eq!(raw.pods("db"), ["db-0", "db-1"]);
        for (key, replica) in &raw.replicas {
            assert!(same(replica, &recorded.replicas[key]), "{name}: {}", key.1);
        }
        assert_eq!((raw.replicas.len(), raw.whole), (recorded.replicas.len(), recorded.whole));
    }
}

#[tokio::test]
async fn recording_rules_are_used_only_if_they_cover_the_requested_time() {
    let (history, end, half) = usage(&OPERATOR, 6);
    let recent = end - SignedDuration::from_mins(70);
    let history = recordings(history, (recent, half, end));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let (sink, queries, of) = read_recorded(&server, last(5), end, None).await;
    let from = Time::from(end - SignedDuration::from_hours(5));
    assert_eq!(of, RecordingRules::Incomplete { at: from, containers: 0, total_containers: 2 });
    assert!(queries.iter().all(|query| !query.contains("plimsoll:")), "{queries:?}");
    let db = sink.samples_of("db", "app", "db-0").expect("exists");
    assert_eq!((db.cpu.len(), db.memory.len()), (300, 60));

    let after = Time::from(end).earlier(60 * MINUTE);
    let (sink, queries, of) = read_recorded(&server, last(5), end, Some(after)).await;
    assert_eq!(of, RecordingRules::Complete, "the last hour is fully recorded");
    assert!(queries.iter().all(|query| query.contains("plimsoll:")), "{queries:?}");
    let newest = sink.samples_of("db", "app", "db-0").expect("exists");
    assert_eq!((newest.cpu.len(), newest.memory.len()), (60, 12));
    assert!(newest.cpu.iter().zip(&db.cpu[240..]).all(|(a, b)| a.0 == b.0 && nearly(a.1, b.1)));

    let storage = super::collecting_sink::storage(&server.url(), short_limits(), last(5), end);
    let line = storage.schema(&["shop"]).await.expect("schema detected").to_string();
    assert!(
        line.contains("recorded for 0 of 2 containers") && line.contains("not using"),
        "{line}"
    );
}

#[tokio::test]
async fn the_shipped_rules_record_the_same_as_the_history_queries() {
    for release in releases() {
        let (history, end, half) = usage(&OPERATOR, 6);
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let (raw, _) = read(&server.url(), last(5), end, &VPAS).await;
        promtool(&server, &["check", "rules", RULES]);
        let start = (end - SignedDuration::from_mins(310)).as_second();
        promtool(
            &server,
            &[
                "tsdb",
                "create-blocks-from",
                "rules",
                &format!("--url={}", server.url()),
                &format!("--start={start}"),
                &format!("--end={}", end.as_second()),
                &format!("--output-dir={}", server.data_folder().display()),
                RULES,
            ],
        );
        server.restart().await;
        let (recorded, queries, of) = read_recorded(&server, last(5), end, None).await;
        assert_eq!(of, RecordingRules::Complete, "{release:?}");
        assert!(queries.iter().all(|query| query.contains("plimsoll:")), "{queries:?}");
        for (pod, last) in [("db-0", end), ("db-1", half)] {
            let before = raw.samples_of("db", "app", pod).expect("exists");
            let after = recorded.samples_of("db", "app", pod).expect("exists");
            assert!(after.cpu.len().abs_diff(before.cpu.len()) <= 1, "{pod} on {release:?}");
            assert!(after.memory.len().abs_diff(before.memory.len()) <= 1, "{pod} on {release:?}");
            // A server evaluates rules at any time within the interval, so they may see the scrape before.
            let of = |at: Time, older: i64| (at.as_secs() / 60 - older).min(minute(last));
            let is_cpu =
                |older| after.cpu.iter().all(|(at, value)| nearly(*value, cores(of(*at, older))));
            assert!(is_cpu(0) || is_cpu(1), "{pod} on {release:?}: {:?}", after.cpu);
            let peak = |at: Time, older: i64| {
                let now = at.as_secs() / 60 - older;
                (now - 4..=now.min(minute(last))).map(bytes).fold(0.0, f64::max)
            };
            let is_memory =
                |older| after.memory.iter().all(|(at, value)| *value == peak(*at, older));
            assert!(is_memory(0) || is_memory(1), "{pod} on {release:?}: {:?}", after.memory);
        }
    }
}

fn promtool(server: &PrometheusServer, arguments: &[&str]) {
    let output = Command::new(&server.programs().tool).args(arguments).output().expect("starts");
    assert!(output.status.success(), "promtool {arguments:?}: {output:?}");
}

#[tokio::test]
async fn the_shipped_rules_deduplicate_series_and_exclude_sandboxes() {
    let container = |more: &str| format!(r#"{{namespace="shop",pod="db-0"{more}}}"#);
    let series = |metric: &str, more: &str, values: &str| json!({"series": format!("{metric}{}", container(more)), "values": values});
    let app = r#",container="app",job="kubelet",prometheus_replica="a""#;
    let copy = r#",container="app",job="kubelet",prometheus_replica="b""#;
    let expected = |metric: &str, at: &str, value: f64| {
        let labels = format!("{metric}{}", container(r#",container="app""#));
        json!({
            "expr": metric,
            "eval_time": at,
            "exp_samples": [{"labels": labels, "value": value}],
        })
    };
    let test = json!({
        "rule_files": [RULES],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [
                series(CPU_METRIC, app, "0 30 60 120 150 180 210 240 0 6"),
                series(CPU_METRIC, copy, "0 30 60 120 150 180 210 240 0 6"),
                series(CPU_METRIC, "", "0+600x9"),
                series(CPU_METRIC, r#",container="POD""#, "0+600x9"),
                series(MEMORY_METRIC, app, "1 9 1 1 1 1 1 1 1 1"),
                series(MEMORY_METRIC, copy, "1 8 1 1 1 1 1 1 1 1"),
                series(MEMORY_METRIC, "", "100+0x9"),
            ],
            "promql_expr_test": [
                expected(RECORDED_CPU_METRIC, "2m", 0.5),
                // Bursts are preserved, and a counter that resets starts at zero.
                expected(RECORDED_CPU_METRIC, "3m", 1.0),
                expected(RECORDED_CPU_METRIC, "4m", 0.5),
                expected(RECORDED_CPU_METRIC, "8m", 0.0),
                expected(RECORDED_CPU_METRIC, "9m", 0.1),
                expected(RECORDED_MEMORY_METRIC, "5m", 9.0),
                expected(RECORDED_MEMORY_METRIC, "6m", 1.0),
            ],
        }],
    });
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("test.json");
    std::fs::write(&file, test.to_string()).expect("writes");
    let file = file.to_str().expect("UTF-8");
    for release in releases() {
        let (history, _) = hours(1);
        let history = history.series("up", &[], |_| Some(1.0));
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        promtool(&server, &["test", "rules", file]);
    }
}
