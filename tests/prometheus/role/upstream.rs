//! Upstream's recommender and ours read the same history out of the same server, and recommend the same at first.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::clock::Clock;
use plimsoll_storage::Time;
use plimsoll_storage::prometheus::schema::{CPU, MEMORY};
use serde_json::json;

use crate::differential::compare;
use crate::prometheus::flavors::CHART;
use crate::prometheus::way::Way;
use crate::recommender::start::{passed, start, step};
use crate::support::clock::wall_now;
use crate::support::fetch::fetch;
use crate::support::fleet::{self, Kind, Workload, Write, collection};
use crate::support::noise::{self, Noise};
use crate::support::prometheus::{History, Prometheus, Release};
use crate::support::upstream::{Role, Upstream};
use crate::support::{Bed, wait};

const WORKLOADS: usize = 200;
const NAMESPACES: usize = 4;
const DAYS: i64 = 8;
const MEBIBYTE: f64 = 1_048_576.0;
/// Kinds whose pods are told by their names.
const KINDS: [Kind; 3] = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet];
const CONTAINERS: [&str; 3] = ["main", "proxy", "log"];
/// Characters of random parts of names.
const RANDOM: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// What upstream needs beside its defaults.
const FLAGS: &[&str] = &[
    "--storage=prometheus",
    "--prometheus-cadvisor-job-name=kubernetes-nodes-cadvisor",
    "--container-namespace-label=namespace",
    "--container-pod-name-label=pod",
    "--container-name-label=container",
    "--metric-for-pod-labels=kube_pod_labels{job=\"kubernetes-service-endpoints\"}[8d]",
    "--pod-label-prefix=label_",
    "--pod-namespace-label=namespace",
    "--pod-name-label=pod",
    "--history-length=8d",
    "--history-resolution=1h",
    "--recommender-interval=500ms",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
];

#[tokio::test]
async fn with_the_weighting_of_upstream_the_first_recommendation_is_upstreams_to_the_digit() {
    let Some(bed) = Bed::private().await else { return };
    let Some(upstream) = Upstream::on(&bed).await else { return };
    let seed = noise::seed(7);
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(bed.namespace("team").await);
    }
    fleet::end_controllers(&bed).await;
    let workloads: Vec<_> = (0..WORKLOADS).map(|index| draw(seed, index, &namespaces)).collect();
    let client = bed.client();
    fleet::send(&client, workloads.iter().flat_map(Workload::owners)).await;
    let twins = |workload: &Workload| ["left", "right"].map(|twin| vpa(workload, twin));
    fleet::send(&client, workloads.iter().flat_map(twins)).await;

    // Both look at full hours before their own moment. Samples lie just before that, and pods come and go far from it, so that
    // a moment more or less is the same, whatever the hour: else a sample too many can be what a percentile hangs on.
    let end = Timestamp::from_second(wall_now().as_second() / 60 * 60).expect("a minute");
    let begin = end - SignedDuration::from_hours(24 * DAYS + 2);
    let mut past = History::new(begin, end, SignedDuration::from_mins(5));
    for (index, workload) in workloads.iter().enumerate() {
        past = lived(past, seed, index, workload, (begin, end));
    }
    let Some(server) = Prometheus::with_history(Release::Three, past).await else { return };
    let way = Way::to(&server.url()).await;
    let address = format!("--prometheus-address={}", way.url());

    let mut flags = FLAGS.to_vec();
    flags.extend([&*address, "--recommender-name=left"]);
    upstream.start_as("upstream", Role::Recommender, &flags);
    wait::until("upstream has recommended for all", || async {
        upstream.assert_running("upstream");
        let found = compare::statuses(&client).await;
        (found.recommended() == WORKLOADS).then_some(())
    })
    .await;
    let now = way.asked().iter().map(String::as_str).find_map(end_of).expect("upstream's end");

    let clock = Clock::stepped(now);
    flags.pop();
    let more = ["--compat=upstream", "--history-weighting=upstream", "--recommender-name=right"];
    flags.extend(more);
    let running = start(&bed, &clock, &flags).await;
    passed(&running, 1).await;
    // All that is loaded is judged by then, however long it took.
    let ready = format!("http://{}/readyz", running.address());
    wait::until("the past is loaded", || async {
        (!String::from_utf8_lossy(&fetch(&ready).await?).contains("not loaded yet")).then_some(())
    })
    .await;
    step(&running, &clock, Duration::from_millis(500)).await;
    let same = || async {
        let found = compare::statuses(&client).await;
        if found.differences.is_empty() { Ok(found.fields) } else { Err(found.report()) }
    };
    let fields = wait::until_ok(&format!("both say the same (seed {seed})"), same).await;
    assert!(fields > WORKLOADS * 8, "only {fields} fields were compared");
    running.stop().await;
}

