//! The load of the scripted hour, and the metrics APIs that serve it: what the pods of a workload share, so that more of
//! them have less each.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::support::{
    clock::wall_now,
    hollow_nodes::NodeView,
    metrics_server::{ApiRead, ApiResponse, MetricsServer},
};

/// The number of passes for which the load of a workload stays the same.
pub const PHASE: u64 = 150;
/// The load in each phase, relative to the targets of two pods.
const LEVELS: [f64; 5] = [0.95, 1.9, 1.0, 3.1, 0.45];
/// The metric of pods, objects and external systems.
const METRIC: &str = "load";
const MEBIBYTE: f64 = 1_048_576.0;

/// The source of a workload's metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Resource,
    ContainerResource,
    Pods,
    Object,
    External,
}

impl Source {
    pub const ALL: [Self; 5] =
        [Self::Resource, Self::ContainerResource, Self::Pods, Self::Object, Self::External];

    /// The metric in the spec. Its target is 100 for each pod.
    pub fn spec(self, name: &str) -> Value {
        let metric = json!({"name": METRIC});
        let average = json!({"type": "AverageValue", "averageValue": "100"});
        match self {
            // 100 of 128 MiB.
            Self::Resource => json!({"type": "Resource", "resource": {"name": "memory",
                "target": {"type": "Utilization", "averageUtilization": 78}}}),
            Self::ContainerResource => json!({"type": "ContainerResource", "containerResource": {
                "name": "memory", "container": "main",
                "target": {"type": "AverageValue", "averageValue": "100Mi"}}}),
            Self::Pods => json!({"type": "Pods", "pods": {"metric": metric, "target": average}}),
            Self::Object => {
                json!({"type": "Object", "object": {"metric": metric, "target": average,
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": name}}})
            }
            Self::External => json!({"type": "External", "external": {"target": average,
                "metric": {"name": METRIC, "selector": {"matchLabels": {"app": name}}}}}),
        }
    }
}

/// A workload and its object, which have the same name.
#[derive(Clone, Debug)]
pub struct Workload {
    pub namespace: String,
    pub name: String,
    pub source: Source,
    index: usize,
}

impl Workload {
    pub fn new(namespace: &str, index: usize) -> Self {
        Self {
            namespace: namespace.to_owned(),
            // No name begins with another one.
            name: format!("app{index:03}"),
            source: Source::ALL[index % Source::ALL.len()],
            index,
        }
    }

    /// The load of all pods in a pass. Workloads change one after the other, not all at once.
    fn load(&self, pass: u64) -> f64 {
        let offset = self.index as u64 * 37 % PHASE;
        let phase = ((pass + offset) / PHASE) as usize;
        200.0 * LEVELS[phase % LEVELS.len()]
    }
}

/// Serves the load of these workloads in the pass of this number.
pub fn serve(
    server: &MetricsServer,
    nodes: NodeView,
    workloads: &[Workload],
    pass: Arc<AtomicU64>,
) {
    let by_name: HashMap<_, _> = workloads.iter().map(|it| (it.name.clone(), it.clone())).collect();
    server.respond_with(move |read| {
        let words: Vec<&str> = read.path.trim_matches('/').split('/').collect();
        let ["apis", group, version, "namespaces", namespace, rest @ ..] = words.as_slice() else {
            return None;
        };
        let pass = pass.load(Ordering::Relaxed);
        let item = |pod: &Pod, value: &dyn Fn(&str, f64) -> Value| {
            let (pod, workload) = (pod.name_any(), by_name.get(pod.labels().get("app")?)?);
            let running = running(&nodes, namespace, &workload.name).len();
            Some(value(&pod, workload.load(pass) / running as f64))
        };
        let prefix = object_name(read).unwrap_or_default();
        let pods = || running(&nodes, namespace, prefix).into_iter();
        let (kind, items): (_, Vec<Value>) = match (*group, rest) {
            ("metrics.k8s.io", ["pods"]) => {
                let usage = |pod: &str, load: f64| {
                    json!({"metadata": {"name": pod, "namespace": namespace}, "timestamp": now(),
                        "window": "15s", "containers": [{"name": "main", "usage": {"cpu": "1m",
                            "memory": ((load * MEBIBYTE) as u64).to_string()}}]})
                };
                ("PodMetricsList", pods().filter_map(|pod| item(&pod, &usage)).collect())
            }
            ("custom.metrics.k8s.io", ["pods", ..]) => {
                let custom = |pod: &str, load: f64| custom(version, "Pod", namespace, pod, load);
                ("MetricValueList", pods().filter_map(|pod| item(&pod, &custom)).collect())
            }
            ("custom.metrics.k8s.io", [_, name, _]) => {
                let load = by_name.get(*name)?.load(pass);
                ("MetricValueList", vec![custom(version, "Service", namespace, name, load)])
            }
            ("external.metrics.k8s.io", [_]) => {
                let workload = by_name.get(prefix)?;
                let item = json!({"metricName": METRIC, "metricLabels": {"app": prefix},
                    "timestamp": now(), "value": milli(workload.load(pass))});
                ("ExternalMetricValueList", vec![item])
            }
            _ => return None,
        };
        let list = json!({"kind": kind, "apiVersion": format!("{group}/{version}"), "metadata": {},
            "items": items});
        Some(ApiResponse::Json(Bytes::from(list.to_string())))
    });
}

/// The running pods of a workload, or of a namespace if its name is empty.
fn running(nodes: &NodeView, namespace: &str, name: &str) -> Vec<Pod> {
    let mut pods = nodes.pods_with_prefix(namespace, name);
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    pods
}

/// The name of the workload that the label selector of a read selects.
fn object_name(read: ApiRead<'_>) -> Option<&str> {
    let (_, name) = read.query.split_once("app%3D").or_else(|| read.query.split_once("app="))?;
    name.split(['&', '%', ',']).next()
}

/// An item of `custom.metrics.k8s.io`.
fn custom(version: &str, kind: &str, namespace: &str, name: &str, load: f64) -> Value {
    let described = json!({"kind": kind, "namespace": namespace, "name": name});
    let mut item = json!({"describedObject": described, "timestamp": now(), "value": milli(load)});
    if version == "v1beta1" {
        item["metricName"] = METRIC.into();
    } else {
        item["metric"] = json!({"name": METRIC, "selector": null});
    }
    item
}

fn milli(value: f64) -> String {
    format!("{}m", (value * 1e3) as u64)
}

fn now() -> String {
    wall_now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
