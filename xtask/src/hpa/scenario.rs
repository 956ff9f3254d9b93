//! A scenario, in the format of tests/cluster/hpa-oracle/scenario.go.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::{v1::Scale, v2::HorizontalPodAutoscaler};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// One controller from its start. Its clock starts at 2000-01-01T00:00:00Z.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Id of the scenario.
    pub id: String,
    /// Flags and feature gates.
    #[serde(default)]
    pub config: Config,
    /// Duration in virtual seconds.
    pub seconds: f64,
    /// Changes, in order.
    pub steps: Vec<Step>,
    /// Whether passes print what they read. Ours never do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inputs: bool,
}

/// Flags and feature gates; absent ones have kube-controller-manager's defaults.
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
    /// Whether objects lack the API server's defaults.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_defaults: bool,
}

/// A change of the cluster at a time. Absent fields do not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// When, in seconds.
    pub at: f64,
    /// Objects that are created or updated; a status is only used on creation.
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
    /// All responses of metrics.k8s.io from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_metrics: Option<Vec<PodMetrics>>,
    /// All values of custom.metrics.k8s.io from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Vec<CustomValue>>,
    /// All values of external.metrics.k8s.io from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<Vec<ExternalValue>>,
    /// Calls that fail from now on, by name of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<BTreeMap<String, Fault>>,
    /// Workloads whose pods and usage follow their replicas, by the key of their scale.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fleets: BTreeMap<String, Fleet>,
    /// State to restore into the controller, by namespace/name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remember: BTreeMap<String, Remembered>,
}

/// An item of metrics.k8s.io.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodMetrics {
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// Time of the sample, RFC 3339.
    pub timestamp: String,
    /// A duration such as `30s`.
    pub window: String,
    /// Usage by container.
    pub containers: Vec<ContainerMetrics>,
}

/// The fields of an object's metadata that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// Labels of the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Usage of a container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerMetrics {
    /// Name of the container.
    pub name: String,
    /// Quantities by resource.
    #[serde(default)]
    pub usage: BTreeMap<String, String>,
}

/// The error of a failing call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// Its message.
    pub message: String,
    /// Whether it is a conflict.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// How many calls fail; 0 for all of them.
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
    /// The value, a quantity.
    pub value: String,
    /// Time of the sample, RFC 3339; now if absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timestamp: String,
    /// Window of the measurement.
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
    /// Namespace of the series.
    pub namespace: String,
    /// Labels of the series.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The value, a quantity.
    pub value: String,
    /// Time of the sample, RFC 3339; now if absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timestamp: String,
}

/// State of one object; absent fields do not change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Remembered {
    /// Past recommendations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<Vec<Aged>>,
    /// Past scale-ups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_events: Option<Vec<Aged>>,
    /// Past scale-downs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_events: Option<Vec<Aged>>,
}

/// A number of replicas and its age.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// The number of replicas.
    pub replicas: i32,
    /// Age in seconds.
    pub age: f64,
    /// Whether the entry is outdated and may be replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
}

/// A workload that has as many pods as its scale specifies; they share a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Fleet {
    /// Labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// CPU request of a pod.
    pub request: String,
    /// Maximum CPU usage of a pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limit: String,
    /// Seconds from creation until a pod runs.
    pub runs_after: f64,
    /// Seconds from creation until a pod is ready.
    pub ready_after: f64,
    /// CPU usage of a pod until it is ready.
    pub startup_milli: i64,
    /// CPU usage of all ready pods together.
    pub load_milli: i64,
    /// Age of samples, in seconds.
    pub sample_age: f64,
    /// Window of samples, in seconds.
    pub sample_window: f64,
}