/// The end of a range that was asked for.
fn end_of(form: &str) -> Option<Time> {
    let (_, rest) = form.split_once("query_range")?.1.split_once("end=")?;
    let text = rest.split('&').next()?;
    let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
    // Servers read no more than milliseconds.
    let millis: i64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let seconds: i64 = seconds.parse().ok()?;
    Some(Time::from_nanos(seconds * 1_000_000_000 + millis * 1_000_000))
}

fn draw(seed: u64, index: usize, namespaces: &[String]) -> Workload {
    let mut noise = Noise::of(seed, &[1, index as u64]);
    let containers = &CONTAINERS[..noise.between(1, 3) as usize];
    Workload {
        namespace: namespaces[index % namespaces.len()].clone(),
        name: format!("w{index:03}"),
        kind: KINDS[index % KINDS.len()],
        containers: containers.iter().map(|name| (*name).to_owned()).collect(),
        has_init: false,
        request: 64 << 20,
    }
}

fn vpa(workload: &Workload, twin: &str) -> Write {
    let Workload { namespace, name, .. } = workload;
    let object = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "namespace": namespace, "name": format!("{name}-{twin}") },
        "spec": { "targetRef": workload.target_ref(), "recommenders": [{ "name": twin }] },
    });
    let path = collection("autoscaling.k8s.io/v1", namespace, "verticalpodautoscalers");
    Write::create(path, &object)
}

/// A time of that hour, at least a quarter of an hour from its begin and its end.
fn within(hour: u64, noise: &mut Noise) -> i64 {
    (hour * 3600 + noise.between(900, 2_700)) as i64
}

/// Adds one to three pods, each with a life of its own within the time.
fn lived(
    mut past: History,
    seed: u64,
    index: usize,
    workload: &Workload,
    (begin, end): (Timestamp, Timestamp),
) -> History {
    let mut noise = Noise::of(seed, &[2, index as u64]);
    let hours = (end.as_second() - begin.as_second()) as u64 / 3600;
    for number in 0..noise.between(1, 3) {
        let suffix: String = (0..5).map(|_| char::from(RANDOM[noise.below(27) as usize])).collect();
        let name = &workload.name;
        let pod = match workload.kind {
            Kind::StatefulSet => format!("{name}-{number}"),
            Kind::DaemonSet => format!("{name}-{suffix}"),
            _ => format!("{name}-6d4b9c7f5d-{suffix}"),
        };
        // Labels alone say whose it is: one of a name that nobody would give, and one that only looks like its own.
        let (pod, app) = match noise.below(8) {
            0 => (format!("old-{suffix}"), name.as_str()),
            1 if number > 0 => (pod, "nobody"),
            _ => (pod, name.as_str()),
        };
        // The first one lives to the end: what nobody has seen for long is forgotten by both.
        // No two are born in the same hour of a day: a peak of memory weighs by the hour of its day, and among pods with
        // equal weights the median is a tie, which is decided by the order in which a map of Go's is walked.
        let birth = 3 * noise.below(hours / 6) + [1, 3, 5][number as usize];
        let born = begin.as_second() + within(birth, &mut noise);
        let death = begin.as_second() + within(birth + noise.below(hours / 2 - 5), &mut noise);
        let dies = if number == 0 { end.as_second() } else { death.max(born) };
        let lives = move |at: Timestamp| (born..=dies).contains(&at.as_second());
        let names = |container| [&*workload.namespace, &*pod, container];
        for container in &workload.containers {
            let cores = noise.between(1, 3_000) as f64 / 1000.0;
            let (swing, period) =
                (noise.between(0, 90) as f64 / 100.0, noise.between(3, 30) as f64 * 3600.0);
            let bytes = noise.between(5, 4_000) as f64 * MEBIBYTE;
            let counter = move |at: Timestamp| {
                let seconds = (at.as_second() - begin.as_second()) as f64;
                let turn = std::f64::consts::TAU / period;
                let used = cores * (seconds + swing * (1.0 - (turn * seconds).cos()) / turn);
                lives(at).then_some(used)
            };
            let held = move |at: Timestamp| {
                let seconds = (at.as_second() - begin.as_second()) as f64;
                let wave = 1.0 + swing * (seconds / period).sin();
                lives(at).then_some((bytes * wave).round())
            };
            past = CHART.usage(past, CPU, names(container), counter);
            past = CHART.usage(past, MEMORY, names(container), held);
        }
        let object = [("namespace", &*workload.namespace), ("pod", &*pod), ("label_app", app)];
        past = CHART.state(past, "kube_pod_labels", &object, move |at| lives(at).then_some(1.0));
    }
    past
}
