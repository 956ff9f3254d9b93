//! Generates the cluster of a differential test: workloads of every kind, twin VPAs, and changes of pods over time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};

use super::compare::VPAS;
use super::generated_policies;
use crate::support::bulk_objects::{
    self, ApiWrite, ContainerRun, Workload, WorkloadKind, collection,
};
use crate::support::metrics_server::Sample;
use crate::support::random::Random;

/// The twin VPAs of a workload differ in name and in the recommender that they select.
pub const TWINS: [&str; 2] = ["left", "right"];
const MEBIBYTE: u64 = 1 << 20;
/// Long for a pass of a second, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// What is wrong with a VPA's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetDefect {
    /// It does not exist.
    Missing,
    /// It is owned by a scalable object.
    Owned,
    /// Its kind is unknown to the API server.
    Unknown,
    /// It has no pods.
    Idle,
}

/// A pod of a workload.
#[derive(Debug)]
struct Pod {
    number: u64,
    runs: Vec<ContainerRun>,
}

/// A workload with its pods.
#[derive(Debug)]
struct TwinWorkload {
    workload: Workload,
    target_defect: Option<TargetDefect>,
    pods: Vec<Pod>,
    next: u64,
    cores: u64,
    bytes: u64,
}

/// All workloads of a run.
#[derive(Debug)]
pub struct GeneratedCluster {
    seed: u64,
    subjects: Vec<TwinWorkload>,
    /// Its pod changes after everything else: a recommender that has observed it has observed all changes.
    marker: TwinWorkload,
    /// Number of served samples of each container with a history, by namespace, workload and container.
    pub shown: BTreeMap<(String, String, String), u64>,
}

/// A sample that owns its strings.
#[derive(Clone, Debug)]
pub struct ServedSample {
    namespace: String,
    pod: String,
    container: String,
    cpu: u64,
    memory: u64,
}

// === impl Shown ===

impl ServedSample {
    /// In the form that the metrics server takes.
    pub fn sample(&self) -> Sample<'_> {
        let Self { namespace, pod, container, cpu, memory } = self;
        Sample { namespace, pod, container, cpu: *cpu, memory: *memory }
    }
}

// === impl Cluster ===

impl GeneratedCluster {
    /// Generates `count` workloads, spread over the namespaces.
    pub fn draw(seed: u64, count: usize, namespaces: &[&str]) -> Self {
        let subject = |index: usize| {
            let mut noise = Random::derive(seed, &[1, index as u64]);
            let kind = WorkloadKind::ALL[index % WorkloadKind::ALL.len()];
            let trouble = match index % 29 {
                3 => Some(TargetDefect::Missing),
                8 if kind != WorkloadKind::Deployment => Some(TargetDefect::Idle),
                13 => Some(TargetDefect::Unknown),
                _ if matches!(
                    kind,
                    WorkloadKind::Deployment | WorkloadKind::CronJob | WorkloadKind::Rollout
                ) && noise.chance(6) =>
                {
                    Some(TargetDefect::Owned)
                }
                _ => None,
            };
            let containers = ["main", "proxy", "log-2"][..noise.between(1, 3) as usize].iter();
            let workload = Workload {
                namespace: namespaces[index % namespaces.len()].to_owned(),
                name: format!("w{index:03}"),
                kind,
                containers: containers.map(|name| (*name).to_owned()).collect(),
                has_init: noise.chance(10),
                request: noise.between(16, 2048) * MEBIBYTE,
            };
            let replicas =
                if trouble == Some(TargetDefect::Idle) { 0 } else { noise.between(1, 4) };
            let runs = vec![ContainerRun::default(); workload.containers.len()];
            TwinWorkload {
                pods: (0..replicas).map(|number| Pod { number, runs: runs.clone() }).collect(),
                workload,
                target_defect: trouble,
                next: replicas,
                cores: noise.between(1, 3_000) * 1_000_000,
                bytes: noise.between(1, 3_000) * MEBIBYTE,
            }
        };
        let marker = TwinWorkload {
            target_defect: None,
            pods: Vec::new(),
            next: 0,
            workload: Workload { name: "marker".to_owned(), ..subject(0).workload },
            ..subject(0)
        };
        let subjects = (0..count).map(subject).collect();
        Self { seed, subjects, marker, shown: BTreeMap::new() }
    }

