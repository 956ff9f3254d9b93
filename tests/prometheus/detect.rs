//! Detection of the series and labels of a server, for every naming.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::detect::{DetectError, SchemaOverrides, detect};
use plimsoll_storage::prometheus::history::{HistorySettings, PrometheusHistory};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, Dialect, MEMORY_METRIC, Origin, Schema};
use plimsoll_storage::prometheus::transport::WallClock;

use super::label_flavors::{ALL, LabelFlavor, MANAGED, OLD, OPERATOR};
use super::proxy::{Fault, FaultyProxy};
use super::releases::by_turns;
use super::series_collector::{client, short_limits};
use crate::support::captured_log;
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const POD: &str = "web-7d5f9c4b6d-x2x4z";

/// An hour until now with this scrape interval.
fn hour(every: SignedDuration) -> (History, Timestamp) {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    (History::new(end - SignedDuration::from_hours(1), end, every), end)
}

/// A web server with its sandbox container, and the kube-state-metrics series about it.
fn web(flavor: &LabelFlavor, mut history: History) -> History {
    for metric in [CPU_METRIC, MEMORY_METRIC] {
        history = flavor.usage(history, metric, ["shop", POD, "app"], |_| Some(1e6));
        history = flavor.usage(history, metric, ["shop", POD, ""], |_| Some(1e9));
        history = flavor.usage(history, metric, ["shop", POD, "POD"], |_| Some(1e9));
    }
    let pod = [("namespace", "shop"), ("pod", POD)];
    let owner = [("owner_kind", "ReplicaSet"), ("owner_name", "web-7d5f9c4b6d")];
    history = flavor.state(history, "kube_pod_owner", &[pod, owner].concat(), |_| Some(1.0));
    let restarts = "kube_pod_container_status_restarts_total";
    let container = [&pod[..], &[("container", "app")]].concat();
    history = flavor.state(history, restarts, &container, |_| Some(0.0));
    let set = [("namespace", "shop"), ("replicaset", "web-7d5f9c4b6d")];
    let owner = [("owner_kind", "Deployment"), ("owner_name", "web")];
    flavor.state(history, "kube_replicaset_owner", &[set, owner].concat(), |_| Some(1.0))
}

async fn found(url: &str, known: &SchemaOverrides, end: Timestamp) -> Result<Schema, DetectError> {
    detect(&client(url, short_limits()), known, &["shop"], Time::from(end)).await
}

#[tokio::test]
async fn metrics_are_detected_one_by_one_if_the_server_requires_a_metric_name_in_each_query() {
    let (history, end) = hour(SignedDuration::from_secs(30));
    let Some(server) =
        PrometheusServer::with_history(PrometheusRelease::V3, web(&MANAGED, history)).await
    else {
        return;
    };
    let at_once = found(&server.url(), &SchemaOverrides::default(), end).await.expect("found");
    let proxy = FaultyProxy::start(&server.url()).await;
    proxy.reject_queries_with("__name__%3D%7E");
    let one_by_one = found(proxy.url(), &SchemaOverrides::default(), end).await.expect("found");
    assert_eq!(one_by_one, at_once);
    assert!(
        one_by_one.kube_state_metrics.is_some_and(|states| states.has_family("kube_pod_owner"))
    );
}

#[tokio::test]
async fn metrics_and_labels_are_detected_for_every_installation() {
    for (flavor, release) in by_turns(ALL) {
        let (history, end) = hour(SignedDuration::from_secs(30));
        let history = web(&flavor, history);
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let schema =
            found(&server.url(), &SchemaOverrides::default(), end).await.expect(flavor.name);
        let usage = &schema.usage;
        assert_eq!(usage.container_labels(), flavor.identity, "{}", flavor.name);
        assert_eq!(usage.job.value.as_deref(), Some(flavor.usage[0].1), "{}", flavor.name);
        assert_eq!(usage.job.origin, Origin::Detected);
        assert_eq!(
            usage.containers, 1,
            "{}: replicas count once, sandboxes are ignored",
            flavor.name
        );
        let pace = schema.scrape_interval.value;
        assert_eq!((pace.interval, pace.longest_gap), (SECONDS_30, SECONDS_30), "{}", flavor.name);
        assert_eq!(schema.dialect, Dialect::PromQl);
        assert_eq!(schema.kube_state_metrics.is_some(), flavor.states.is_some(), "{}", flavor.name);
        if let Some(states) = &schema.kube_state_metrics {
            let exported = flavor.identity.map(|label| format!("{}{label}", flavor.exported));
            assert_eq!(states.container_labels().map(str::to_owned), exported, "{}", flavor.name);
            assert!(
                states.has_family("kube_pod_owner") && states.has_family("kube_replicaset_owner")
            );
        }
        let replicas: Vec<_> =
            schema.replica_labels.iter().map(|label| label.label.as_str()).collect();
        assert_eq!(replicas, Vec::from_iter(flavor.copies.map(|copies| copies.0)));
        let has_cluster = flavor.usage.contains(&("cluster", "prod"));
        assert_eq!(!schema.cluster_labels.is_empty(), has_cluster && !schema.mixes_clusters());
        assert!(!schema.to_string().contains('\n'), "{schema}");
    }
}

