//! The workloads of the day: one of every kind, with all sorts of policies, and the usage of their pods.

use kube::Client;
use serde_json::{Value, json};

pub use super::super::reference_model::ReferencePolicy;
use super::super::reference_model::time_text;
use crate::support::bulk_objects::{self, ApiWrite, Workload, WorkloadKind, collection};
use crate::support::metrics_server::Sample;
use crate::support::random::Random;

/// In bytes.
pub const MEBIBYTE: i64 = 1 << 20;
/// Memory request of each container.
pub const REQUEST: i64 = 512 * MEBIBYTE;
/// A restartable init container (sidecar).
pub const SIDECAR: &str = "mesh";
/// An init container that runs to completion.
const SETUP: &str = "setup";
/// Values of `spec.recommenders` of the VPAs.
pub const RECOMMENDERS: [&str; 2] = ["ours", "theirs"];

/// A workload with its pods.
#[derive(Debug)]
pub struct DayWorkload {
    pub name: &'static str,
    pub kind: WorkloadKind,
    pub containers: &'static [&'static str],
    pub has_sidecar: bool,
    has_setup: bool,
    pub policies: Vec<ReferencePolicy>,
    /// Numbers of the pods, in order.
    pub pods: Vec<u64>,
    next: u64,
    /// Base usage in millicores and mebibytes.
    base_usage: (i64, i64),
}

/// All workloads of the day.
#[derive(Debug)]
pub struct DayWorkloads {
    pub namespace: String,
    pub workloads: Vec<DayWorkload>,
}

/// Usage of one container, in order of pods.
#[derive(Clone, Debug)]
pub struct ServedSample {
    namespace: String,
    pub subject: &'static str,
    pub pod: String,
    pub container: &'static str,
    pub nanocores: u64,
    pub bytes: u64,
}

// === impl Shown ===

impl ServedSample {
    /// In the form that the metrics server takes.
    pub fn sample(&self) -> Sample<'_> {
        let Self { namespace, pod, container, .. } = self;
        Sample { namespace, pod, container, cpu: self.nanocores, memory: self.bytes }
    }

    /// Millicores, rounded up as Kubernetes does.
    pub fn millicores(&self) -> i64 {
        self.nanocores.div_ceil(1_000_000) as i64
    }
}

// === impl Cast ===

impl DayWorkloads {
    /// In order of names, as usage is.
    pub fn new(namespace: &str) -> Self {
        let subject = |name, kind, containers, pods: u64, about| DayWorkload {
            name,
            kind,
            containers,
            has_sidecar: false,
            has_setup: false,
            policies: Vec::new(),
            pods: (0..pods).collect(),
            next: pods,
            base_usage: about,
        };
        let some = |cpu, memory| (Some(cpu), Some(memory));
        let mut subjects = vec![
            subject("cronjob", WorkloadKind::CronJob, &["main"], 1, (700, 90)),
            subject("daemonset", WorkloadKind::DaemonSet, &["agent", "main"], 2, (12, 40)),
            subject("deployment", WorkloadKind::Deployment, &["main"], 3, (250, 400)),
            subject("job", WorkloadKind::Job, &["main"], 1, (1500, 2000)),
            subject("replicaset", WorkloadKind::ReplicaSet, &["log", "main"], 2, (90, 600)),
            subject(
                "replicationcontroller",
                WorkloadKind::ReplicationController,
                &["main"],
                1,
                (5, 10),
            ),
            subject("rollout", WorkloadKind::Rollout, &["main"], 2, (333, 333)),
            subject(
                "statefulset",
                WorkloadKind::StatefulSet,
                &["log", "main", "proxy"],
                2,
                (60, 1200),
            ),
        ];
        subjects[0].policies = vec![ReferencePolicy {
            min: some(100, 300 * MEBIBYTE),
            max: some(900, 5000 * MEBIBYTE),
            ..ReferencePolicy::of("main")
        }];
        subjects[1].policies = vec![ReferencePolicy { off: true, ..ReferencePolicy::of("agent") }];
        subjects[2].has_sidecar = true;
        subjects[4].policies = vec![
            ReferencePolicy {
                controlled: (true, false),
                max: (Some(150), None),
                ..ReferencePolicy::of("log")
            },
            ReferencePolicy { controlled: (false, true), ..ReferencePolicy::of("*") },
        ];
        subjects[6].has_setup = true;
        subjects[7].policies = vec![
            ReferencePolicy {
                window: Some(4 * 3600),
                bump_tenths: Some(15),
                ..ReferencePolicy::of("log")
            },
            ReferencePolicy { min: some(70, MEBIBYTE), ..ReferencePolicy::of("*") },
        ];
        Self { namespace: namespace.to_owned(), workloads: subjects }
    }

