//! Throttling is reported for containers with a CPU limit, over all pods of the workload and no others.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::prometheus::client::QueryLimits;
use plimsoll_storage::prometheus::history::KnownPods;
use plimsoll_storage::prometheus::schema::MEMORY_METRIC;

use super::collecting_sink::{MINUTE, hours, last, owners_of, storage};
use crate::prometheus::label_flavors::{LabelFlavor, OPERATOR};
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const FIRST: &str = "web-7d5f9c4b6d-x2x4z";
const SECOND: &str = "web-5d4f9c4b6d-bbbbb";
/// A pod of the Deployment `web-api`.
const NEIGHBOUR: &str = "web-api-7d5f9c4b6d-x2x4z";
/// A pod of the DaemonSet `web-bcdf4`, whose name looks like one of Deployment `web`.
const ALIKE: &str = "web-bcdf4-x2x4z";

/// CFS periods of a container, ten per second, and the number of throttled ones per second, while it runs.
fn periods(
    flavor: &LabelFlavor,
    history: History,
    (pod, container): (&'static str, &'static str),
    (all, throttled): (f64, f64),
    runs: impl Fn(Timestamp) -> bool + Send + Clone + 'static,
) -> History {
    let count = |rate: f64| {
        let runs = runs.clone();
        move |now: Timestamp| runs(now).then_some((now.as_second() - 1_700_000_000) as f64 * rate)
    };
    let names = ["shop", pod, container];
    let history = flavor.usage(history, "container_cpu_cfs_periods_total", names, count(all));
    let family = "container_cpu_cfs_throttled_periods_total";
    flavor.usage(history, family, names, count(throttled))
}

/// A workload with one container of each sort, and neighbours that are always throttled.
fn shop(mut history: History, end: Timestamp) -> History {
    let always = |_: Timestamp| true;
    for (pod, owner) in [
        (FIRST, ["ReplicaSet", "web-7d5f9c4b6d"]),
        (SECOND, ["ReplicaSet", "web-5d4f9c4b6d"]),
        (NEIGHBOUR, ["ReplicaSet", "web-api-7d5f9c4b6d"]),
        (ALIKE, ["DaemonSet", "web-bcdf4"]),
    ] {
        history = OPERATOR.usage(history, MEMORY_METRIC, ["shop", pod, "app"], |_| Some(1e8));
        let [kind, name] = owner;
        let labels =
            [("namespace", "shop"), ("pod", pod), ("owner_kind", kind), ("owner_name", name)];
        history = OPERATOR.state(history, "kube_pod_owner", &labels, |_| Some(1.0));
    }
    for (pod, throttled) in [(FIRST, 5.0), (SECOND, 1.0), (NEIGHBOUR, 10.0), (ALIKE, 10.0)] {
        history = periods(&OPERATOR, history, (pod, "app"), (10.0, throttled), always);
    }
    history = periods(&OPERATOR, history, (FIRST, "side"), (10.0, 0.0), always);
    // It has a limit and is idle.
    history = periods(&OPERATOR, history, (FIRST, "idle"), (0.0, 0.0), always);
    // No limit: only its memory is known.
    history = OPERATOR.usage(history, MEMORY_METRIC, ["shop", FIRST, "free"], |_| Some(1e8));
    // Throttled until an hour before the end.
    let hour = end - SignedDuration::from_hours(1);
    let family = "container_cpu_cfs_periods_total";
    let names = ["shop", FIRST, "past"];
    let count = |now: Timestamp| (now.as_second() - 1_700_000_000) as f64;
    history = OPERATOR.usage(history, family, names, move |now| Some(count(now)));
    let family = "container_cpu_cfs_throttled_periods_total";
    history = OPERATOR.usage(history, family, names, move |now| Some(count(now.min(hour))));
    // Restarted half an hour before the end: throttled all the time before, three times as busy and never throttled
    // after.
    let half = end - SignedDuration::from_mins(30);
    let first = LabelFlavor { usage: &[("job", "kubelet"), ("id", "/a")], ..OPERATOR };
    let second = LabelFlavor { usage: &[("job", "kubelet"), ("id", "/b")], ..OPERATOR };
    let again = (FIRST, "again");
    history = periods(&first, history, again, (10.0, 10.0), move |now| now <= half);
    history = periods(&second, history, again, (30.0, 0.0), move |now| now > half);
    // Half an hour before the end, one loses its limit and runs on, and one ends.
    for container in ["freed", "ended"] {
        let name = (FIRST, container);
        history = periods(&OPERATOR, history, name, (10.0, 5.0), move |now| now <= half);
    }
    history = OPERATOR.usage(history, MEMORY_METRIC, ["shop", FIRST, "freed"], |_| Some(1e8));
    // One pod of two has no limit.
    for pod in [FIRST, SECOND] {
        history = OPERATOR.usage(history, MEMORY_METRIC, ["shop", pod, "mixed"], |_| Some(1e8));
    }
    periods(&OPERATOR, history, (SECOND, "mixed"), (10.0, 4.0), always)
}

