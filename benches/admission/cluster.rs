//! The cluster for benchmarks of the webhook and the updater: Deployments with a ReplicaSet, and VPAs whose targets
//! differ from the requests.

use futures::future::join_all;
use serde_json::{Value, json};

use super::support::{
    Testbed,
    bulk_objects::{self, ApiWrite, Workload, WorkloadKind, collection},
    random::Random,
};

const GROUP: &str = "autoscaling.k8s.io/v1";
const VPAS: &str = "verticalpodautoscalers";
const MEBIBYTE: u64 = 1 << 20;

/// The size of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of workloads, each with a VPA.
    pub workloads: usize,
    /// Number of namespaces.
    pub namespaces: usize,
    /// Containers per pod.
    pub containers: usize,
    /// Running pods per workload.
    pub pods: u64,
    /// Whether requests are within the recommended bounds, so that the updater skips young pods.
    pub is_calm: bool,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Each workload has a VPA with the same name.
    pub workloads: Vec<Workload>,
    namespaces: Vec<String>,
    pods: u64,
}

// === impl Cluster ===

impl Cluster {
    /// Creates all objects on a testbed that has the CRDs.
    pub async fn create(bed: &Testbed, layout: &Layout) -> Self {
        let namespaces = join_all((0..layout.namespaces).map(|_| bed.namespace("team"))).await;
        bulk_objects::stop_controllers(bed).await;
        let workload = |index: usize| Workload {
            namespace: namespaces[index % namespaces.len()].clone(),
            name: format!("workload-{index}"),
            kind: WorkloadKind::Deployment,
            containers: (0..layout.containers)
                .map(|number| format!("container-{number}"))
                .collect(),
            has_init: false,
            request: 256 * MEBIBYTE,
        };
        let workloads: Vec<_> = (0..layout.workloads).map(workload).collect();
        let client = bed.client();
        bulk_objects::send(&client, namespaces.iter().map(|namespace| limit_range(namespace)))
            .await;
        bulk_objects::send(&client, workloads.iter().flat_map(Workload::owners)).await;
        bulk_objects::send(&client, workloads.iter().map(vpa)).await;
        let cluster = Self { workloads, namespaces, pods: layout.pods };
        cluster.recommend(bed, layout.is_calm).await;
        cluster.fill(bed).await;
        cluster
    }

    /// Writes recommendations that differ from the requests, with the requests within the bounds or outside of them.
    pub async fn recommend(&self, bed: &Testbed, is_calm: bool) {
        let all = self.workloads.iter().enumerate();
        bulk_objects::send(&bed.client(), all.map(|one| recommendation(one, is_calm))).await;
    }

    /// Recreates all pods as their controllers created them, including evicted and resized ones.
    pub async fn fill(&self, bed: &Testbed) {
        if self.pods == 0 {
            return;
        }
        let client = bed.client();
        let gone = self.namespaces.iter().map(|it| ApiWrite::delete(collection("v1", it, "pods")));
        bulk_objects::send(&client, gone).await;
        let each = |of: fn(&Workload, u64) -> ApiWrite| {
            let numbers = 0..self.pods;
            self.workloads.iter().flat_map(move |it| numbers.clone().map(move |at| of(it, at)))
        };
        bulk_objects::send(&client, each(Workload::create_pod)).await;
        bulk_objects::send(
            &client,
            each(|workload, number| workload.report_pod_running(number, &[])),
        )
        .await;
    }

    /// The recommended CPU of a workload's first container.
    pub fn cpu(index: usize) -> String {
        format!("{}m", 150 + Random::derive(1, &[index as u64, 0]).below(700))
    }
}

/// A LimitRange that all pods satisfy.
fn limit_range(namespace: &str) -> ApiWrite {
    let object = json!({
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": { "name": "usual", "namespace": namespace },
        "spec": { "limits": [
            { "type": "Container", "min": { "cpu": "1m", "memory": "4Mi" } },
            { "type": "Pod", "min": { "cpu": "1m", "memory": "4Mi" } },
        ] },
    });
    ApiWrite::create(collection("v1", namespace, "limitranges"), &object)
}

fn vpa(workload: &Workload) -> ApiWrite {
    let policy = json!({
        "containerName": "*",
        "minAllowed": { "cpu": "10m", "memory": "16Mi" },
        "maxAllowed": { "cpu": "8", "memory": "16Gi" },
    });
    let object = json!({
        "apiVersion": GROUP, "kind": "VerticalPodAutoscaler",
        "metadata": { "name": workload.name, "namespace": workload.namespace },
        "spec": {
            "targetRef": workload.target_ref(), "updatePolicy": { "updateMode": "Recreate" },
            "resourcePolicy": { "containerPolicies": [policy] },
        },
    });
    ApiWrite::create(collection(GROUP, &workload.namespace, VPAS), &object)
}

/// More CPU and less memory than the pods request, with maximum confidence.
fn recommendation((index, workload): (usize, &Workload), is_calm: bool) -> ApiWrite {
    let lower = if is_calm { "1m" } else { "120m" };
    let upper = if is_calm { 1024 } else { 220 };
    let of = |(number, name): (usize, &String)| {
        let cpu = match number {
            0 => Cluster::cpu(index),
            _ => format!("{}m", 150 + Random::derive(1, &[index as u64, number as u64]).below(700)),
        };
        let memory =
            (100 + Random::derive(2, &[index as u64, number as u64]).below(100)) * MEBIBYTE;
        let target = json!({ "cpu": cpu, "memory": memory.to_string() });
        json!({
            "containerName": name, "target": target, "uncappedTarget": target,
            "lowerBound": { "cpu": lower, "memory": (90 * MEBIBYTE).to_string() },
            "upperBound": { "cpu": "2", "memory": (upper * MEBIBYTE).to_string() },
        })
    };
    let containers: Vec<Value> = workload.containers.iter().enumerate().map(of).collect();
    let provided = json!({
        "type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({ "status": {
        "conditions": [provided], "recommendation": { "containerRecommendations": containers },
    } });
    let vpas = collection(GROUP, &workload.namespace, VPAS);
    ApiWrite::patch(format!("{vpas}/{}/status", workload.name), &status)
}
