//! With a query for pod labels, labels alone identify the pods of the past, whatever their names are. Incomplete label
//! data is not used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::{ContainerKey, ObjectKey};
use plimsoll_storage::prometheus::detect::DetectError;
use plimsoll_storage::prometheus::history::{
    HistorySettings, KnownPods, PodLabelQuery, PrometheusHistory, VpaMatcher,
};
use plimsoll_storage::prometheus::query_error::QueryError;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::collecting_sink::{CollectingSink, hours, last, owners_of, storage};
use crate::prometheus::label_flavors::{AGENT, CHART, LabelFlavor, MANAGED, OPERATOR};
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::prometheus::releases::by_turns;
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const USUAL: &str = "web-7d5f9c4b6d-x2x4z";
const DELETED: &str = "web-5d4f9c4b6d-bbbbb";
/// A pod of the workload, whose name does not show it.
const ODD: &str = "canary";
/// Named like the workload's pods, but not one of them.
const DECOY: &str = "web-5d4f9c4b6d-zzzzz";
/// Formerly a pod of the workload, now of another.
const GIVEN_AWAY: &str = "web-5d4f9c4b6d-ddddd";
/// A pod without label series.
const WITHOUT_LABELS: &str = "web-5d4f9c4b6d-fffff";

/// VPAs that select pods by `app`.
#[derive(Debug)]
pub struct SelectByApp;

impl VpaMatcher for SelectByApp {
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        assert_eq!(namespace, "shop", "unrelated pods are not looked up");
        assert!(labels.keys().all(|label| ["app", "tier"].contains(&&**label)), "{labels:?}");
        labels.get("app").map(|app| ObjectKey::new("shop", &**app)).into_iter().collect()
    }
}

fn shop(flavor: &LabelFlavor, mut history: History, half: Timestamp) -> History {
    type Lives = Box<dyn Fn(Timestamp) -> bool + Send>;
    let always = |_: Timestamp| true;
    let early = move |at: Timestamp| at <= half;
    let late = move |at: Timestamp| at > half;
    let labelled: [(&str, &str, Lives); 6] = [
        (USUAL, "web", Box::new(always)),
        (DELETED, "web", Box::new(early)),
        (ODD, "web", Box::new(always)),
        (DECOY, "db", Box::new(always)),
        (GIVEN_AWAY, "web", Box::new(early)),
        (GIVEN_AWAY, "db", Box::new(late)),
    ];
    for (pod, app, is_alive) in labelled {
        let labels =
            [("namespace", "shop"), ("pod", pod), ("label_app", app), ("label_tier", "front")];
        history = flavor
            .state(history, "kube_pod_labels", &labels, move |at| is_alive(at).then_some(1.0));
    }
    let elsewhere = [("namespace", "bank"), ("pod", USUAL), ("label_other", "x")];
    history = flavor.state(history, "kube_pod_labels", &elsewhere, |_| Some(1.0));
    for pod in [USUAL, DELETED, ODD, DECOY, GIVEN_AWAY, WITHOUT_LABELS] {
        let names = ["shop", pod, "app"];
        let is_alive = move |at: Timestamp| pod != DELETED || at <= half;
        let used = move |at: Timestamp| is_alive(at).then_some(at.as_second() as f64 * 0.5);
        history = flavor.usage(history, CPU_METRIC, names, used);
        history =
            flavor.usage(history, MEMORY_METRIC, names, move |at| is_alive(at).then_some(1e8));
    }
    history
}

fn settings_with_labels(query: &str, names: Option<[&str; 3]>) -> HistorySettings {
    let [prefix, namespace, pod] = names.map_or([None, None, None], |names| names.map(Some));
    let own = |text: Option<&str>| text.map(str::to_owned);
    let labels = PodLabelQuery {
        query: query.to_owned(),
        prefix: own(prefix),
        namespace: own(namespace),
        pod: own(pod),
    };
    HistorySettings { pod_labels: Some(labels), ..last(24) }
}

const VPAS: [(&str, &str); 2] = [("web", "apps/Deployment/web"), ("db", "apps/StatefulSet/db")];

async fn read_from(storage: &PrometheusHistory, selects: &dyn VpaMatcher) -> CollectingSink {
    let owners = storage.pod_ownership(&["shop"], None, selects).await.expect("query succeeded");
    let vpas = owners_of(&VPAS);
    let pods = KnownPods { by_label: owners.as_ref(), live: None };
    let started = storage.start_load_with_pods(&vpas, None, None, pods).await;
    let (mut loading, skipped) = started.expect("load started");
    assert_eq!(skipped, []);
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("load succeeds");
    assert_eq!(sink.whole.len(), VPAS.len());
    sink
}

