//! The usage that replicas follow: over the minute before the newest sample of each pod, or unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::{clock::Clock, metric_sources::series_usage::SeriesUsage};
use plimsoll_core::scaling::pod_usage::Resource;
use plimsoll_core::types::{Quantity, Time};
use plimsoll_storage::prometheus::{
    client::QueryLimits,
    history::{HistorySettings, PrometheusHistory},
    schema::{CPU_METRIC, MEMORY_METRIC},
    transport::WallClock,
};

use crate::prometheus::label_flavors::OPERATOR;
use crate::prometheus::proxy::{Fault, FaultyProxy};
use crate::prometheus::series_collector::client;
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

/// Milli-units by container and the age of the sample in seconds, by pod.
type Usage<'a> = BTreeMap<&'a str, (i64, Vec<(&'a str, Option<i64>)>)>;

fn series_usage(url: &str, now: Timestamp, timeout: Duration) -> SeriesUsage {
    let limits =
        QueryLimits { timeout, max_attempts: 1, max_in_flight: 8, ..QueryLimits::default() };
    let wall = WallClock::new(move || now.into());
    let history =
        PrometheusHistory::new(url, client(url, limits), HistorySettings::default(), wall);
    SeriesUsage::new(history, Clock::fake(now.into()))
}

/// A server with the series of some pods, scraped every 15 seconds up to `end`.
async fn server(release: PrometheusRelease, end: Timestamp) -> Option<PrometheusServer> {
    let ago = move |seconds: i64| end - SignedDuration::from_secs(seconds);
    let history = History::new(ago(900), end, SignedDuration::from_secs(15));
    // A quarter of a core, and two cores until two minutes ago.
    let busy_before = move |now: Timestamp| {
        let idle = now.duration_since(ago(120)).as_secs_f64().max(0.0);
        let busy = now.duration_since(ago(900)).as_secs_f64() - idle;
        Some(1000.0 + busy * 2.0 + idle * 0.25)
    };
    // It grows by a byte each second.
    let grows = move |now: Timestamp| Some(now.duration_since(ago(900)).as_secs_f64());
    let still = |_: Timestamp| Some(1e6);
    let usage =
        |history: History, pod: &str, container: &str, cpu: fn(Timestamp) -> Option<f64>| {
            let names = ["shop", pod, container];
            let history = OPERATOR.usage(history, CPU_METRIC, names, cpu);
            OPERATOR.usage(history, MEMORY_METRIC, names, still)
        };
    let half: fn(Timestamp) -> Option<f64> =
        |now| Some((now.as_second() - 1_700_000_000) as f64 / 2.0);
    let names = ["shop", "web-0", "app"];
    let history = OPERATOR.usage(history, CPU_METRIC, names, busy_before);
    let history = OPERATOR.usage(history, MEMORY_METRIC, names, grows);
    let history = usage(history, "web-0", "side", half);
    // Its usage so far is known.
    let history = usage(history.existing_between(ago(900), ago(240)), "late-0", "app", half);
    // Deleted before that, or not scraped any more.
    let history = usage(history.existing_between(ago(900), ago(315)), "stale-0", "app", half);
    // Scraped once.
    let history = usage(history.existing_between(ago(0), end), "young-0", "app", half);
    // The container began anew.
    let old = history.existing_between(ago(900), ago(30));
    let (names, id) = (["shop", "again-0", "app"], [("id", "/kubepods/before")]);
    let old = OPERATOR.usage_with(old, CPU_METRIC, names, &id, |_| Some(5000.0));
    let history = usage(old.existing_between(ago(15), end), "again-0", "app", half);
    let history = history.existing_between(ago(900), end);
    // The pod as a whole, its sandbox, and pods of other namespaces.
    let history = usage(usage(history, "web-0", "", half), "web-0", "POD", half);
    let history = OPERATOR.usage(history, CPU_METRIC, ["bank", "web-0", "app"], still);
    PrometheusServer::with_history(release, history).await
}

/// The usage of a resource in a namespace, as text for comparisons.
async fn fetch(usage: &SeriesUsage, namespace: &str, resource: Resource, now: Timestamp) -> String {
    let found = usage.fetch(namespace, resource).await.expect("usage");
    let found: Usage<'_> = found
        .iter()
        .map(|(pod, usage)| {
            let age = Time::from(now).nanos_since(usage.at) / 1_000_000_000;
            let containers = usage.containers.iter();
            let containers =
                containers.map(|(name, amount)| (&**name, amount.map(Quantity::milli_value)));
            (pod.as_str(), (age, containers.collect()))
        })
        .collect();
    format!("{found:?}")
}

#[tokio::test]
async fn usage_is_that_of_the_minute_before_the_newest_sample_of_each_pod() {
    // Blocks hold whole hours.
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let now = end + SignedDuration::from_secs(5);
    for release in [PrometheusRelease::V3, PrometheusRelease::V2] {
        let Some(server) = server(release, end).await else { return };
        let usage = series_usage(&server.url(), now, Duration::from_secs(30));
        let cpu: Usage<'_> = [
            ("again-0", (5, vec![("app", Some(500))])),
            ("late-0", (245, vec![("app", Some(500))])),
            ("web-0", (5, vec![("app", Some(250)), ("side", Some(500))])),
            ("young-0", (5, vec![("app", None)])),
        ]
        .into();
        let found = fetch(&usage, "shop", Resource::Cpu, now).await;
        assert_eq!(found, format!("{cpu:?}"), "{release:?}");
        // The mean of 855, 870, 885 and 900.
        let still = Some(1_000_000_000);
        let memory: Usage<'_> = [
            ("again-0", (5, vec![("app", still)])),
            ("late-0", (245, vec![("app", still)])),
            ("web-0", (5, vec![("app", Some(878_000)), ("side", still)])),
            ("young-0", (5, vec![("app", still)])),
        ]
        .into();
        let found = fetch(&usage, "shop", Resource::Memory, now).await;
        assert_eq!(found, format!("{memory:?}"), "{release:?}");
        assert_eq!(fetch(&usage, "nobody", Resource::Cpu, now).await, "{}");
    }
    faults(end, now).await;
}