    /// Creates all objects.
    pub async fn create(&self, client: &Client) {
        let workloads: Vec<_> =
            self.workloads.iter().map(|subject| subject.workload(&self.namespace)).collect();
        bulk_objects::send(client, workloads.iter().flat_map(Workload::owners)).await;
        bulk_objects::send(client, workloads.iter().flat_map(Workload::statuses)).await;
        for subject in &self.workloads {
            for &pod in &subject.pods {
                self.start(client, subject, pod).await;
            }
        }
        let vpas = self
            .workloads
            .iter()
            .flat_map(|subject| RECOMMENDERS.map(|side| self.vpa(subject, side)));
        bulk_objects::send(client, vpas).await;
    }

    /// Total number of pods.
    pub fn pods(&self) -> usize {
        self.workloads.iter().map(|subject| subject.pods.len()).sum()
    }

    pub fn workload_named(&self, name: &str) -> &DayWorkload {
        self.workloads.iter().find(|subject| subject.name == name).expect("workload exists")
    }

    fn workload_named_mut(&mut self, name: &str) -> &mut DayWorkload {
        self.workloads.iter_mut().find(|subject| subject.name == name).expect("workload exists")
    }

    /// Usage of all containers at a time.
    pub fn samples(&self, at: i64) -> Vec<ServedSample> {
        let mut shown = Vec::new();
        for (index, subject) in self.workloads.iter().enumerate() {
            for &pod in &subject.pods {
                let others = [(subject.has_sidecar, SIDECAR), (subject.has_setup, SETUP)];
                let others = others.into_iter().filter(|(has, _)| *has).map(|(_, name)| name);
                for (place, container) in
                    subject.containers.iter().copied().chain(others).enumerate()
                {
                    let what = [index as u64, pod, place as u64, at as u64];
                    let mut noise = Random::derive(4, &what);
                    // A daily wave with noise and an occasional peak.
                    let hour = (at / 3600 % 24 - 12).unsigned_abs();
                    let percent =
                        40 + 5 * hour + noise.below(40) + if noise.chance(4) { 150 } else { 0 };
                    let (millicores, mebibytes) = subject.base_usage;
                    shown.push(ServedSample {
                        namespace: self.namespace.clone(),
                        subject: subject.name,
                        pod: subject.pod_name(pod),
                        container,
                        nanocores: millicores as u64 * 10_000 * percent + noise.below(999_999),
                        bytes: (mebibytes * MEBIBYTE) as u64 / 100 * percent,
                    });
                }
            }
        }
        shown
    }

    /// OOM-kills a container of a workload's first pod, which restarts at once. Returns the pod's name.
    pub async fn kill(&self, client: &Client, name: &str, container: &str, at: i64) -> String {
        let subject = self.workload_named(name);
        let pod = subject.pods[0];
        let killed = json!({ "terminated": {
            "reason": "OOMKilled", "exitCode": 137, "startedAt": time_text(at - 60), "finishedAt": time_text(at),
        } });
        bulk_objects::send(client, [self.status(subject, pod, Some(&(container, killed)))]).await;
        subject.pod_name(pod)
    }

    /// Replaces a workload's first pod. Returns the name of the removed pod.
    pub async fn replace(&mut self, client: &Client, name: &str) -> String {
        let subject = self.workload_named_mut(name);
        let (old, new) = (subject.pods.remove(0), subject.next);
        subject.next += 1;
        subject.pods.push(new);
        let subject = self.workload_named(name);
        self.start(client, subject, new).await;
        bulk_objects::send(client, [self.gone(subject, old)]).await;
        subject.pod_name(old)
    }

    /// Removes all pods of a workload and returns their names.
    pub async fn remove_all(&mut self, client: &Client, name: &str) -> Vec<String> {
        let pods = std::mem::take(&mut self.workload_named_mut(name).pods);
        let subject = self.workload_named(name);
        bulk_objects::send(client, pods.iter().map(|&pod| self.gone(subject, pod))).await;
        pods.iter().map(|&pod| subject.pod_name(pod)).collect()
    }

    /// Starts two new pods of a workload.
    pub async fn start_pods(&mut self, client: &Client, name: &str) {
        let subject = self.workload_named_mut(name);
        subject.pods = vec![subject.next, subject.next + 1];
        subject.next += 2;
        let subject = self.workload_named(name);
        for &pod in &subject.pods {
            self.start(client, subject, pod).await;
        }
    }

