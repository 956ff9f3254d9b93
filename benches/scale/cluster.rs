//! The cluster for the recommender: Deployments with a ReplicaSet and a pod, VPAs, and usage that grows.

use futures::future::join_all;
use serde_json::json;

use super::bulk_objects;
use super::support::Testbed;
use super::support::bulk_objects::{ApiWrite, ContainerRun, Workload, WorkloadKind, collection};
use super::support::clock::wall_now;
use super::support::metrics_server::Sample;
use super::support::random::Random;

/// Containers of a pod.
pub const CONTAINERS: usize = 5;
const IN_A_NAMESPACE: usize = 100;
const GROUP: &str = "autoscaling.k8s.io/v1";
const MEBIBYTE: u64 = 1 << 20;

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    workloads: Vec<Workload>,
    pods: Vec<String>,
    namespaces: Vec<String>,
}

/// VPAs and checkpoints of the killed containers, by namespace and name.
#[derive(Debug, Default)]
pub struct OomKilled {
    pub vpas: Vec<String>,
    pub checkpoints: Vec<String>,
}

// === impl Cluster ===

impl Cluster {
    /// Creates everything except the VPAs.
    pub async fn create(bed: &Testbed, count: usize) -> Self {
        Self::create_with(bed, count, CONTAINERS).await
    }

    /// The same with as many containers in each pod.
    pub async fn create_with(bed: &Testbed, count: usize, containers: usize) -> Self {
        let wanted = count.div_ceil(IN_A_NAMESPACE);
        let namespaces = join_all((0..wanted).map(|_| bed.namespace("team"))).await;
        bulk_objects::stop_controllers(bed).await;
        let workload = |index: usize| Workload {
            namespace: namespaces[index / IN_A_NAMESPACE].clone(),
            name: format!("workload-{index}"),
            kind: WorkloadKind::Deployment,
            containers: (0..containers).map(|number| format!("container-{number}")).collect(),
            has_init: false,
            request: 256 * MEBIBYTE,
        };
        let workloads: Vec<_> = (0..count).map(workload).collect();
        let owners = workloads.iter().flat_map(|workload| {
            let mut writes = workload.owners();
            writes.push(workload.create_pod(0));
            writes
        });
        bulk_objects::send(&bed.client(), owners).await;
        let running = workloads.iter().map(|workload| workload.report_pod_running(0, &[]));
        bulk_objects::send(&bed.client(), running).await;
        let pods = workloads.iter().map(|workload| workload.pod_name(0)).collect();
        Self { workloads, pods, namespaces }
    }

    /// Creates the VPAs, without status.
    pub async fn create_vpas(&self, bed: &Testbed) {
        let writes = self.workloads.iter().map(|workload| {
            let object = json!({
                "apiVersion": GROUP, "kind": "VerticalPodAutoscaler",
                "metadata": { "name": workload.name, "namespace": workload.namespace },
                "spec": { "targetRef": workload.target_ref(), "updatePolicy": { "updateMode": "Off" } },
            });
            let path = collection(GROUP, &workload.namespace, "verticalpodautoscalers");
            ApiWrite::create(path, &object)
        });
        bulk_objects::send(&bed.client(), writes).await;
    }

    /// Deletes the VPAs and their checkpoints.
    pub async fn remove_vpas(&self, bed: &Testbed) {
        let writes = self.namespaces.iter().flat_map(|namespace| {
            ["verticalpodautoscalers", "verticalpodautoscalercheckpoints"]
                .map(|plural| ApiWrite::delete(collection(GROUP, namespace, plural)))
        });
        bulk_objects::send(&bed.client(), writes).await;
    }

    /// The VPAs, by namespace and name.
    pub fn vpas(&self) -> impl Iterator<Item = String> {
        self.workloads.iter().map(|workload| format!("{}/{}", workload.namespace, workload.name))
    }

    /// The workloads, each with one pod, whose number is 0.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Their checkpoints, by namespace and name.
    pub fn checkpoints(&self) -> impl Iterator<Item = String> {
        self.workloads.iter().flat_map(|workload| {
            let name = |container| format!("{}/{}-{container}", workload.namespace, workload.name);
            workload.containers.iter().map(name)
        })
    }

    /// The usage of all containers: more each time, so that every percentile changes.
    pub fn samples(&self, tick: u64) -> impl Iterator<Item = Sample<'_>> {
        self.workloads.iter().zip(&self.pods).enumerate().flat_map(
            move |(index, (workload, pod))| {
                workload.containers.iter().enumerate().map(move |(number, container)| {
                    let mut noise = Random::new((index * CONTAINERS + number) as u64);
                    let (cpu, memory) = (noise.between(5, 200), noise.between(50, 400));
                    let more = 100 + tick * 7;
                    Sample {
                        namespace: &workload.namespace,
                        pod,
                        container,
                        cpu: cpu * 10_000 * more + noise.below(1000),
                        memory: memory * MEBIBYTE / 100 * more,
                    }
                })
            },
        )
    }

    /// OOM-kills the first container of `count` pods, spread over the cluster.
    pub async fn kill(&self, bed: &Testbed, count: usize) -> OomKilled {
        let mut killed = OomKilled::default();
        let mut writes = Vec::new();
        for workload in self.workloads.iter().step_by((self.workloads.len() / count).max(1)) {
            let run = ContainerRun { restarts: 0, killed: Some(wall_now()), is_down: true };
            writes.push(workload.report_pod_running(0, &[run]));
            killed.vpas.push(format!("{}/{}", workload.namespace, workload.name));
            let container = &workload.containers[0];
            killed
                .checkpoints
                .push(format!("{}/{}-{container}", workload.namespace, workload.name));
        }
        bulk_objects::send(&bed.client(), writes).await;
        killed
    }
}
