//! A workload gets the history of all of its pods, including deleted ones, and of no others.

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::{LoadRequest, Storage as _};

use super::collecting_sink::{
    CollectingSink, MINUTE, hours, last, nearly, owners_of, read, storage,
};
use crate::prometheus::label_flavors::{ALL, LabelFlavor, OPERATOR};
use crate::prometheus::releases::{by_turns, releases};
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const FIRST: &str = "web-7d5f9c4b6d-x2x4z";
const SECOND: &str = "web-5d4f9c4b6d-bbbbb";
const NEIGHBOUR: &str = "web-api-7d5f9c4b6d-x2x4z";
/// A pod of the StatefulSet of the same name.
const ORDINAL: &str = "web-0";
const LONGER: &str = "my-web-7d5f9c4b6d-x2x4z";
/// A pod of the DaemonSet `web-bcdf4`, whose name looks like one of Deployment `web`.
const ALIKE: &str = "web-bcdf4-x2x4z";
/// A pod of the Deployment, whose name does not show it.
const ODD: &str = "web-by-hand";

/// A pod with one container, and its CPU and memory while it lives.
fn pod(
    flavor: &LabelFlavor,
    mut history: History,
    pod: &str,
    (cores, bytes): (f64, f64),
    is_running: impl Fn(Timestamp) -> bool + Send + Clone + 'static,
) -> History {
    let names = ["shop", pod, "app"];
    let alive = is_running.clone();
    let used = move |now: Timestamp| {
        alive(now).then_some((now.as_second() - 1_700_000_000) as f64 * cores)
    };
    history = flavor.usage(history, CPU_METRIC, names, used);
    flavor.usage(history, MEMORY_METRIC, names, move |now| is_running(now).then_some(bytes))
}

/// An owner series of kube-state-metrics.
fn owned(flavor: &LabelFlavor, history: History, pod: &str, kind: &str, name: &str) -> History {
    let labels = [("namespace", "shop"), ("pod", pod), ("owner_kind", kind), ("owner_name", name)];
    flavor.state(history, "kube_pod_owner", &labels, |_| Some(1.0))
}

fn set(flavor: &LabelFlavor, history: History, name: &str, owner: &str) -> History {
    let labels = [
        ("namespace", "shop"),
        ("replicaset", name),
        ("owner_kind", "Deployment"),
        ("owner_name", owner),
    ];
    flavor.state(history, "kube_replicaset_owner", &labels, |_| Some(1.0))
}

/// A Deployment whose pod was replaced half-way, and neighbours of all sorts.
fn shop(flavor: &LabelFlavor, mut history: History, half: Timestamp) -> History {
    history = pod(flavor, history, FIRST, (0.25, 1e8), move |now| now <= half);
    history = pod(flavor, history, SECOND, (0.5, 2e8), move |now| now > half);
    for neighbour in [NEIGHBOUR, ORDINAL, LONGER, ALIKE, ODD] {
        history = pod(flavor, history, neighbour, (3.0, 3e9), |_| true);
    }
    for (name, kind, owner) in [
        (FIRST, "ReplicaSet", "web-7d5f9c4b6d"),
        (SECOND, "ReplicaSet", "web-5d4f9c4b6d"),
        (NEIGHBOUR, "ReplicaSet", "web-api-7d5f9c4b6d"),
        (ALIKE, "DaemonSet", "web-bcdf4"),
        (ODD, "ReplicaSet", "web-5d4f9c4b6d"),
        (ORDINAL, "StatefulSet", "web"),
        (LONGER, "ReplicaSet", "my-web-7d5f9c4b6d"),
    ] {
        history = owned(flavor, history, name, kind, owner);
    }
    history = set(flavor, history, "web-7d5f9c4b6d", "web");
    history = set(flavor, history, "web-5d4f9c4b6d", "web");
    set(flavor, history, "web-api-7d5f9c4b6d", "web-api")
}

