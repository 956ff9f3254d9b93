//! A workload in a closed loop: its pods follow its scale, and their usage follows its load.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::go_duration::nanos;
use super::scenario::{ContainerMetrics, Fleet, Metadata, PodMetrics};
use super::simulated_cluster::rfc3339;

/// A running workload.
#[derive(Clone, Debug)]
pub struct SimulatedWorkload {
    /// Its parameters.
    pub settings: Fleet,
    namespace: String,
    name: String,
    born: usize,
    pods: Vec<WorkloadPod>,
}

#[derive(Clone, Debug)]
struct WorkloadPod {
    name: String,
    /// Creation time in nanoseconds since the start.
    created: i64,
}

const SECOND: i64 = 1_000_000_000;

fn whole_second(nanos: i64) -> i64 {
    nanos.div_euclid(SECOND) * SECOND
}

impl SimulatedWorkload {
    /// Creates a workload by the key of its scale.
    pub fn new(key: &str, settings: Fleet) -> Self {
        let mut parts = key.split('/').skip(1).map(str::to_owned);
        let namespace = parts.next().unwrap_or_default();
        let name = parts.next().unwrap_or_default();
        Self { settings, namespace, name, born: 0, pods: Vec::new() }
    }

    /// Scales to `wanted` pods: creates new ones now, or deletes the youngest.
    pub fn scale_to(&mut self, wanted: i32, now: i64) {
        let wanted = usize::try_from(wanted).unwrap_or(0);
        while self.pods.len() < wanted {
            self.pods.push(WorkloadPod {
                name: format!("{}-{:04}", self.name, self.born),
                created: now,
            });
            self.born += 1;
        }
        self.pods.truncate(wanted);
    }

    /// The number of pods.
    pub fn count(&self) -> usize {
        self.pods.len()
    }

    /// The pods and their samples at this time.
    pub fn observe(&self, now: i64) -> (Vec<Pod>, Vec<PodMetrics>) {
        let settings = &self.settings;
        let is_ready = |pod: &WorkloadPod| now >= pod.created + nanos(settings.ready_after);
        let ready = self.pods.iter().filter(|pod| is_ready(pod)).count().max(1) as i64;
        let limit: Option<plimsoll_core::types::Quantity> = settings.limit.parse().ok();
        let most = limit.map_or(i64::MAX, plimsoll_core::types::Quantity::milli_value);
        let sampled = whole_second(now - nanos(settings.sample_age));
        let (mut pods, mut metrics) = (Vec::new(), Vec::new());
        for (index, pod) in self.pods.iter().enumerate() {
            let runs = pod.created + nanos(settings.runs_after);
            let readies = pod.created + nanos(settings.ready_after);
            let mut status = json!({"phase": "Pending"});
            let mut usage = None;
            if now >= runs {
                let started = rfc3339(runs);
                let condition = if is_ready(pod) {
                    usage = Some(most.min(settings.load_milli / ready + index as i64 % 3));
                    json!({"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(readies)})
                } else {
                    usage = Some(settings.startup_milli);
                    json!({"type": "Ready", "status": "False", "lastTransitionTime": started})
                };
                status =
                    json!({"phase": "Running", "startTime": started, "conditions": [condition]});
            }
            let object = json!({
                "metadata": {"name": pod.name, "namespace": self.namespace, "labels": settings.labels},
                "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": settings.request}}}]},
                "status": status,
            });
            pods.extend(serde_json::from_value::<Pod>(object));
            if let Some(milli) = usage.filter(|milli| *milli >= 0 && sampled >= runs) {
                metrics.push(PodMetrics {
                    metadata: Metadata {
                        name: pod.name.clone(),
                        namespace: self.namespace.clone(),
                        labels: settings.labels.clone(),
                    },
                    timestamp: rfc3339(sampled),
                    window: format!("{}s", settings.sample_window),
                    containers: vec![ContainerMetrics {
                        name: "app".to_owned(),
                        usage: [("cpu".to_owned(), format!("{milli}m"))].into(),
                    }],
                });
            }
        }
        (pods, metrics)
    }
}
