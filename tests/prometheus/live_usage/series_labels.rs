//! Usage is read with all label conventions, replicas of a series count once, and invalid values are ignored.

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::detect::SchemaOverrides;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::{fetch, schema, short};
use crate::prometheus::label_flavors::{ALL, LabelFlavor, OLD, OPERATOR};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const POD: &str = "web-7d5f9c4b6d-x2x4z";
const STEP: SignedDuration = SignedDuration::from_secs(15);

/// Containers by their Docker names.
const DOCKER: LabelFlavor =
    LabelFlavor { name: "Docker's names", identity: ["namespace", "pod_name", "name"], ..OLD };

/// Some minutes up to a full hour in the past.
fn minutes(every: SignedDuration) -> (History, Timestamp) {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    (History::new(end - SignedDuration::from_mins(10), end, every), end)
}

fn seconds(now: Timestamp) -> f64 {
    (now.as_second() - 1_700_000_000) as f64
}

/// Adds a container with this usage.
fn used(
    flavor: &LabelFlavor,
    history: History,
    container: [&'static str; 3],
    (cores, bytes): (f64, f64),
) -> History {
    let history =
        flavor.usage(history, CPU_METRIC, container, move |now| Some(seconds(now) * cores));
    flavor.usage(history, MEMORY_METRIC, container, move |_| Some(bytes))
}

#[tokio::test]
async fn usage_is_read_with_every_labelling() {
    let flavors = ALL.into_iter().chain([DOCKER]);
    for (flavor, release) in
        flavors.zip([PrometheusRelease::V2, PrometheusRelease::V3].into_iter().cycle())
    {
        let (mut history, end) = minutes(STEP);
        let names = match flavor.identity[2] {
            "name" => {
                ["k8s_app_web_shop_0a1b_0", "k8s_side_web_shop_0a1b_0", "k8s_POD_web_shop_0a1b_0"]
            }
            _ => ["app", "side", "POD"],
        };
        let [app, side, sandbox] = names;
        history = used(&flavor, history, ["shop", POD, app], (0.25, 1e8));
        history = used(&flavor, history, ["shop", POD, side], (0.001, 2e8));
        history = used(&flavor, history, ["bank", "ledger-0", app], (2.0, 3e8));
        history = used(&flavor, history, ["elsewhere", "other-0", app], (2.0, 3e8));
        for container in [sandbox, ""] {
            history = used(&flavor, history, ["shop", POD, container], (4.0, 1e9));
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let url = server.url();
        let wanted = ["shop", "bank", "none"];
        let schema = schema(&url, &SchemaOverrides::default(), &wanted, end).await;
        let (report, pods) = fetch(&url, &schema, &wanted, end).await;
        let name = flavor.name;
        let web = vec![("app", Some(250), Some(100_000_000)), ("side", Some(1), Some(200_000_000))];
        let ledger = vec![("app", Some(2000), Some(300_000_000))];
        assert_eq!(
            short(&pods, end),
            [("ledger-0", 0, ledger, false), (POD, 0, web, false)],
            "{name} on {release:?}"
        );
        let namespaces: Vec<&str> = pods.iter().map(|pod| &*pod.namespace).collect();
        assert_eq!(namespaces, ["bank", "shop"], "{name}");
        let report = report.expect("query succeeded");
        assert_eq!((report.pods, report.containers, report.malformed), (2, 3, 0), "{name}");
        assert!(report.is_complete());
    }
}

#[tokio::test]
async fn a_configured_matcher_selects_the_cluster() {
    let (mut history, end) = minutes(STEP);
    for (cluster, bytes) in [
        (&[("job", "kubelet"), ("cluster", "qa")], 1e8),
        (&[("job", "kubelet"), ("cluster", "prod")], 7e8),
    ] {
        let flavor = LabelFlavor { usage: cluster, copies: None, ..OPERATOR };
        history = used(&flavor, history, ["shop", POD, "app"], (0.25, bytes));
    }
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let url = server.url();
    for (cluster, bytes) in [("qa", 100_000_000), ("prod", 700_000_000)] {
        let matcher = format!("cluster={cluster:?}").parse().expect("a matcher");
        let known = SchemaOverrides {
            matchers: [matcher].into_iter().collect(),
            ..SchemaOverrides::default()
        };
        let schema = schema(&url, &known, &["shop"], end).await;
        let (_, pods) = fetch(&url, &schema, &["shop"], end).await;
        let app = vec![("app", Some(250), Some(bytes))];
        assert_eq!(short(&pods, end), [(POD, 0, app, false)]);
    }
}

/// Two servers that scrape at different times and see different values.
fn copies(mut history: History) -> History {
    for (copy, offset, cores, bytes) in [("one", 0, 0.25, 1e8), ("two", 5, 0.5, 2e8)] {
        let takes = move |now: Timestamp| now.as_second() % 15 == offset;
        let labels = [
            ("job", "kubelet"),
            ("prometheus_replica", copy),
            ("namespace", "shop"),
            ("pod", POD),
            ("container", "app"),
        ];
        let count = move |now: Timestamp| takes(now).then(|| seconds(now) * cores);
        history = history.series(CPU_METRIC, &labels, count);
        history = history.series(MEMORY_METRIC, &labels, move |now| takes(now).then_some(bytes));
    }
    history
}

#[tokio::test]
async fn the_fresher_of_two_copies_of_a_series_counts() {
    for release in [PrometheusRelease::V2, PrometheusRelease::V3] {
        let (history, end) = minutes(SignedDuration::from_secs(5));
        let Some(server) = PrometheusServer::with_history(release, copies(history)).await else {
            return;
        };
        let url = server.url();
        let schema = schema(&url, &SchemaOverrides::default(), &["shop"], end).await;
        assert_eq!(
            schema.scrape_interval.value.longest_gap,
            STEP.unsigned_abs(),
            "each replica on its own"
        );
        for (ago, age, cpu, bytes) in [(0, 0, 250, 100_000_000), (5, 5, 500, 200_000_000)] {
            let now = end - SignedDuration::from_secs(ago);
            let (report, pods) = fetch(&url, &schema, &["shop"], now).await;
            let app = vec![("app", Some(cpu), Some(bytes))];
            assert_eq!(short(&pods, now), [(POD, age, app, false)], "{ago} s before the end");
            assert_eq!(report.expect("query succeeded").containers, 1);
        }
    }
}

/// A value of a pod's container over time.
type Value = Box<dyn Fn(Timestamp) -> Option<f64> + Send>;

/// Pods with one irregularity each.
fn odd(mut history: History, end: Timestamp) -> History {
    let before = move |now: Timestamp, steps: i32| now <= end - STEP * steps;
    let gauge = |_: Timestamp| Some(1e8);
    let counter = |now: Timestamp| Some(seconds(now) * 0.25);
    let none = |_: Timestamp| None;
    let all: [(&str, &str, Value, Value); 14] = [
        ("began-anew", "main", Box::new(gauge), {
            Box::new(move |now| Some(if now == end { 3.0 } else { seconds(now) }))
        }),
        ("cpu-only", "main", Box::new(none), Box::new(counter)),
        ("ended", "main", Box::new(gauge), Box::new(counter)),
        ("ended", "setup", Box::new(move |now| before(now, 1).then_some(1e8)), {
            Box::new(move |now| counter(now).filter(|_| before(now, 1)))
        }),
        ("gone", "main", Box::new(move |now| before(now, 4).then_some(1e8)), {
            Box::new(move |now| counter(now).filter(|_| before(now, 4)))
        }),
        ("infinite", "main", Box::new(|_| Some(f64::INFINITY)), Box::new(counter)),
        ("late", "main", Box::new(move |now| before(now, 1).then_some(1e8)), {
            Box::new(move |now| counter(now).filter(|_| before(now, 1)))
        }),
        ("memory-only", "main", Box::new(gauge), Box::new(none)),
        (
            "nan-at-last",
            "main",
            { Box::new(move |now| Some(if now == end { f64::NAN } else { 1e8 })) },
            Box::new(counter),
        ),
        ("nan-in-between", "main", Box::new(gauge), {
            Box::new(move |now| {
                counter(now).map(|it| if now == end - STEP { f64::NAN } else { it })
            })
        }),
        ("negative", "main", Box::new(|_| Some(-1.0)), Box::new(|_| Some(f64::NAN))),
        ("nothing", "main", Box::new(gauge), Box::new(|_| Some(1e6))),
        ("odd-beside", "main", Box::new(gauge), Box::new(counter)),
        ("odd-beside", "side", Box::new(|_| Some(f64::NEG_INFINITY)), Box::new(none)),
    ];
    for (pod, container, memory, cpu) in all {
        for (metric, value) in [(MEMORY_METRIC, memory), (CPU_METRIC, cpu)] {
            let labels =
                [("job", "kubelet"), ("namespace", "shop"), ("pod", pod), ("container", container)];
            history = history.series(metric, &labels, value);
        }
    }
    for metric in [MEMORY_METRIC, CPU_METRIC] {
        let labels =
            [("job", "kubelet"), ("namespace", "shop"), ("pod", "young"), ("container", "main")];
        history = history.series(metric, &labels, move |now| (now == end).then_some(1e8));
    }
    history
}

#[tokio::test]
async fn invalid_and_stale_usage_is_unknown_and_never_zero() {
    for release in [PrometheusRelease::V2, PrometheusRelease::V3] {
        let (history, end) = minutes(STEP);
        let Some(server) = PrometheusServer::with_history(release, odd(history, end)).await else {
            return;
        };
        let url = server.url();
        let schema = schema(&url, &SchemaOverrides::default(), &["shop"], end).await;
        let (report, pods) = fetch(&url, &schema, &["shop"], end).await;
        let main = |cpu, memory| vec![("main", cpu, memory)];
        let fine = || main(Some(250), Some(100_000_000));
        assert_eq!(
            short(&pods, end),
            [
                ("began-anew", 0, main(Some(200), Some(100_000_000)), false),
                ("cpu-only", 0, main(Some(250), None), true),
                ("ended", 0, fine(), false),
                ("infinite", 0, main(Some(250), None), true),
                ("late", 15, fine(), false),
                ("memory-only", 0, main(None, Some(100_000_000)), true),
                ("nan-at-last", 15, fine(), false),
                ("nan-in-between", 0, fine(), false),
                ("nothing", 0, main(Some(0), Some(100_000_000)), false),
                ("odd-beside", 0, fine(), true),
                ("young", 0, main(None, Some(100_000_000)), true),
            ],
            "on {release:?}"
        );
        let report = report.expect("query succeeded");
        assert!(report.is_complete());
        // infinite, nan-at-last, nan-in-between, negative twice, odd-beside.
        assert_eq!(report.malformed, 6, "{:?}", report.malformed_examples);
        let expected = "shop/infinite/main: memory of inf at ";
        let examples = report.malformed_examples;
        assert!(examples.iter().any(|example| example.starts_with(expected)), "{examples:?}");
    }
}