#[tokio::test]
async fn each_workload_gets_its_own_pods_with_every_labelling() {
    for (flavor, release) in by_turns(ALL) {
        let (history, end) = hours(26);
        let half = end - SignedDuration::from_hours(12);
        let Some(server) =
            PrometheusServer::with_history(release, shop(&flavor, history, half)).await
        else {
            return;
        };
        let vpas = [("web", "apps/Deployment/web"), ("again", "apps/Deployment/web")];
        let (sink, report) = read(&server.url(), last(24), end, &vpas).await;
        let name = format!("{} on {release:?}", flavor.name);
        let mut pods = vec![SECOND, FIRST];
        if flavor.states.is_some() {
            // Owner series take precedence over names.
            pods.push(ODD);
        } else {
            pods.push(ALIKE);
        }
        pods.sort_unstable();
        assert_eq!(sink.pods("web"), pods, "{name}");
        assert_eq!(sink.pods("again"), pods, "{name}: both VPAs have it");

        let first = sink.samples_of("web", "app", FIRST).expect("the deleted pod has samples");
        let second = sink.samples_of("web", "app", SECOND).expect("alive");
        // Two scrapes make a sample, and the last two are visible for a minute more.
        assert_eq!((first.cpu.len(), second.cpu.len()), (721, 719), "{name}");
        assert_eq!((first.memory.len(), second.memory.len()), (144, 144), "{name}");
        assert!(first.covers.iter().all(|covers| *covers == Some(MINUTE)));
        assert!(first.cpu.iter().all(|(_, cores)| nearly(*cores, 0.25)), "{name}");
        assert!(second.cpu.iter().all(|(_, cores)| nearly(*cores, 0.5)), "{name}");
        assert!(second.memory.iter().all(|(_, bytes)| *bytes == 2e8), "{name}");
        let start = Time::from(end - SignedDuration::from_hours(24));
        assert_eq!(first.cpu[0].0, start.later(MINUTE), "{name}");
        assert_eq!(first.memory[0].0, start.later(5 * MINUTE), "{name}");
        assert_eq!(second.cpu[718].0, Time::from(end), "{name}");
        assert_eq!(report.skipped.unlabelled, 0);
        let all: usize = sink.replicas.values().map(|r| r.cpu.len() + r.memory.len()).sum();
        assert_eq!(report.samples, all as u64);
    }
}

#[tokio::test]
async fn a_matcher_separates_clusters_in_one_server() {
    for release in releases() {
        let (mut history, end) = hours(3);
        let flavor = |cluster: &'static [(&'static str, &'static str)]| LabelFlavor {
            usage: cluster,
            copies: None,
            ..OPERATOR
        };
        for (flavor, bytes) in [
            (flavor(&[("job", "kubelet"), ("cluster", "qa")]), 1e8),
            (flavor(&[("job", "kubelet"), ("cluster", "prod")]), 7e8),
        ] {
            history = pod(&flavor, history, FIRST, (0.5, bytes), |_| true);
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let vpas = [("web", "apps/Deployment/web")];
        let mut settings = last(2);
        settings.overrides.matchers =
            [r#"cluster="qa""#.parse().expect("one")].into_iter().collect();
        let (sink, _) = read(&server.url(), settings, end, &vpas).await;
        let web = sink.samples_of("web", "app", FIRST).expect("exists");
        assert!(web.memory.iter().all(|(_, bytes)| *bytes == 1e8));

        let mixed = storage(&server.url(), short_limits(), last(2), end);
        let schema = mixed.schema(&["shop"]).await.expect("schema detected");
        assert!(schema.mixes_clusters(), "{schema}");
        assert!(schema.to_string().contains("clusters by cluster: prod, qa"), "{schema}");
    }
}

#[tokio::test]
async fn as_a_storage_backend_prometheus_reads_everything_and_never_writes() {
    let (history, end) = hours(3);
    let history = shop(&OPERATOR, history, end - SignedDuration::from_hours(1));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let storage = storage(&server.url(), short_limits(), last(2), end);
    assert!(storage.writer().is_none() && !storage.is_in_cluster());
    let mut sink = CollectingSink::default();
    let mut vpas = owners_of(&[("web", "apps/Deployment/web"), ("gone", "apps/Deployment/gone")]);
    vpas.insert(plimsoll_core::types::ObjectKey::new("shop", "lost"), None);
    let report = storage.load(&LoadRequest::Vpas(vpas), &mut sink).await.expect("read");
    assert_eq!(report.snapshots, 0);
    assert!(report.samples > 100, "{report:?}");
    let skipped: Vec<_> = report.skipped.iter().map(|skipped| skipped.record.as_str()).collect();
    assert_eq!(skipped, ["shop/lost"], "a workload without history is not reported");
    let everything = storage.load(&LoadRequest::All, &mut sink).await;
    assert!(everything.expect_err("not a Prometheus response").to_string().contains("VPAs"));
}