const SECONDS_30: Duration = Duration::from_secs(30);

#[tokio::test]
async fn configured_names_override_detection() {
    let (history, end) = hour(SignedDuration::from_mins(1));
    let mut history = web(&OPERATOR, history);
    // The kubelet exposes the same numbers on a second endpoint, and another job scrapes them a third time.
    for extra in [("kubelet", "/metrics/resource"), ("again", "")] {
        for metric in [CPU_METRIC, MEMORY_METRIC] {
            let labels = [
                ("job", extra.0),
                ("metrics_path", extra.1),
                ("namespace", "shop"),
                ("pod", POD),
                ("container", "app"),
            ];
            history = history.series(metric, &labels, |_| Some(1e6));
        }
    }
    let history = web(&OLD, history);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let url = server.url();

    let schema = found(&url, &SchemaOverrides::default(), end).await.expect("found");
    assert_eq!(schema.usage.job.value.as_deref(), Some("kubelet"));
    assert_eq!(schema.usage.metrics_path.as_deref(), Some("/metrics/cadvisor"));
    assert_eq!(schema.usage.jobs.len(), 3, "{:?}", schema.usage.jobs);

    let some = |text: &str| Some(text.to_owned());
    for (job, path) in [("kubelet", Some("/metrics/cadvisor")), ("again", None), ("", None)] {
        let known = SchemaOverrides { job: some(job), ..SchemaOverrides::default() };
        let schema = found(&url, &known, end).await.expect("found");
        assert_eq!(schema.usage.job.value.as_deref().unwrap_or_default(), job);
        assert_eq!(
            schema.usage.metrics_path.as_deref(),
            path,
            "{job}: only one of its endpoints is read"
        );
    }
    let known = SchemaOverrides {
        job: some("kubernetes-cadvisor"),
        pod: some("pod_name"),
        container: some("container_name"),
        scrape_interval: Some(SECONDS_30),
        ..SchemaOverrides::default()
    };
    let schema = found(&url, &known, end).await.expect("found");
    assert_eq!(schema.usage.job.origin, Origin::Configured);
    assert_eq!(schema.usage.container_labels(), ["namespace", "pod_name", "container_name"]);
    assert_eq!((schema.usage.containers, schema.scrape_interval.value.interval), (1, SECONDS_30));

    let matchers = [r#"cluster="none""#.parse().expect("a matcher")].into_iter().collect();
    let lost = SchemaOverrides { matchers, ..SchemaOverrides::default() };
    let line = found(&url, &lost, end).await.expect_err("nothing there").to_string();
    assert!(line.contains(r#"cluster="none""#) && !line.contains('\n'), "{line}");
}

#[tokio::test]
async fn series_and_owners_of_an_hour_ago_are_detected() {
    let (history, end) = hour(SignedDuration::from_secs(30));
    let Some(server) =
        PrometheusServer::with_history(PrometheusRelease::V3, web(&OPERATOR, history)).await
    else {
        return;
    };
    let now = found(&server.url(), &SchemaOverrides::default(), end).await.expect("found");
    let later = end + SignedDuration::from_hours(1);
    let then = found(&server.url(), &SchemaOverrides::default(), later).await.expect("found");
    assert!(now.kube_state_metrics.is_some());
    assert_eq!((then.usage, then.kube_state_metrics), (now.usage, now.kube_state_metrics));
}

#[tokio::test]
async fn missing_metrics_are_detected_again_later() {
    let (log, _guard) = captured_log::capture();
    let (mut history, end) = hour(SignedDuration::from_secs(30));
    let ago = |minutes: i64| end - SignedDuration::from_mins(minutes);
    for metric in [CPU_METRIC, MEMORY_METRIC] {
        history = OPERATOR.usage(history, metric, ["shop", POD, "app"], |_| Some(1e6));
    }
    let owner = [("owner_kind", "ReplicaSet"), ("owner_name", "web-7d5f9c4b6d")];
    let labels = [&[("namespace", "shop"), ("pod", POD)], &owner[..]].concat();
    let since = ago(20);
    history =
        OPERATOR.state(history, "kube_pod_owner", &labels, move |at| (at >= since).then_some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let clock = Clock::fake(ago(25).into());
    let proxy = FaultyProxy::start(&server.url()).await;
    let own = clock.clone();
    let (client, now) = (client(proxy.url(), short_limits()), WallClock::new(move || own.now()));
    let storage = PrometheusHistory::new(proxy.url(), client, HistorySettings::default(), now);
    let mut request_counts = Vec::new();
    for (minutes, is_there) in [(0, false), (8, false), (3, true), (14, true)] {
        clock.step(Duration::from_mins(minutes));
        let schema = storage.schema(&["shop"]).await.expect("found");
        assert_eq!(schema.kube_state_metrics.is_some(), is_there, "{minutes} minutes later");
        request_counts.push(proxy.take_requests().len());
    }
    assert!(
        request_counts[1] == 0 && request_counts[2] > 0 && request_counts[3] == 0,
        "not due yet: {request_counts:?}"
    );
    let lines = log.lines(&["detected metric and label names of Prometheus"]);
    assert_eq!(lines.len(), 2, "once, and again after a change: {lines:?}");
    assert!(
        lines[0].contains("no kube-state-metrics") && !lines[1].contains("no kube-state-metrics")
    );
}

/// The kubelet job was renamed by an upgrade of the monitoring, forty minutes before the end.
fn renamed(mut history: History, end: Timestamp) -> History {
    let renamed = end - SignedDuration::from_mins(40);
    for (job, is_new) in [("kubelet", false), ("node-agent", true)] {
        for metric in [CPU_METRIC, MEMORY_METRIC] {
            let labels = [("job", job), ("namespace", "shop"), ("pod", POD), ("container", "app")];
            history = history
                .series(metric, &labels, move |at| ((at >= renamed) == is_new).then_some(1e6));
        }
    }
    let owner = [("owner_kind", "ReplicaSet"), ("owner_name", "web-7d5f9c4b6d")];
    let labels = [&[("namespace", "shop"), ("pod", POD)], &owner[..]].concat();
    OPERATOR.state(history, "kube_pod_owner", &labels, |_| Some(1.0))
}

#[tokio::test]
async fn renamed_series_are_detected_after_empty_results_and_within_an_hour() {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let begin = end - SignedDuration::from_hours(4);
    let history = renamed(History::new(begin, end, SignedDuration::from_secs(30)), end);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    let from = |minutes: i64| {
        let clock = Clock::fake((end - SignedDuration::from_mins(minutes)).into());
        let (own, client) = (clock.clone(), client(proxy.url(), short_limits()));
        let now = WallClock::new(move || own.now());
        (clock, PrometheusHistory::new(proxy.url(), client, HistorySettings::default(), now))
    };
    let job = async |storage: &PrometheusHistory| {
        let schema = storage.schema(&["shop"]).await.expect("found before");
        schema.usage.job.value.clone().unwrap_or_default()
    };

    let (clock, storage) = from(45);
    assert_eq!(job(&storage).await, "kubelet");
    clock.step(Duration::from_mins(15));
    proxy.take_requests();
    for containers in [0, 0, 1, 0, 0] {
        storage.record_read(containers);
        assert_eq!(job(&storage).await, "kubelet");
    }
    assert!(proxy.take_requests().is_empty(), "two empty results in a row may be a coincidence");
    storage.record_read(0);
    assert_eq!(job(&storage).await, "node-agent");
    proxy.take_requests();
    for _ in 0..3 {
        storage.record_read(0);
    }
    assert_eq!(
        (job(&storage).await, proxy.take_requests().len()),
        ("node-agent".to_owned(), 0),
        "too soon"
    );

    let (clock, storage) = from(170);
    assert_eq!(job(&storage).await, "kubelet");
    clock.step(Duration::from_mins(59));
    proxy.take_requests();
    assert_eq!((job(&storage).await, proxy.take_requests().len()), ("kubelet".to_owned(), 0));
    clock.step(Duration::from_mins(11));
    proxy.fail_all(Fault::Replaced(400, "text/plain", "no"));
    assert_eq!(job(&storage).await, "kubelet", "a rejected request changes nothing");
    proxy.fail_all(Fault::None);
    clock.step(Duration::from_mins(70));
    assert_eq!(job(&storage).await, "node-agent");
}
