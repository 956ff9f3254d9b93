//! Upstream's recommender and ours read the same history from the same server and give the same first recommendation.
//!
//! The gate compares with a recording of upstream's recommendations; in the deep run both read one server.

mod deep;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::prometheus::label_flavors::CHART;
use crate::recommender::in_process::{start, step, wait_for_passes};
use crate::recommender_differential::compare::{self, Comparison, Fields};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::bulk_objects::{self, ApiWrite, Workload, WorkloadKind, collection};
use crate::support::http_get::http_get;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};
use crate::support::random::Random;
use crate::support::upstream_recording::UpstreamRecording;
use crate::support::{Testbed, wait};

/// Number of recorded workloads.
const RECORDED: usize = 60;
const SEED: u64 = 7;
const NAMESPACES: usize = 4;
const HOURS: i64 = 24 * 8 + 2;
const MEBIBYTE: f64 = 1_048_576.0;
/// Kinds whose pods are identified by name.
const KINDS: [WorkloadKind; 3] =
    [WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet];
const CONTAINERS: [&str; 3] = ["main", "proxy", "log"];
/// Characters of the random parts of names.
const RANDOM: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Flags that upstream needs besides its defaults.
const FLAGS: [&str; 14] = [
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

/// Recorded results of upstream.
#[derive(Debug, Serialize, Deserialize)]
struct Recording {
    /// End of the history, in seconds.
    end: i64,
    /// Time of upstream's queries, in milliseconds.
    now: i64,
    /// Upstream's statuses, by workload.
    statuses: BTreeMap<String, Fields>,
}

/// A pod and its usage. Times are in seconds since the start of the history.
#[derive(Clone, Debug, Serialize)]
struct Pod {
    namespace: String,
    name: String,
    app: String,
    born: i64,
    dies: i64,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Serialize)]
struct Container {
    name: String,
    cores: f64,
    bytes: f64,
    swing: f64,
    period: f64,
}

/// The workloads that both recommenders read.
struct GeneratedCluster {
    seed: u64,
    workloads: Vec<Workload>,
    pods: Vec<Pod>,
}

impl GeneratedCluster {
    fn draw(seed: u64, count: usize) -> Self {
        let workloads: Vec<_> = (0..count).map(|index| draw(seed, index)).collect();
        let pods_of = |(index, workload)| pods(seed, index, workload);
        let pods = workloads.iter().enumerate().flat_map(pods_of).collect();
        Self { seed, workloads, pods }
    }

    fn recording(&self) -> UpstreamRecording {
        let written: Vec<_> =
            self.writes(&["left", "right"]).map(|write| format!("{write:?}")).collect();
        UpstreamRecording::new("history", self.seed, &(written, &self.pods))
    }

    /// Its objects, with a VPA for each of these recommenders.
    fn writes(&self, twins: &[&'static str]) -> impl Iterator<Item = ApiWrite> {
        let vpas = |workload| twins.iter().map(move |twin| vpa(workload, twin));
        let vpas: Vec<_> = self.workloads.iter().flat_map(vpas).collect();
        self.workloads.iter().flat_map(Workload::owners).chain(vpas)
    }

    async fn create(&self, bed: &Testbed, twins: &[&'static str]) {
        bulk_objects::stop_controllers(bed).await;
        let homes = (0..NAMESPACES).map(|index| {
            let metadata = json!({ "name": namespace(index) });
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            ApiWrite::create("/api/v1/namespaces", &object)
        });
        bulk_objects::send(&bed.client(), homes).await;
        bulk_objects::send(&bed.client(), self.writes(twins)).await;
    }

    /// A server with the history up to `end`.
    async fn server(&self, end: Timestamp) -> Option<PrometheusServer> {
        let begin = end - SignedDuration::from_hours(HOURS);
        let mut history = History::new(begin, end, SignedDuration::from_mins(5));
        for pod in &self.pods {
            history = add_pod_usage(history, pod, begin);
        }
        PrometheusServer::with_history(PrometheusRelease::V3, history).await
    }

    /// Waits until our recommender, reading from this server, matches upstream at that time.
    async fn compare(
        &self,
        bed: &Testbed,
        server: &str,
        now: Time,
        found: impl AsyncFn() -> Comparison,
    ) -> Comparison {
        let clock = Clock::fake(now);
        let address = format!("--prometheus-address={server}");
        let mut flags = FLAGS.to_vec();
        flags.push(&address);
        let more =
            ["--compat=upstream", "--history-weighting=upstream", "--recommender-name=right"];
        flags.extend(more);
        let running = start(bed, &clock, &flags).await;
        wait_for_passes(&running, 1).await;
        // All loaded VPAs are expected by then, however long it took.
        let ready = format!("http://{}/readyz", running.address());
        wait::until("the history is loaded", || async {
            (!String::from_utf8_lossy(&http_get(&ready).await?).contains("not loaded yet"))
                .then_some(())
        })
        .await;
        step(&running, &clock, Duration::from_millis(500)).await;
        let description = format!("both say the same (seed {})", self.seed);
        let same = wait::until_ok(&description, || async {
            let found = found().await;
            if found.differences.is_empty() { Ok(found) } else { Err(found.report()) }
        })
        .await;
        assert!(same.fields > self.workloads.len() * 8, "only {} fields", same.fields);
        running.stop().await;
        same
    }
}

#[tokio::test]
async fn with_upstreams_weighting_the_first_recommendation_equals_the_recorded_one() {
    let world = GeneratedCluster::draw(SEED, RECORDED);
    let Recording { end, now, statuses } = world.recording().read();
    let Some(bed) = Testbed::private().await else { return };
    create_definitions(&bed).await;
    world.create(&bed, &["right"]).await;
    let end = Timestamp::from_second(end).expect("in range");
    let Some(server) = world.server(end).await else { return };
    let client = bed.client();
    let now = Time::from_nanos(now * 1_000_000);
    let found = async || compare::statuses_against(&client, &statuses).await;
    let same = world.compare(&bed, &server.url(), now, found).await;
    assert_eq!(same.recommended(), RECORDED);

    let mut altered = statuses.clone();
    let target = altered.values_mut().flat_map(BTreeMap::iter_mut);
    let mut targets = target.filter(|(name, _)| name.ends_with(".target.cpu"));
    targets.next().expect("a target").1.push('1');
    let found = compare::statuses_against(&client, &altered).await;
    assert_eq!(found.differences.len(), 1, "a changed recording is a difference");
}

fn namespace(index: usize) -> String {
    format!("team-{index}")
}

fn draw(seed: u64, index: usize) -> Workload {
    let mut noise = Random::derive(seed, &[1, index as u64]);
    let containers = &CONTAINERS[..noise.between(1, 3) as usize];
    Workload {
        namespace: namespace(index % NAMESPACES),
        name: format!("w{index:03}"),
        kind: KINDS[index % KINDS.len()],
        containers: containers.iter().map(|name| (*name).to_owned()).collect(),
        has_init: false,
        request: 64 << 20,
    }
}

fn vpa(workload: &Workload, twin: &str) -> ApiWrite {
    let Workload { namespace, name, .. } = workload;
    let object = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "namespace": namespace, "name": format!("{name}-{twin}") },
        "spec": { "targetRef": workload.target_ref(), "recommenders": [{ "name": twin }] },
    });
    let path = collection("autoscaling.k8s.io/v1", namespace, "verticalpodautoscalers");
    ApiWrite::create(path, &object)
}

