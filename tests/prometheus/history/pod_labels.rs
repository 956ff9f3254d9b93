//! Proof that where labels of pods are to tell whose pods there were, they do, whatever pods are called, and that half an
//! answer tells nothing.

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
/// Of the workload, though nobody could tell by its name.
const ODD: &str = "canary";
/// Called as the workload's are, and not its own.
const DECOY: &str = "web-5d4f9c4b6d-zzzzz";
/// Its own once, and another's since.
const GIVEN_AWAY: &str = "web-5d4f9c4b6d-ddddd";
/// Nothing is said of its labels.
const WITHOUT_LABELS: &str = "web-5d4f9c4b6d-fffff";

/// VPAs that select pods by `app`.
#[derive(Debug)]
pub struct SelectByApp;

impl VpaMatcher for SelectByApp {
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        assert_eq!(namespace, "shop", "others are not asked about");
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
    for (pod, app, lives) in labelled {
        let labels =
            [("namespace", "shop"), ("pod", pod), ("label_app", app), ("label_tier", "front")];
        history =
            flavor.state(history, "kube_pod_labels", &labels, move |at| lives(at).then_some(1.0));
    }
    let elsewhere = [("namespace", "bank"), ("pod", USUAL), ("label_other", "x")];
    history = flavor.state(history, "kube_pod_labels", &elsewhere, |_| Some(1.0));
    for pod in [USUAL, DELETED, ODD, DECOY, GIVEN_AWAY, WITHOUT_LABELS] {
        let names = ["shop", pod, "app"];
        let lives = move |at: Timestamp| pod != DELETED || at <= half;
        let used = move |at: Timestamp| lives(at).then_some(at.as_second() as f64 * 0.5);
        history = flavor.usage(history, CPU_METRIC, names, used);
        history = flavor.usage(history, MEMORY_METRIC, names, move |at| lives(at).then_some(1e8));
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
    let whose = storage.pod_ownership(&["shop"], None, selects).await.expect("asked");
    let vpas = owners_of(&VPAS);
    let pods = KnownPods { by_label: whose.as_ref(), live: None };
    let begun = storage.start_load_with_pods(&vpas, None, None, pods).await;
    let (mut loading, skipped) = begun.expect("begun");
    assert_eq!(skipped, []);
    let mut remember = CollectingSink::default();
    loading.advance(&mut remember).await.expect("all of it");
    assert_eq!(remember.whole.len(), VPAS.len());
    remember
}

async fn read(url: &str, settings: HistorySettings, end: Timestamp) -> CollectingSink {
    read_from(&storage(url, short_limits(), settings, end), &SelectByApp).await
}

#[tokio::test]
async fn labels_tell_whose_pods_there_were_however_they_are_asked_for() {
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
            let remember = read(&server.url(), settings_with_labels(query, names), end).await;
            let pods: BTreeSet<_> = remember.pods("web").into_iter().collect();
            assert_eq!(pods, own, "{name}");
            assert_eq!(remember.pods("db"), [GIVEN_AWAY, DECOY], "{name}");
        }
    }
}

#[tokio::test]
async fn where_labels_tell_of_no_pod_owners_and_names_do() {
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
        // The server refuses it.
        ("nonsense_of(kube_pod_labels)", None),
    ] {
        let remember = read(&server.url(), settings_with_labels(query, names), end).await;
        let pods: BTreeSet<_> = remember.pods("web").into_iter().collect();
        assert_eq!(pods, by_names, "{query}, {names:?}");
    }
    // Of a namespace whose pods have labels, those that have not belong to nobody.
    let prefix = Some(["label_t", "namespace", "pod"]);
    let nobody = storage(
        &server.url(),
        short_limits(),
        settings_with_labels("kube_pod_labels", prefix),
        end,
    );
    let remember = read_from(&nobody, &SelectNone).await;
    assert!(remember.replicas.is_empty(), "{:?}", remember.replicas.keys());
}

/// No pod is of any.
#[derive(Debug)]
struct SelectNone;

impl VpaMatcher for SelectNone {
    fn matching_vpas(&self, _: &str, _: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        Vec::new()
    }
}

/// All pods are of both.
#[derive(Debug)]
struct SelectBoth;

impl VpaMatcher for SelectBoth {
    fn matching_vpas(&self, namespace: &str, _: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        ["web", "db"].map(|vpa| ObjectKey::new(namespace, vpa)).into()
    }
}

#[tokio::test]
async fn a_pod_that_two_vpas_select_is_of_both_and_half_an_answer_tells_nothing() {
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

    let way = FaultyProxy::start(&server.url()).await;
    let storage = storage(way.url(), short_limits(), settings(), end);
    storage.schema(&["shop"]).await.expect("a schema");
    for fault in [Fault::Redirect, Fault::Disconnected(20)] {
        way.fail_next(vec![fault; 8]);
        let asked = storage.pod_ownership(&["shop"], None, &SelectBoth).await;
        let Err(DetectError::Failed(failure)) = asked else { panic!("{asked:?}") };
        assert!(!matches!(failure, QueryError::BadQuery(_)), "{failure}");
        way.fail_next(Vec::new());
    }
    assert!(storage.pod_ownership(&["shop"], None, &SelectBoth).await.expect("asked").is_some());
}