    /// Whether an object, by its namespace and the name that twins share, belongs to one of the first `count`
    /// workloads, which are the same for any number of workloads. The marker is not one of them.
    pub fn is_among_first(object: &str, count: usize) -> bool {
        let name = object.split('/').nth(1).and_then(|name| name.strip_prefix('w'));
        name.and_then(|number| number.parse().ok()).is_some_and(|number: usize| number < count)
    }

    /// Creates all objects, with the VPAs of these twins.
    pub async fn create(&self, client: &Client, twins: &[&str]) {
        for writes in self.write_batches(twins) {
            bulk_objects::send(client, writes).await;
        }
    }

    /// All objects that are created, as text.
    pub fn texts(&self) -> Vec<String> {
        self.write_batches(&TWINS).iter().flatten().map(ApiWrite::text).collect()
    }

    fn write_batches(&self, twins: &[&str]) -> [Vec<ApiWrite>; 3] {
        let all = || self.subjects.iter().chain([&self.marker]);
        let owners = all().flat_map(|subject| subject.workload.owners());
        let pods = self.pods().map(|(subject, pod)| subject.workload.create_pod(pod.number));
        let statuses = all().flat_map(|subject| subject.workload.statuses());
        let running =
            self.pods().map(|(subject, pod)| subject.workload.report_pod_running(pod.number, &[]));
        [
            owners.collect(),
            pods.chain(statuses).collect(),
            running.chain(self.vpas(twins)).collect(),
        ]
    }

    fn pods(&self) -> impl Iterator<Item = (&TwinWorkload, &Pod)> {
        self.subjects.iter().flat_map(|subject| subject.pods.iter().map(move |pod| (subject, pod)))
    }

    /// Creates the VPAs of these twins.
    pub fn vpas(&self, twins: &[&str]) -> Vec<ApiWrite> {
        let all = self.subjects.iter().chain([&self.marker]).enumerate();
        let vpas = all.flat_map(|(index, subject)| {
            let mut noise = Random::derive(self.seed, &[2, index as u64]);
            let (spec, annotations) =
                generated_policies::draw(&mut noise, &subject.workload.containers);
            twins.iter().map(move |twin| vpa(subject, twin, &spec, &annotations))
        });
        vpas.collect()
    }

    /// Usage of all containers at a step.
    pub fn step(&mut self, step: u64) -> Vec<ServedSample> {
        let mut shown = Vec::new();
        for (index, subject) in self.subjects.iter().chain([&self.marker]).enumerate() {
            let Workload { namespace, name, containers, has_init, .. } = &subject.workload;
            for pod in &subject.pods {
                let mut noise = Random::derive(self.seed, &[3, index as u64, pod.number, step]);
                // metrics-server occasionally has no data yet for a pod or container.
                if noise.chance(2) {
                    continue;
                }
                let init = has_init.then_some("setup");
                for container in containers.iter().map(String::as_str).chain(init) {
                    let (cpu, memory) = subject.usage(&mut noise, step);
                    if noise.chance(3) {
                        continue;
                    }
                    if container != "setup" && subject.is_recommended() {
                        let key = (namespace.clone(), name.clone(), container.to_owned());
                        *self.shown.entry(key).or_default() += 1;
                    }
                    shown.push(ServedSample {
                        namespace: namespace.clone(),
                        pod: subject.workload.pod_name(pod.number),
                        container: container.to_owned(),
                        cpu,
                        memory,
                    });
                }
            }
        }
        shown
    }

