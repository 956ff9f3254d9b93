//! The churn: creates and deletes VPAs, pods and namespaces.

use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::support::bulk_objects::{self, ApiWrite, collection};
use super::support::metrics_server::{UsageCurve, UsageValue};
use super::support::random::Random;
use super::support::{MetricsServer, Testbed};

const NAMESPACES: usize = 15;
const WORKLOADS: u64 = 8;
const GROUP: &str = "autoscaling.k8s.io/v1";
/// Pause between two changes.
const PAUSE: Duration = Duration::from_millis(250);

/// The cluster under churn.
#[derive(Debug)]
pub struct Churn {
    noise: Random,
    namespaces: Vec<String>,
    counts: [u64; 4],
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vpas, rollouts, scales, namespaces] = self.counts;
        write!(
            f,
            "so far {vpas} VPAs recreated, {rollouts} rollouts, {scales} changes of scale, {namespaces} namespaces replaced"
        )
    }
}

// === impl Churn ===

impl Churn {
    /// Creates the first namespaces.
    pub async fn begin(bed: &Testbed, usage: &MetricsServer, seed: u64) -> Self {
        let mut churn = Self { noise: Random::new(seed), namespaces: Vec::new(), counts: [0; 4] };
        for _ in 0..NAMESPACES {
            churn.add_namespace(bed, usage).await;
        }
        churn
    }

    /// Makes one change.
    pub async fn step(&mut self, bed: &Testbed, usage: &MetricsServer) {
        let client = bed.client();
        let namespace = self.noise.pick(&self.namespaces).clone();
        let name = format!("web-{}", self.noise.below(WORKLOADS));
        let deployment = format!("{}/{name}", collection("apps/v1", &namespace, "deployments"));
        let vpas = collection(GROUP, &namespace, "verticalpodautoscalers");
        match self.noise.below(40) {
            0 => {
                self.counts[3] += 1;
                self.namespaces.retain(|other| *other != namespace);
                let gone = ApiWrite::delete(format!("/api/v1/namespaces/{namespace}"));
                bulk_objects::send(&client, [gone]).await;
                self.add_namespace(bed, usage).await;
            }
            1..14 => {
                self.counts[0] += 1;
                bulk_objects::send(&client, [ApiWrite::delete(format!("{vpas}/{name}"))]).await;
                bulk_objects::send(&client, [vpa(&namespace, &name)]).await;
            }
            14..27 => {
                self.counts[1] += 1;
                let label = format!("v{}", self.counts[1]);
                let template = json!({ "metadata": { "labels": { "version": label } } });
                let change = json!({ "spec": { "template": template } });
                bulk_objects::send(&client, [ApiWrite::patch(deployment, &change)]).await;
            }
            _ => {
                self.counts[2] += 1;
                let change = json!({ "spec": { "replicas": self.noise.below(4) } });
                bulk_objects::send(&client, [ApiWrite::patch(deployment, &change)]).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }

    async fn add_namespace(&mut self, bed: &Testbed, usage: &MetricsServer) {
        let namespace = bed.namespace("churn").await;
        let writes = (0..WORKLOADS).flat_map(|number| {
            let name = format!("web-{number}");
            [deployment(&namespace, &name), vpa(&namespace, &name)]
        });
        bulk_objects::send(&bed.client(), writes).await;
        for container in ["main", "proxy"] {
            let scale = self.noise.between(1, 20) as f64;
            let curve = UsageCurve::new(move |now| {
                let wave = (now.as_second() as f64 / 60.0).sin() + 2.0;
                UsageValue { cpu: scale * wave / 100.0, memory: (scale * wave * 1e7) as u64 }
            });
            usage.set_all(&namespace, "web-", container, curve);
        }
        self.namespaces.push(namespace);
    }
}

fn vpa(namespace: &str, name: &str) -> ApiWrite {
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
    let object = json!({
        "apiVersion": GROUP, "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "targetRef": target, "updatePolicy": { "updateMode": "Off" } },
    });
    ApiWrite::create(collection(GROUP, namespace, "verticalpodautoscalers"), &object)
}

fn deployment(namespace: &str, name: &str) -> ApiWrite {
    let container = |name: &str| json!({ "name": name, "image": "example/any" });
    let labels = json!({ "app": name });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [container("main"), container("proxy")],
                    "terminationGracePeriodSeconds": 0,
                },
            },
        },
    });
    ApiWrite::create(collection("apps/v1", namespace, "deployments"), &object)
}
