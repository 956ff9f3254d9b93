//! Proof that what stands before a server for a moment, or for good, does not make one workload's history another's.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::VpaKey;
use plimsoll_storage::prometheus::client::{Client, Limits};
use plimsoll_storage::prometheus::door::config::{SignIn, Word};
use plimsoll_storage::prometheus::door::{Door, DoorConfig, Wall};
use plimsoll_storage::prometheus::failure::Failure;
use plimsoll_storage::prometheus::history::{PrometheusHistory, Settings};
use plimsoll_storage::prometheus::schema::{CPU, MEMORY};

use super::remember::{Remember, hours, last, nearly, read, storage, wanted};
use crate::prometheus::flavors::OPERATOR;
use crate::prometheus::gather::hasty;
use crate::prometheus::way::{Fault, Way};
use crate::support::clock::wall_now;
use crate::support::prometheus::{Prometheus, Release};

const OWN: &str = "web-7d5f9c4b6d-x2x4z";
/// Of the same workload, though its name does not tell.
const ODD: &str = "web-by-hand";
/// Of a DaemonSet, though its name does not tell.
const ALIKE: &str = "web-bcdf4-x2x4z";
const VPAS: [(&str, &str); 1] = [("web", "apps/Deployment/web")];

/// Half a day of pods that only their owners tell apart.
async fn server() -> Option<(Prometheus, Timestamp)> {
    server_of(&[("shop", 0.1, 1e8)]).await
}

/// The same in each of these namespaces, with what a pod uses there.
async fn server_of(namespaces: &[(&str, f64, f64)]) -> Option<(Prometheus, Timestamp)> {
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
            history = OPERATOR.usage(history, CPU, [namespace, pod, "app"], used);
            history =
                OPERATOR.usage(history, MEMORY, [namespace, pod, "app"], move |_| Some(bytes));
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
    Some((Prometheus::with_history(Release::Three, history).await?, end))
}

fn thrifty() -> Settings {
    Settings { budget: 500, ..last(12) }
}

#[tokio::test]
async fn a_token_that_expires_half_way_is_one_line_until_there_is_a_new_one() {
    let Some((server, end)) = server().await else { return };
    let (undisturbed, _) = read(&server.url(), thrifty(), end, &VPAS).await;
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "old").expect("writes");
    let way = Way::to(&server.url()).await;
    way.only("old");
    let sign_in = SignIn::Bearer(Word::File(token.clone()));
    let address = way.url().to_owned();
    let config = DoorConfig { address, sign_in, ..DoorConfig::default() };
    let door = Door::new(config, Wall::new(|| wall_now().into())).expect("an address");
    let client = Client::new(Arc::new(door), Limits { in_flight: 1, ..hasty() });
    let now = Wall::new(move || end.into());
    let storage = PrometheusHistory::new(way.url(), client, thrifty(), now);

    let (mut loading, _) = storage.begin(&wanted(&VPAS), None, None).await.expect("begun");
    let mut remember = Remember::default();
    // It stops for another reason, so that some of it is there already.
    let mut next = vec![Fault::None; 8];
    next.push(Fault::Redirect);
    way.then(next);
    loading.advance(&mut remember).await.expect_err("a login page");
    let (before, _) = loading.progress();
    assert!(!before.is_zero(), "some of it is there");
    way.only("new");
    for _ in 0..2 {
        let stalled = loading.advance(&mut remember).await.expect_err("nobody lets us in");
        let line = stalled.to_string();
        assert!(line.contains("does not accept this bearer token (401)"), "{line}");
        assert!(!line.contains('\n') && !line.contains("old"), "{line}");
        assert!(matches!(stalled.failure, Failure::Refused(_)));
        assert!(remember.whole.is_empty() && loading.progress().0 == before);
    }
    std::fs::write(&token, "new").expect("writes");
    loading.advance(&mut remember).await.expect("the new one is read");
    assert!(loading.is_done() && remember == undisturbed, "nothing twice, nothing lost");
}

#[tokio::test]
async fn a_login_page_in_place_of_owners_gives_nobody_the_pods_of_others() {
    let Some((server, end)) = server().await else { return };
    let (undisturbed, report) = read(&server.url(), thrifty(), end, &VPAS).await;
    assert_eq!((undisturbed.pods("web"), report.unproven), (vec![OWN, ODD], 0));
    let way = Way::to(&server.url()).await;
    // The owners of pods, those of ReplicaSets, and who was killed.
    for questions in 0..3 {
        for fault in [Fault::Redirect, Fault::Instead(401, "text/plain", "no")] {
            let limits = Limits { in_flight: 1, attempts: 1, ..hasty() };
            let storage = storage(way.url(), limits, thrifty(), end);
            let begun = storage.begin(&wanted(&VPAS), None, None).await;
            let (mut loading, _) = begun.expect("begun");
            let mut remember = Remember::default();
            let mut next = vec![Fault::None; questions];
            next.push(fault.clone());
            way.then(next);
            loading.advance(&mut remember).await.expect("it was a moment");
            assert!(remember == undisturbed, "{fault:?} at question {questions}");
            assert_eq!(loading.report().unproven, 0);
        }
    }
}

#[tokio::test]
async fn a_server_that_never_tells_owners_is_read_by_the_names_of_pods() {
    let Some((server, end)) = server().await else { return };
    let way = Way::to(&server.url()).await;
    way.lack("/api/v1/series");
    let (remember, report) = read(way.url(), thrifty(), end, &VPAS).await;
    assert_eq!((remember.pods("web"), report.unproven), (vec![OWN, ALIKE], 1));
}

#[tokio::test]
async fn pods_of_the_same_names_in_another_namespace_are_no_part_of_a_history() {
    let twins = [("shop", 0.1, 1e8), ("market", 3.0, 4e9)];
    let Some((server, end)) = server_of(&twins).await else { return };
    let of = |namespace: &str| VpaKey::new(namespace, "web");
    let owner = || Some("apps/Deployment/web".into());
    for asked in [&["shop"][..], &["market"], &["shop", "market"]] {
        let wanted = asked.iter().map(|namespace| (of(namespace), owner())).collect();
        let storage = storage(&server.url(), hasty(), thrifty(), end);
        let (mut loading, _) = storage.begin(&wanted, None, None).await.expect("begun");
        let mut remember = Remember::default();
        loading.advance(&mut remember).await.expect("all of it");
        assert!(loading.is_done());
        assert_eq!(remember.replicas.len(), 2 * asked.len(), "two pods of each that was asked for");
        for ((key, pod), replica) in &remember.replicas {
            let namespace = &*key.vpa.namespace;
            assert!(asked.contains(&namespace) && [OWN, ODD].contains(&&**pod), "{key} {pod}");
            let own = twins.iter().find(|(name, ..)| *name == namespace);
            let (_, cores, bytes) = *own.expect("one of both");
            assert!(replica.memory.iter().all(|(_, value)| *value == bytes), "{key} {pod}");
            assert!(replica.cpu.iter().all(|(_, value)| nearly(*value, cores)), "{key} {pod}");
            // One of five minutes, for twelve hours, as of a pod that nobody else is called like.
            assert!((140..=145).contains(&replica.memory.len()), "{}", replica.memory.len());
            assert!(!replica.cpu.is_empty(), "{key} {pod}");
        }
    }
}