async fn read(url: &str, settings: HistorySettings, end: Timestamp) -> CollectingSink {
    read_from(&storage(url, short_limits(), settings, end), &SelectByApp).await
}

#[tokio::test]
async fn labels_select_the_pods_of_a_workload_however_they_are_queried() {
    const BARE: &str = "kube_pod_labels";
    const RANGE: &str = "kube_pod_labels[1d]";
    let own = BTreeSet::from([USUAL, DELETED, ODD]);
    for (flavor, release) in by_turns([OPERATOR, CHART, AGENT, MANAGED]) {
        let (history, end) = hours(26);
        let half = end - SignedDuration::from_hours(12);
        let past = shop(&flavor, history, half);
        let Some(server) = PrometheusServer::with_history(release, past).await else { return };
        let [namespace, pod] = ["namespace", "pod"].map(|name| flavor.exported.to_owned() + name);
        let set = Some(["label_", &*namespace, &*pod]);
        for (query, names) in [(BARE, None), (RANGE, None), (BARE, set), (RANGE, set)] {
            let name = format!("{} on {release:?}: {query}, {names:?}", flavor.name);
            let sink = read(&server.url(), settings_with_labels(query, names), end).await;
            let pods: BTreeSet<_> = sink.pods("web").into_iter().collect();
            assert_eq!(pods, own, "{name}");
            assert_eq!(sink.pods("db"), [GIVEN_AWAY, DECOY], "{name}");
        }
    }
}

#[tokio::test]
async fn without_label_series_pods_are_found_by_owners_and_names() {
    let (history, end) = hours(26);
    let past = shop(&CHART, history, end - SignedDuration::from_hours(12));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, past).await else {
        return;
    };
    let by_names = BTreeSet::from([USUAL, DELETED, DECOY, GIVEN_AWAY, WITHOUT_LABELS]);
    for (query, names) in [
        ("up{job=\"kubernetes-pods\"}", None),
        ("kube_pod_labels", Some(["label_", "kubernetes_namespace", "pod"])),
        ("kube_pod_labels", Some(["label_", "namespace", "pod_name"])),
        // The server rejects it.
        ("nonsense_of(kube_pod_labels)", None),
    ] {
        let sink = read(&server.url(), settings_with_labels(query, names), end).await;
        let pods: BTreeSet<_> = sink.pods("web").into_iter().collect();
        assert_eq!(pods, by_names, "{query}, {names:?}");
    }
    // In a namespace with label series, pods without one belong to no workload.
    let prefix = Some(["label_t", "namespace", "pod"]);
    let backend = storage(
        &server.url(),
        short_limits(),
        settings_with_labels("kube_pod_labels", prefix),
        end,
    );
    let sink = read_from(&backend, &SelectNone).await;
    assert!(sink.replicas.is_empty(), "{:?}", sink.replicas.keys());
}

/// Selects no pod.
#[derive(Debug)]
struct SelectNone;

impl VpaMatcher for SelectNone {
    fn matching_vpas(&self, _: &str, _: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        Vec::new()
    }
}

/// Both VPAs select all pods.
#[derive(Debug)]
struct SelectBoth;

impl VpaMatcher for SelectBoth {
    fn matching_vpas(&self, namespace: &str, _: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        ["web", "db"].map(|vpa| ObjectKey::new(namespace, vpa)).into()
    }
}

#[tokio::test]
async fn a_pod_selected_by_two_vpas_belongs_to_both_and_a_partial_response_is_discarded() {
    let (history, end) = hours(26);
    let past = shop(&CHART, history, end - SignedDuration::from_hours(12));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, past).await else {
        return;
    };
    let settings = || settings_with_labels("kube_pod_labels", None);
    let both =
        read_from(&storage(&server.url(), short_limits(), settings(), end), &SelectBoth).await;
    let of = |vpa: &str| {
        let own =
            |(key, pod): &(ContainerKey, String)| (&*key.vpa.name == vpa).then(|| pod.clone());
        both.replicas.keys().filter_map(own).collect::<Vec<_>>()
    };
    assert_eq!((of("web").len(), of("web")), (5, of("db")));

    let proxy = FaultyProxy::start(&server.url()).await;
    let storage = storage(proxy.url(), short_limits(), settings(), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    for fault in [Fault::Redirect, Fault::Disconnected(20)] {
        proxy.fail_next(vec![fault; 8]);
        let result = storage.pod_ownership(&["shop"], None, &SelectBoth).await;
        let Err(DetectError::Failed(failure)) = result else { panic!("{result:?}") };
        assert!(!matches!(failure, QueryError::BadQuery(_)), "{failure}");
        proxy.fail_next(Vec::new());
    }
    assert!(
        storage
            .pod_ownership(&["shop"], None, &SelectBoth)
            .await
            .expect("query succeeded")
            .is_some()
    );
}
