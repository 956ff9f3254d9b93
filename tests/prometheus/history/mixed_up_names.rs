//! An intermediary that answers wrongly, for a while or permanently, cannot attribute one workload's history to
//! another.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::prometheus::client::{PrometheusClient, QueryLimits};
use plimsoll_storage::prometheus::history::{HistorySettings, PrometheusHistory};
use plimsoll_storage::prometheus::query_error::QueryError;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::prometheus::transport::config::{AuthConfig, SecretSource};
use plimsoll_storage::prometheus::transport::{HttpTransport, TransportConfig, WallClock};

use super::collecting_sink::{CollectingSink, hours, last, nearly, owners_of, read, storage};
use crate::prometheus::label_flavors::OPERATOR;
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::prometheus::series_collector::short_limits;
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer};

const OWN: &str = "web-7d5f9c4b6d-x2x4z";
/// A pod of the same workload, whose name does not show it.
const ODD: &str = "web-by-hand";
/// A pod of a DaemonSet, whose name does not show it.
const ALIKE: &str = "web-bcdf4-x2x4z";
const VPAS: [(&str, &str); 1] = [("web", "apps/Deployment/web")];

/// Half a day of pods that only their owner series tell apart.
async fn server() -> Option<(PrometheusServer, Timestamp)> {
    server_of(&[("shop", 0.1, 1e8)]).await
}

/// The same in each of these namespaces, with the usage of a pod there.
async fn server_of(namespaces: &[(&str, f64, f64)]) -> Option<(PrometheusServer, Timestamp)> {
    let (mut history, end) = hours(13);
    for (namespace, cores, bytes) in namespaces.iter().copied() {
        for (pod, kind, owner) in [
            (OWN, "ReplicaSet", "web-7d5f9c4b6d"),
            (ODD, "ReplicaSet", "web-7d5f9c4b6d"),
            (ALIKE, "DaemonSet", "web-bcdf4"),
        ] {
            let begin = end - SignedDuration::from_hours(20);
            let used =
                move |now: Timestamp| Some(begin.duration_until(now).as_secs() as f64 * cores);
            history = OPERATOR.usage(history, CPU_METRIC, [namespace, pod, "app"], used);
            history = OPERATOR
                .usage(history, MEMORY_METRIC, [namespace, pod, "app"], move |_| Some(bytes));
            let labels = [
                ("namespace", namespace),
                ("pod", pod),
                ("owner_kind", kind),
                ("owner_name", owner),
            ];
            history = OPERATOR.state(history, "kube_pod_owner", &labels, |_| Some(1.0));
        }
        let labels = [
            ("namespace", namespace),
            ("replicaset", "web-7d5f9c4b6d"),
            ("owner_kind", "Deployment"),
            ("owner_name", "web"),
        ];
        history = OPERATOR.state(history, "kube_replicaset_owner", &labels, |_| Some(1.0));
    }
    Some((PrometheusServer::with_history(PrometheusRelease::V3, history).await?, end))
}

fn small_limits() -> HistorySettings {
    HistorySettings { point_budget: 500, ..last(12) }
}

#[tokio::test]
async fn an_expired_token_is_a_one_line_error_until_it_is_replaced() {
    let Some((server, end)) = server().await else { return };
    let (uninterrupted, _) = read(&server.url(), small_limits(), end, &VPAS).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let token = folder.path().join("token");
    std::fs::write(&token, "old").expect("writes");
    let proxy = FaultyProxy::start(&server.url()).await;
    proxy.require_token("old");
    let sign_in = AuthConfig::Bearer(SecretSource::File(token.clone()));
    let address = proxy.url().to_owned();
    let config = TransportConfig { address, auth: sign_in, ..TransportConfig::default() };
    let transport =
        HttpTransport::new(config, WallClock::new(|| wall_now().into())).expect("an address");
    let client = PrometheusClient::new(
        Arc::new(transport),
        QueryLimits { max_in_flight: 1, ..short_limits() },
    );
    let now = WallClock::new(move || end.into());
    let storage = PrometheusHistory::new(proxy.url(), client, small_limits(), now);

    let (mut loading, _) =
        storage.start_load(&owners_of(&VPAS), None, None).await.expect("load started");
    let mut sink = CollectingSink::default();
    // The read stops for another reason, so it is partly done already.
    let mut next = vec![Fault::None; 8];
    next.push(Fault::Redirect);
    proxy.fail_next(next);
    loading.advance(&mut sink).await.expect_err("a login page");
    let (before, _) = loading.progress();
    assert!(!before.is_zero(), "partly loaded");
    proxy.require_token("new");
    for _ in 0..2 {
        let stalled = loading.advance(&mut sink).await.expect_err("authentication failed");
        let line = stalled.to_string();
        assert!(line.contains("rejected this bearer token (401)"), "{line}");
        assert!(!line.contains('\n') && !line.contains("old"), "{line}");
        assert!(matches!(stalled.failure, QueryError::AccessDenied(_)));
        assert!(sink.whole.is_empty() && loading.progress().0 == before);
    }
    std::fs::write(&token, "new").expect("writes");
    loading.advance(&mut sink).await.expect("new file is loaded");
    assert!(loading.is_done() && sink == uninterrupted, "no sample is lost or duplicated");
}