/// A time in that hour, at least a quarter of an hour from its start and end.
fn within(hour: u64, noise: &mut Random) -> i64 {
    (hour * 3600 + noise.between(900, 2_700)) as i64
}

/// One to three pods, each with its own lifetime within the history.
fn pods(seed: u64, index: usize, workload: &Workload) -> Vec<Pod> {
    let mut noise = Random::derive(seed, &[2, index as u64]);
    let hours = HOURS as u64;
    let mut pods = Vec::new();
    for number in 0..noise.between(1, 3) {
        let suffix: String = (0..5).map(|_| char::from(RANDOM[noise.below(27) as usize])).collect();
        let name = &workload.name;
        let pod = match workload.kind {
            WorkloadKind::StatefulSet => format!("{name}-{number}"),
            WorkloadKind::DaemonSet => format!("{name}-{suffix}"),
            _ => format!("{name}-6d4b9c7f5d-{suffix}"),
        };
        // Labels alone identify the owner: one pod has an irregular name, and one only looks like a pod of the
        // workload.
        let (pod, app) = match noise.below(8) {
            0 => (format!("old-{suffix}"), name.as_str()),
            1 if number > 0 => (pod, "nobody"),
            _ => (pod, name.as_str()),
        };
        // The first pod lives to the end: both recommenders forget workloads that have been idle for long. No two pods
        // start in the same hour of a day: a memory peak's weight depends on its hour of the day, and with equal
        // weights the median is a tie that depends on the iteration order of a Go map.
        let birth = 3 * noise.below(hours / 6) + [1, 3, 5][number as usize];
        let born = within(birth, &mut noise);
        let death = within(birth + noise.below(hours / 2 - 5), &mut noise);
        let dies = if number == 0 { HOURS * 3600 } else { death.max(born) };
        let containers = workload.containers.iter().map(|name| Container {
            name: name.clone(),
            cores: noise.between(1, 3_000) as f64 / 1000.0,
            swing: noise.between(0, 90) as f64 / 100.0,
            period: noise.between(3, 30) as f64 * 3600.0,
            bytes: noise.between(5, 4_000) as f64 * MEBIBYTE,
        });
        let containers = containers.collect();
        let (namespace, app) = (workload.namespace.clone(), app.to_owned());
        pods.push(Pod { namespace, name: pod, app, born, dies, containers });
    }
    pods
}

/// Adds the usage of a pod.
fn add_pod_usage(mut history: History, pod: &Pod, begin: Timestamp) -> History {
    let Pod { namespace, name, app, born, dies, containers } = pod;
    let (born, dies) = (*born, *dies);
    let since = move |at: Timestamp| at.as_second() - begin.as_second();
    let is_alive = move |at: Timestamp| (born..=dies).contains(&since(at));
    for container in containers {
        let names = [&**namespace, &**name, &*container.name];
        let &Container { cores, bytes, swing, period, .. } = container;
        let counter = move |at: Timestamp| {
            let seconds = since(at) as f64;
            let turn = std::f64::consts::TAU / period;
            let used = cores * (seconds + swing * (1.0 - (turn * seconds).cos()) / turn);
            is_alive(at).then_some(used)
        };
        let memory = move |at: Timestamp| {
            let wave = 1.0 + swing * (since(at) as f64 / period).sin();
            is_alive(at).then_some((bytes * wave).round())
        };
        history = CHART.usage(history, CPU_METRIC, names, counter);
        history = CHART.usage(history, MEMORY_METRIC, names, memory);
    }
    let object = [("namespace", &**namespace), ("pod", &**name), ("label_app", &**app)];
    CHART.state(history, "kube_pod_labels", &object, move |at| is_alive(at).then_some(1.0))
}