/// A server that is away, slow, responds by half, or with something else is an error: a pod that is not in an empty result
/// would be missing, too, but whoever uses it could not tell why.
async fn faults(end: Timestamp, now: Timestamp) {
    let Some(server) = server(PrometheusRelease::V3, end).await else { return };
    let proxy = FaultyProxy::start(&server.url()).await;
    let usage = series_usage(proxy.url(), now, Duration::from_secs(30));
    let fine = fetch(&usage, "shop", Resource::Cpu, now).await;
    assert!(fine.contains("web-0"), "{fine}");
    for (fault, expected) in [
        (Fault::Busy(60), "too busy"),
        (Fault::Disconnected(300), "truncated"),
        (Fault::Truncated(300), "truncated"),
        (Fault::Replaced(500, "text/plain", "away"), "away"),
        (Fault::Replaced(200, "text/html", "<html>sign in</html>"), "text/html"),
        (Fault::Redirect, "redirect"),
        (
            Fault::Replaced(
                200,
                "application/json",
                r#"{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}"#,
            ),
            "partial",
        ),
    ] {
        proxy.fail_next(vec![fault.clone()]);
        let error = usage.fetch("shop", Resource::Cpu).await.expect_err(expected);
        assert!(error.contains(expected) && !error.contains('\n'), "{fault:?}: {error}");
        // The next period is as before.
        assert_eq!(fetch(&usage, "shop", Resource::Cpu, now).await, fine, "{fault:?}");
    }
    // Series that were not asked for count as none.
    proxy.fail_next(vec![Fault::Replaced(
        200,
        "application/json",
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","namespace":"shop",
            "pod":"web-0","container":"app"},"values":[[1,"0"]]}]}}"#,
    )]);
    assert_eq!(fetch(&usage, "shop", Resource::Cpu, now).await, "{}");
}