    /// Changes the policies of a workload's VPAs. Returns their new generation.
    pub async fn change_policy(
        &mut self,
        client: &Client,
        name: &str,
        policies: Vec<ReferencePolicy>,
    ) -> i64 {
        self.workload_named_mut(name).policies = policies;
        let subject = self.workload_named(name);
        let policies: Vec<_> = subject.policies.iter().map(ReferencePolicy::json).collect();
        let change = json!({ "spec": { "resourcePolicy": { "containerPolicies": policies } } });
        let path = |side| format!("{}/{}-{side}", self.vpas(), subject.name);
        bulk_objects::send(client, RECOMMENDERS.map(|side| ApiWrite::patch(path(side), &change)))
            .await;
        2
    }

    async fn start(&self, client: &Client, subject: &DayWorkload, pod: u64) {
        bulk_objects::send(client, [self.pod(subject, pod)]).await;
        bulk_objects::send(client, [self.status(subject, pod, None)]).await;
    }

    fn pod(&self, subject: &DayWorkload, pod: u64) -> ApiWrite {
        let container = |name: &str| {
            json!({ "name": name, "image": "example/any", "resources": { "requests": {
                "cpu": "100m", "memory": REQUEST.to_string(),
            } } })
        };
        let mut inits = Vec::new();
        if subject.has_setup {
            inits.push(container(SETUP));
        }
        if subject.has_sidecar {
            let mut sidecar = container(SIDECAR);
            sidecar["restartPolicy"] = "Always".into();
            inits.push(sidecar);
        }
        let containers: Vec<_> = subject.containers.iter().map(|name| container(name)).collect();
        let labels = json!({ "app": subject.name, "pod-template-hash": "6d4b9c7f5d" });
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": subject.pod_name(pod), "namespace": self.namespace, "labels": labels },
            "spec": {
                "containers": containers, "initContainers": inits, "nodeName": "nowhere",
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            },
        });
        ApiWrite::create(collection("v1", &self.namespace, "pods"), &object)
    }

    fn status(&self, subject: &DayWorkload, pod: u64, killed: Option<&(&str, Value)>) -> ApiWrite {
        let status = |name: &str| {
            let last = killed.filter(|(container, _)| *container == name);
            json!({
                "name": name, "image": "example/any", "imageID": "example/any", "ready": true,
                "restartCount": u8::from(last.is_some()),
                "state": { "running": { "startedAt": time_text(super::MORNING) } },
                "lastState": last.map_or(json!({}), |(_, killed)| killed.clone()),
            })
        };
        let statuses: Vec<_> = subject.containers.iter().map(|name| status(name)).collect();
        let change = json!({ "status": { "phase": "Running", "containerStatuses": statuses } });
        let pods = collection("v1", &self.namespace, "pods");
        ApiWrite::patch(format!("{pods}/{}/status", subject.pod_name(pod)), &change)
    }

    fn gone(&self, subject: &DayWorkload, pod: u64) -> ApiWrite {
        let pods = collection("v1", &self.namespace, "pods");
        ApiWrite::delete(format!("{pods}/{}", subject.pod_name(pod)))
    }

    fn vpas(&self) -> String {
        collection("autoscaling.k8s.io/v1", &self.namespace, "verticalpodautoscalers")
    }

    fn vpa(&self, subject: &DayWorkload, side: &str) -> ApiWrite {
        let policies: Vec<_> = subject.policies.iter().map(ReferencePolicy::json).collect();
        let object = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": format!("{}-{side}", subject.name), "namespace": self.namespace },
            "spec": {
                "targetRef": subject.workload(&self.namespace).target_ref(),
                "recommenders": [{ "name": side }],
                "resourcePolicy": { "containerPolicies": policies },
            },
        });
        ApiWrite::create(self.vpas(), &object)
    }
}

// === impl Subject ===

impl DayWorkload {
    fn workload(&self, namespace: &str) -> Workload {
        Workload {
            namespace: namespace.to_owned(),
            name: self.name.to_owned(),
            kind: self.kind,
            containers: self.containers.iter().map(|name| (*name).to_owned()).collect(),
            has_init: self.has_setup,
            request: REQUEST as u64,
        }
    }

    fn pod_name(&self, pod: u64) -> String {
        format!("{}-{pod:02}", self.name)
    }

    /// The containers that this recommender keeps a history of.
    pub fn containers_with_history(&self, side: &str) -> Vec<&'static str> {
        let sidecar = (self.has_sidecar && side == "ours").then_some(SIDECAR);
        self.containers.iter().copied().chain(sidecar).collect()
    }
}
