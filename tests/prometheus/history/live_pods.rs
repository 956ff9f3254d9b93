//! Running pods are queried by their own names, whatever those look like, and once each; the storage also knows
//! whether the server has series of a namespace.

use std::collections::HashSet;

use jiff::Timestamp;
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::prometheus::history::{HistorySettings, KnownPods, LivePods, PodLabelQuery};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::collecting_sink::{CollectingSink, MINUTE, hours, last, nearly, owners_of, storage};
use super::pod_labels::SelectByApp;
use crate::prometheus::label_flavors::{AGENT, ALL, CHART, LabelFlavor};
use crate::prometheus::releases::by_turns;
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const WEB: (&str, &str) = ("web", "apps/Deployment/web");
const DB: (&str, &str) = ("db", "apps/StatefulSet/db");
const USUAL: &str = "web-7d5f9c4b6d-x2x4z";
/// A pod of `web`, known only from the cluster.
const FRONT: &str = "front.end";
/// A pod of `web` whose name looks like one of `db`.
const ALIKE: &str = "db-7";
/// A pod of no requested workload.
const STRANGER: &str = "stranger";

fn shop(flavor: &LabelFlavor, mut history: History, pods: &[&'static str]) -> History {
    for &pod in pods {
        let names = ["shop", pod, "app"];
        let used = |at: Timestamp| Some((at.as_second() - 1_700_000_000) as f64 * 0.5);
        history = flavor.usage(history, CPU_METRIC, names, used);
        history = flavor.usage(history, MEMORY_METRIC, names, |_| Some(1e8));
    }
    history
}

async fn read(
    url: &str,
    settings: HistorySettings,
    end: Timestamp,
    live: &LivePods,
) -> CollectingSink {
    let storage = storage(url, short_limits(), settings, end);
    let owners =
        storage.pod_ownership(&["shop"], None, &SelectByApp).await.expect("query succeeded");
    let pods = KnownPods { by_label: owners.as_ref(), live: Some(live) };
    let vpas = owners_of(&[WEB, DB]);
    let (mut loading, _) =
        storage.start_load_with_pods(&vpas, None, None, pods).await.expect("load started");
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("load succeeds");
    assert_eq!(sink.whole.len(), 2);
    sink
}

fn live(pods: &[&str]) -> LivePods {
    let mut live = LivePods::new();
    live.add(&ObjectKey::new("shop", WEB.0), WEB.1, pods.iter().copied());
    live
}

#[tokio::test]
async fn running_pods_are_read_whatever_their_names() {
    for (flavor, release) in by_turns(ALL) {
        let (history, end) = hours(4);
        let history = shop(&flavor, history, &[USUAL, FRONT, ALIKE, STRANGER]);
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let name = format!("{} on {release:?}", flavor.name);
        let sink = read(&server.url(), last(2), end, &LivePods::new()).await;
        assert_eq!(sink.pods("web"), [USUAL], "{name}: names alone");

        let sink = read(&server.url(), last(2), end, &live(&[USUAL, FRONT, ALIKE])).await;
        assert_eq!(sink.pods("web"), [ALIKE, FRONT, USUAL], "{name}");
        assert_eq!(sink.pods("db"), [""; 0], "{name}");
        for pod in [ALIKE, FRONT, USUAL] {
            let replica = sink.samples_of("web", "app", pod).expect("exists");
            assert_eq!((replica.cpu.len(), replica.memory.len()), (120, 24), "{name}: {pod}, once");
            assert!(replica.cpu.iter().all(|(_, cores)| nearly(*cores, 0.5)), "{name}");
        }

        let storage = storage(&server.url(), short_limits(), last(2), end);
        let all = owners_of(&[WEB]);
        let live = live(&[FRONT]);
        let pods = KnownPods { live: Some(&live), ..KnownPods::default() };
        storage.throttling(&all, 60 * MINUTE, pods).await.expect("query succeeded");
        let known =
            storage.namespaces_with_series(&["bank", "shop"]).await.expect("query succeeded");
        assert_eq!(known, HashSet::from(["shop".into()]), "{name}");
    }
}

#[tokio::test]
async fn pod_names_that_exceed_one_query_are_split_over_several() {
    // Enough pods for three queries, and enough that all pods are queried without names.
    for many in [300, 1_200] {
        let (history, end) = hours(3);
        let named: Vec<String> =
            (0..many).map(|number| format!("a-pod-that-nobody-would-call-so-{number}")).collect();
        let mut pods: Vec<&str> = named.iter().map(String::as_str).collect();
        pods.extend([FRONT, USUAL]);
        // Only the first, the last and the regularly named pod have series.
        let first: &'static str = "a-pod-that-nobody-would-call-so-0";
        let history = shop(&AGENT, history, &[first, FRONT, USUAL, STRANGER]);
        let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await
        else {
            return;
        };
        let sink = read(&server.url(), last(2), end, &live(&pods)).await;
        assert_eq!(sink.pods("web"), [first, FRONT, USUAL], "{many}");
        for pod in [first, FRONT, USUAL] {
            let replica = sink.samples_of("web", "app", pod).expect("exists");
            assert_eq!(replica.cpu.len(), 120, "{many}: {pod}, once");
        }
    }
}

#[tokio::test]
async fn running_pods_are_added_to_those_found_by_labels() {
    let (history, end) = hours(4);
    let labels = [("namespace", "shop"), ("pod", USUAL), ("label_app", "web")];
    let history = CHART.state(history, "kube_pod_labels", &labels, |_| Some(1.0));
    let history = shop(&CHART, history, &[USUAL, FRONT, STRANGER]);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let [query, prefix] = ["kube_pod_labels", "label_"].map(str::to_owned);
    let labels = PodLabelQuery { query, prefix: Some(prefix), namespace: None, pod: None };
    let settings = HistorySettings { pod_labels: Some(labels), ..last(2) };
    let sink = read(&server.url(), settings, end, &live(&[USUAL, FRONT])).await;
    assert_eq!(sink.pods("web"), [FRONT, USUAL]);
}