#[tokio::test]
async fn throttling_is_measured_per_container_over_all_pods_of_the_workload_only() {
    for release in [PrometheusRelease::V2, PrometheusRelease::V3] {
        let (history, end) = hours(3);
        let Some(server) = PrometheusServer::with_history(release, shop(history, end)).await else {
            return;
        };
        let storage = storage(&server.url(), short_limits(), last(2), end);
        let vpas = owners_of(&[("web", "apps/Deployment/web"), ("again", "apps/Deployment/web")]);
        let throttling = storage
            .throttling(&vpas, 60 * MINUTE, KnownPods::default())
            .await
            .expect("query succeeded");
        assert_eq!((throttling.failure, throttling.failed_vpas.len()), (None, 0));
        let mut unlimited: Vec<_> = throttling.unlimited.iter().map(ToString::to_string).collect();
        unlimited.sort();
        let free = ["shop/again/free", "shop/again/freed", "shop/web/free", "shop/web/freed"];
        assert_eq!(unlimited, free, "on {release:?}");
        let mut shares: Vec<_> = throttling
            .measured
            .iter()
            .map(|(key, of)| {
                assert_eq!(of.at, Time::from(end), "{key}");
                // Increases are extrapolated to the edges of the window, for each series separately.
                let share = of.throttled / of.periods;
                (key.to_string(), (share * 50.0).round() * 2.0)
            })
            .collect();
        shares.sort_by(|one, other| one.0.cmp(&other.0));
        let mut expected = Vec::new();
        for vpa in ["again", "web"] {
            for (container, share) in [
                ("again", 26.0),
                ("app", 30.0),
                ("ended", 50.0),
                ("mixed", 40.0),
                ("past", 0.0),
                ("side", 0.0),
            ] {
                expected.push((format!("shop/{vpa}/{container}"), share));
            }
        }
        assert_eq!(shares, expected, "on {release:?}");

        let without_pods = owners_of(&[("gone", "apps/Deployment/gone")]);
        let throttling = storage
            .throttling(&without_pods, 60 * MINUTE, KnownPods::default())
            .await
            .expect("query succeeded");
        let known = throttling.measured.len() + throttling.unlimited.len();
        assert_eq!(known, 0, "a workload without pods is unknown");
    }
}

#[tokio::test]
async fn a_failed_throttling_query_for_one_namespace_is_reported_and_others_count() {
    let (mut history, end) = hours(3);
    for namespace in ["bank", "shop"] {
        history = OPERATOR.usage(history, MEMORY_METRIC, [namespace, "db-0", "app"], |_| Some(1e8));
        let count =
            |rate: f64| move |now: Timestamp| Some((now.as_second() - 1_700_000_000) as f64 * rate);
        for (family, rate) in [("periods", 10.0), ("throttled_periods", 5.0)] {
            let family = format!("container_cpu_cfs_{family}_total");
            history = OPERATOR.usage(history, &family, [namespace, "db-0", "app"], count(rate));
        }
    }
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let proxy = FaultyProxy::start(&server.url()).await;
    let storage =
        storage(proxy.url(), QueryLimits { max_attempts: 1, ..short_limits() }, last(2), end);
    storage.schema(&["shop"]).await.expect("schema detected");
    let mut vpas = owners_of(&[("db", "apps/StatefulSet/db")]);
    let bank = ObjectKey::new("bank", "db");
    vpas.insert(bank.clone(), Some("apps/StatefulSet/db".into()));
    // The first query for the first namespace, or a later one.
    for fine in 0..4 {
        proxy.fail_next(vec![Fault::None; fine].into_iter().chain([Fault::Disconnected(10)]));
        let report = storage
            .throttling(&vpas, 60 * MINUTE, KnownPods::default())
            .await
            .expect("query succeeded");
        let (namespace, failure) = report.failure.expect("one query failed");
        assert_eq!((&*namespace, failure.is_transient()), ("bank", true), "{failure}");
        assert_eq!(report.failed_vpas, HashSet::from([bank.clone()]));
        let measured: Vec<_> = report.measured.keys().map(ToString::to_string).collect();
        assert_eq!(measured, ["shop/db/app"], "complete for one namespace, nothing for the other");
    }
    // An unavailable server is not queried for every namespace.
    proxy.fail_all(Fault::Replaced(503, "text/plain", "no healthy upstream"));
    let many = (0..20).map(|number| {
        (ObjectKey::new(format!("team-{number}"), "db"), Some("apps/StatefulSet/db".into()))
    });
    let before = proxy.request_count();
    let report = storage
        .throttling(&many.collect(), 60 * MINUTE, KnownPods::default())
        .await
        .expect("query succeeded");
    assert_eq!((report.failed_vpas.len(), proxy.request_count() - before), (20, 3));
}
