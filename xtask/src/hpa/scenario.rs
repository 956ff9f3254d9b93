//! A scenario, in the words of tests/cluster/hpa-oracle/scenario.go.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::{v1::Scale, v2::HorizontalPodAutoscaler};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// One controller from its start on. Its clock begins at 2000-01-01T00:00:00Z.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub id: String,
    /// Flags and feature gates.
    #[serde(default)]
    pub config: Config,
    /// How long it runs.
    pub seconds: f64,
    /// What changes, in order.
    pub steps: Vec<Step>,
    /// Whether passes print what was read in them. Ours never do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inputs: bool,
}

/// Flags and feature gates; what is left out is kube-controller-manager's default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Config {
    /// `--horizontal-pod-autoscaler-sync-period`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_period_seconds: Option<f64>,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downscale_stabilization_seconds: Option<f64>,
    /// `--horizontal-pod-autoscaler-tolerance`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_initialization_seconds: Option<f64>,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_readiness_seconds: Option<f64>,
    /// Feature gates by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether objects are taken without the defaults of the API server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_defaults: bool,
}

/// A change of the world at a moment. What it does not name stays as it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// When.
    pub at: f64,
    /// Objects that are created or changed; a status counts only at creation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apply: Vec<HorizontalPodAutoscaler>,
    /// Objects that are deleted, by namespace/name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// Scales by "resource.group/namespace/name".
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scales: BTreeMap<String, Scale>,
    /// All pods from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<Pod>>,
    /// All that metrics.k8s.io answers from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_metrics: Option<Vec<PodMetrics>>,
    /// All that custom.metrics.k8s.io knows from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Vec<CustomValue>>,
    /// All that external.metrics.k8s.io knows from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<Vec<ExternalValue>>,
    /// What fails from now on, by the name of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<BTreeMap<String, Fault>>,
    /// Workloads whose pods and usage follow their replicas, by the key of their scale.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fleets: BTreeMap<String, Fleet>,
    /// What the controller is made to remember, by namespace/name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remember: BTreeMap<String, Remembered>,
}

/// An item of metrics.k8s.io.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodMetrics {
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// RFC 3339.
    pub timestamp: String,
    /// A duration such as `30s`.
    pub window: String,
    /// Usage by container.
    pub containers: Vec<ContainerMetrics>,
}

/// What is read of an object's metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Usage of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerMetrics {
    /// Its name.
    pub name: String,
    /// Quantities by resource.
    #[serde(default)]
    pub usage: BTreeMap<String, String>,
}

/// An error that a call answers with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// Its text.
    pub message: String,
    /// A conflict.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// So many calls fail; 0: all of them.
    pub times: i32,
}

/// A value of custom.metrics.k8s.io.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct CustomValue {
    /// Name of the metric.
    pub metric: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// A quantity.
    pub value: String,
    /// RFC 3339, or now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timestamp: String,
    /// For how long it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i64>,
    /// Labels of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Labels of the series.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metric_labels: BTreeMap<String, String>,
}

/// A series of external.metrics.k8s.io.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExternalValue {
    /// Name of the metric.
    pub metric: String,
    /// Its namespace.
    pub namespace: String,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A quantity.
    pub value: String,
    /// RFC 3339, or now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timestamp: String,
}

/// What is remembered of an object; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Remembered {
    /// Recommendations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<Vec<Aged>>,
    /// Changes to more replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_events: Option<Vec<Aged>>,
    /// Changes to fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_events: Option<Vec<Aged>>,
}

/// A number of replicas, so many seconds ago.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// How many.
    pub replicas: i32,
    /// How long ago.
    pub age: f64,
    /// Whether its place may be taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
}

/// A workload that has as many pods as its scale asks for, which share a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Fleet {
    /// Labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// CPU that a pod requests.
    pub request: String,
    /// CPU that a pod uses at most.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limit: String,
    /// From creation until a pod runs.
    pub runs_after: f64,
    /// From creation until it is ready.
    pub ready_after: f64,
    /// CPU that a pod uses until it is ready.
    pub startup_milli: i64,
    /// CPU that all ready pods use together.
    pub load_milli: i64,
    /// How old samples are.
    pub sample_age: f64,
    /// For how long they were measured.
    pub sample_window: f64,
}
