//! The user's matchers are in each selector of each query.

use jiff::Timestamp;
use plimsoll_storage::prometheus::client::PrometheusClient;
use plimsoll_storage::prometheus::history::{KnownPods, PodLabelQuery, PrometheusHistory};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::prometheus::transport::WallClock;

use super::collecting_sink::{CollectingSink, MINUTE, hours, last, owners_of};
use super::pod_labels::SelectByApp;
use super::recording_transport::RecordingTransport;
use crate::prometheus::label_flavors::{LabelFlavor, OPERATOR};
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer};

const POD: &str = "web-7d5f9c4b6d-x2x4z";

/// Number of selectors and of cluster matchers, outside of string literals.
fn count(query: &str) -> (usize, usize) {
    let mut plain = String::new();
    let mut is_text = false;
    let mut chars = query.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_text => {
                chars.next();
            }
            '"' => is_text = !is_text,
            c if !is_text => plain.push(c),
            _ => {}
        }
    }
    (plain.matches('{').count(), plain.matches("cluster=").count())
}

#[tokio::test]
async fn every_selector_has_the_configured_matchers() {
    let (mut history, end) = hours(3);
    let flavor = LabelFlavor {
        usage: &[("job", "kubelet"), ("cluster", "qa")],
        states: Some(&[("job", "kube-state-metrics"), ("cluster", "qa")]),
        ..OPERATOR
    };
    let killed = end - jiff::SignedDuration::from_mins(62);
    let names = ["shop", POD, "app"];
    for metric in [CPU_METRIC, MEMORY_METRIC] {
        history = flavor.usage(history, metric, names, |_| Some(1e6));
    }
    let pod = [("namespace", "shop"), ("pod", POD)];
    let container = [&pod[..], &[("container", "app")]].concat();
    let restarts = move |now: Timestamp| Some(f64::from(u8::from(now >= killed)));
    let family = "kube_pod_container_status_restarts_total";
    history = flavor.state(history, family, &container, restarts);
    let reason = [&container[..], &[("reason", "OOMKilled")]].concat();
    let family = "kube_pod_container_status_last_terminated_reason";
    history = flavor.state(history, family, &reason, move |now| (now >= killed).then_some(1.0));
    let owner = [&pod[..], &[("owner_kind", "ReplicaSet"), ("owner_name", "web-7d5f9c4b6d")]];
    history = flavor.state(history, "kube_pod_owner", &owner.concat(), |_| Some(1.0));
    let set = [
        ("namespace", "shop"),
        ("replicaset", "web-7d5f9c4b6d"),
        ("owner_kind", "Deployment"),
        ("owner_name", "web"),
    ];
    history = flavor.state(history, "kube_replicaset_owner", &set, |_| Some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };

    let recorder = RecordingTransport::in_front_of(&server.url());
    let client = PrometheusClient::new(recorder.clone(), short_limits());
    let mut settings = last(2);
    settings.overrides.matchers = [r#"cluster="qa""#.parse().expect("one")].into_iter().collect();
    let (query, prefix, namespace, pod) = ("kube_pod_labels".to_owned(), None, None, None);
    settings.pod_labels = Some(PodLabelQuery { query, prefix, namespace, pod });
    let storage =
        PrometheusHistory::new("here", client, settings, WallClock::new(move || end.into()));
    let owners =
        storage.pod_ownership(&["shop"], None, &SelectByApp).await.expect("query succeeded");
    assert!(owners.is_none(), "no pods");
    let vpas = owners_of(&[("web", "apps/Deployment/web")]);
    let (mut loading, _) = storage.start_load(&vpas, None, None).await.expect("load started");
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("read");
    storage.throttling(&vpas, 60 * MINUTE, KnownPods::default()).await.expect("query succeeded");
    assert_eq!(sink.samples_of("web", "app", POD).expect("exists").kills.len(), 1);

    let queries = recorder.questions();
    for part in [
        "irate(",
        "max_over_time(",
        "increase(",
        "kube_pod_owner",
        "last_over_time(kube_pod_labels{",
        "_requests",
        "topk",
        "plimsoll:",
    ] {
        assert!(queries.iter().any(|query| query.contains(part)), "{part} in {queries:#?}");
    }
    for query in &queries {
        let (selectors, matchers) = count(query);
        assert_eq!(selectors, matchers, "{query}");
        assert!(selectors > 0 || query == "vector(1) default 2", "{query}");
    }
}