#[tokio::test]
async fn a_login_page_instead_of_owners_assigns_no_pods_to_other_workloads() {
    let Some((server, end)) = server().await else { return };
    let (uninterrupted, report) = read(&server.url(), small_limits(), end, &VPAS).await;
    assert_eq!((uninterrupted.pods("web"), report.without_owner_info), (vec![OWN, ODD], 0));
    let proxy = FaultyProxy::start(&server.url()).await;
    // The owners of pods, those of ReplicaSets, and the OOM kills.
    for questions in 0..3 {
        for fault in [Fault::Redirect, Fault::Replaced(401, "text/plain", "no")] {
            let limits = QueryLimits { max_in_flight: 1, max_attempts: 1, ..short_limits() };
            let storage = storage(proxy.url(), limits, small_limits(), end);
            let started = storage.start_load(&owners_of(&VPAS), None, None).await;
            let (mut loading, _) = started.expect("load started");
            let mut sink = CollectingSink::default();
            let mut next = vec![Fault::None; questions];
            next.push(fault.clone());
            proxy.fail_next(next);
            loading.advance(&mut sink).await.expect("temporary error is over");
            assert!(sink == uninterrupted, "{fault:?} at query {questions}");
            assert_eq!(loading.report.without_owner_info, 0);
        }
    }
}

#[tokio::test]
async fn without_owner_series_pods_are_assigned_by_name() {
    let Some((server, end)) = server().await else { return };
    let proxy = FaultyProxy::start(&server.url()).await;
    proxy.respond_not_found_at("/api/v1/series");
    let (sink, report) = read(proxy.url(), small_limits(), end, &VPAS).await;
    assert_eq!((sink.pods("web"), report.without_owner_info), (vec![OWN, ALIKE], 1));
}

#[tokio::test]
async fn pods_with_the_same_name_in_another_namespace_are_excluded() {
    let twins = [("shop", 0.1, 1e8), ("market", 3.0, 4e9)];
    let Some((server, end)) = server_of(&twins).await else { return };
    let of = |namespace: &str| ObjectKey::new(namespace, "web");
    let owner = || Some("apps/Deployment/web".into());
    for namespaces in [&["shop"][..], &["market"], &["shop", "market"]] {
        let wanted = namespaces.iter().map(|namespace| (of(namespace), owner())).collect();
        let storage = storage(&server.url(), short_limits(), small_limits(), end);
        let (mut loading, _) = storage.start_load(&wanted, None, None).await.expect("load started");
        let mut sink = CollectingSink::default();
        loading.advance(&mut sink).await.expect("load succeeds");
        assert!(loading.is_done());
        assert_eq!(
            sink.replicas.len(),
            2 * namespaces.len(),
            "two pods of each requested workload"
        );
        for ((key, pod), replica) in &sink.replicas {
            let namespace = &*key.vpa.namespace;
            assert!(namespaces.contains(&namespace) && [OWN, ODD].contains(&&**pod), "{key} {pod}");
            let own = twins.iter().find(|(name, ..)| *name == namespace);
            let (_, cores, bytes) = *own.expect("one of two");
            assert!(replica.memory.iter().all(|(_, value)| *value == bytes), "{key} {pod}");
            assert!(replica.cpu.iter().all(|(_, value)| nearly(*value, cores)), "{key} {pod}");
            // One sample every five minutes for twelve hours, like a pod with an unambiguous name.
            assert!((140..=145).contains(&replica.memory.len()), "{}", replica.memory.len());
            assert!(!replica.cpu.is_empty(), "{key} {pod}");
        }
    }
}