    /// OOM-kills containers, restarts others, and replaces pods; `now` is the time of the samples. The last change
    /// adds or removes the marker's pod.
    pub fn change_pods(&mut self, step: u64, now: Timestamp) -> Vec<Vec<ApiWrite>> {
        let (mut first, mut then) = (Vec::new(), Vec::new());
        for (index, subject) in self.subjects.iter_mut().enumerate() {
            let mut noise = Random::derive(self.seed, &[4, index as u64, step]);
            // Not also killed: it is undefined whether a recommender reads the pod between the two changes.
            let goes = noise.chance(4) && !subject.pods.is_empty();
            for pod in &mut subject.pods[usize::from(goes)..] {
                if pod.disturb(&mut noise, now) {
                    first.push(subject.workload.report_pod_running(pod.number, &pod.runs));
                }
            }
            if goes {
                let old = subject.pods.remove(0);
                let runs = vec![ContainerRun::default(); subject.workload.containers.len()];
                let number = subject.next;
                subject.next += 1;
                subject.pods.push(Pod { number, runs });
                first.push(subject.workload.create_pod(number));
                then.extend([
                    subject.workload.report_pod_running(number, &[]),
                    subject.workload.delete_pod(old.number),
                ]);
            }
        }
        let TwinWorkload { workload, pods, next, .. } = &mut self.marker;
        let mut writes = vec![first, then];
        if let Some(pod) = pods.pop() {
            writes.push(vec![workload.delete_pod(pod.number)]);
        } else {
            writes.push(vec![workload.create_pod(*next)]);
            writes.push(vec![workload.report_pod_running(*next, &[])]);
            pods.push(Pod { number: *next, runs: Vec::new() });
            *next += 1;
        }
        writes
    }

    /// Whether the status of the marker's VPA of that twin reflects its pod.
    pub async fn is_marked(&self, client: &Client, twin: &str) -> bool {
        let TwinWorkload { workload, pods, .. } = &self.marker;
        let vpas = collection("autoscaling.k8s.io/v1", &workload.namespace, VPAS);
        let path = format!("{vpas}/{}-{twin}", workload.name);
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let vpa: Value = client.request(request).await.expect("API server responds");
        let is_alone = |condition: &Value| {
            condition["type"] == "NoPodsMatched" && condition["status"] == "True"
        };
        let conditions = vpa["status"]["conditions"].as_array();
        conditions.is_some_and(|conditions| conditions.iter().any(is_alone) == pods.is_empty())
    }
}

// === impl Subject ===

impl TwinWorkload {
    /// Whether a recommender keeps a history of it.
    fn is_recommended(&self) -> bool {
        self.target_defect.is_none()
    }

    /// Nanocores and bytes: a daily wave with noise, occasionally zero or far too much.
    fn usage(&self, noise: &mut Random, step: u64) -> (u64, u64) {
        let wave = 50 + (step % 12) * 10;
        let factor = match noise.below(50) {
            0 => 0,
            1 => 2_000,
            _ => noise.between(50, 150),
        };
        let cpu = self.cores / 100 * wave / 100 * factor + noise.below(1_000_000);
        let memory = self.bytes / 100 * wave / 100 * noise.between(80, 130);
        (cpu, if factor == 0 { 0 } else { memory })
    }
}

// === impl Pod ===

impl Pod {
    /// Whether its status has changed.
    fn disturb(&mut self, noise: &mut Random, now: Timestamp) -> bool {
        if let Some(down) = self.runs.iter_mut().find(|run| run.is_down) {
            (down.is_down, down.restarts) = (false, down.restarts + 1);
            return true;
        }
        if !noise.chance(6) {
            return false;
        }
        let index = noise.below(self.runs.len() as u64) as usize;
        let seconds = noise.below(4 * 3600) as i64 - 3 * 3600;
        let run = &mut self.runs[index];
        run.killed = Some(now + SignedDuration::from_secs(seconds));
        // Observed while it is down, or only after its restart.
        if noise.chance(50) {
            run.is_down = true;
        } else {
            run.restarts += 1;
        }
        true
    }
}

fn vpa(subject: &TwinWorkload, twin: &str, spec: &Value, annotations: &Value) -> ApiWrite {
    let workload = &subject.workload;
    let mut spec = spec.clone();
    spec["recommenders"] = json!([{ "name": twin }]);
    let mut target = workload.target_ref();
    match subject.target_defect {
        Some(TargetDefect::Missing) => target["name"] = "nobody".into(),
        Some(TargetDefect::Unknown) => target["kind"] = "Wobble".into(),
        Some(TargetDefect::Owned) => {
            target = workload.intermediate_ref().expect("rendered");
        }
        Some(TargetDefect::Idle) | None => {}
    }
    spec["targetRef"] = target;
    let object = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {
            "name": format!("{}-{twin}", workload.name), "namespace": workload.namespace,
            "annotations": annotations,
        },
        "spec": spec,
    });
    let path = collection("autoscaling.k8s.io/v1", &workload.namespace, VPAS);
    ApiWrite::create(path, &object)
}
