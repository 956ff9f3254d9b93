//! WatermarkPodAutoscaler, `datadoghq.com/v1alpha1`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    scale_decision::ScaleDecisionStatus,
    scale_target::{ScaleTarget, TlsConfig},
};
use crate::types::quantity::Quantity;

/// The desired behavior of a WatermarkPodAutoscaler.
#[expect(clippy::duplicated_attributes, reason = "columns of one type repeat its name")]
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "datadoghq.com",
    version = "v1alpha1",
    kind = "WatermarkPodAutoscaler",
    shortname = "wpa",
    namespaced,
    status = "WatermarkPodAutoscalerStatus",
    derive = "PartialEq",
    schema = "disabled", // core/src/api/crdgen.rs makes it
    printcolumn(
        name = "scaling active",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"ScalingActive\")].status"
    ),
    printcolumn(name = "condition", type_ = "string", json_path = ".status.lastConditionType"),
    printcolumn(
        name = "condition state",
        type_ = "string",
        json_path = ".status.lastConditionState"
    ),
    printcolumn(
        name = "value",
        type_ = "string",
        json_path = ".status.currentMetrics[*].external.currentValue.."
    ),
    printcolumn(name = "high watermark", type_ = "string", json_path = ".spec..highWatermark"),
    printcolumn(name = "low watermark", type_ = "string", json_path = ".spec..lowWatermark"),
    printcolumn(name = "age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "min replicas", type_ = "integer", json_path = ".spec.minReplicas"),
    printcolumn(name = "max replicas", type_ = "integer", json_path = ".spec.maxReplicas"),
    printcolumn(
        name = "dry-run",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"DryRun\")].status"
    ),
    printcolumn(name = "last scale", type_ = "date", json_path = ".status.lastScaleTime"),
    printcolumn(
        name = "scale count",
        type_ = "integer",
        json_path = ".status.scalingEventsCount",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WatermarkPodAutoscalerSpec {
    /// The workload whose replicas are set: anything with a scale subresource, in the namespace of this object.
    pub scale_target_ref: ScaleTarget,
    /// The minimum replicas. Defaults to 1.
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,
    /// The maximum replicas. Required.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// `absolute` compares the metric with its watermarks, `average` its average per ready pod. Defaults to absolute.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// How far beyond a watermark a metric may be before it counts, as a share of the watermark. Default: 0.1.
    pub tolerance: Option<Quantity>,
    /// Percentage of replicas that may be added at once, 0 for none. Defaults to 50.
    pub scale_up_limit_factor: Option<Quantity>,
    /// Percentage of replicas that may be removed at once, below 100, 0 for none. Defaults to 20.
    pub scale_down_limit_factor: Option<Quantity>,
    /// How long after any change no replicas are added. Defaults to 60.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub upscale_forbidden_window_seconds: i32,
    /// How long after any change no replicas are removed. Defaults to 300.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub downscale_forbidden_window_seconds: i32,
    /// How long a metric has to be above its high watermark before adding replicas.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub upscale_delay_above_watermark_seconds: i32,
    /// How long metrics have to be below low watermarks before removing replicas.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub downscale_delay_below_watermark_seconds: i32,
    /// Proposals are rounded up to a multiple of this. Defaults to 1.
    #[schemars(range(min = 1))]
    pub replica_scaling_absolute_modulo: Option<i32>,
    /// Between the watermarks, step towards `highwatermark` or `lowwatermark`. If unset, towards neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub converge_towards_watermark: String,
    /// Compute and report everything, but do not change the workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether a metric value of zero counts. By default it is ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tolerate_zero: bool,
    /// The metrics to evaluate. The largest proposal wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub metrics: Vec<MetricSpec>,
    /// An external service that recommends replicas, instead of metrics.
    pub recommender: Option<RecommenderSpec>,
    /// Do not scale while less than this percentage of the pods is ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 100))]
    pub min_available_replica_percentage: i32,
    /// How long new pods may take to become ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub readiness_delay_seconds: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// One metric and its watermarks. Only the block of its type is read.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricSpec {
    /// External, Resource or ContainerResource.
    #[serde(rename = "type")]
    pub kind: String,
    /// A metric of the external metrics API, or a Prometheus query in an annotation.
    pub external: Option<ExternalMetric>,
    /// The usage of a resource by pods.
    pub resource: Option<ResourceMetric>,
    /// The usage of a resource by one container of each pod.
    pub container_resource: Option<ContainerResourceMetric>,
}

/// A metric that belongs to no object in the cluster.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetric {
    /// The metric name.
    pub metric_name: String,
    /// Selects the series to sum. Required, but may be empty.
    pub metric_selector: Option<LabelSelector>,
    /// Replicas are added above this value. Defaults to the low watermark.
    pub high_watermark: Option<Quantity>,
    /// Replicas are removed below this value. Defaults to the high watermark.
    pub low_watermark: Option<Quantity>,
}

/// The usage of a resource by pods.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMetric {
    /// Name of the resource, such as cpu.
    pub name: String,
    /// Selects the pods whose usage is summed. Required.
    pub metric_selector: Option<LabelSelector>,
    /// Replicas are added above this value, in cores or bytes. Defaults to the low watermark.
    pub high_watermark: Option<Quantity>,
    /// Replicas are removed below this value. Defaults to the high watermark.
    pub low_watermark: Option<Quantity>,
}

/// The usage of a resource by one container of each pod.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourceMetric {
    /// Name of the resource, such as cpu.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// Selects the pods whose usage is summed. Required.
    pub metric_selector: Option<LabelSelector>,
    /// Replicas are added above this value, in cores or bytes. Defaults to the low watermark.
    pub high_watermark: Option<Quantity>,
    /// Replicas are removed below this value. Defaults to the high watermark.
    pub low_watermark: Option<Quantity>,
}

/// An external service that recommends replicas.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommenderSpec {
    /// The http or https URL of the service.
    pub url: String,
    /// Type of the target in requests, such as cpu.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_type: String,
    /// High watermark in requests.
    pub high_watermark: Option<Quantity>,
    /// Low watermark in requests.
    pub low_watermark: Option<Quantity>,
    /// Additional settings in requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// TLS settings of the connection.
    pub tls_config: Option<TlsConfig>,
}

/// The observed state.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatermarkPodAutoscalerStatus {
    /// Current pods of the workload.
    #[serde(default)]
    pub current_replicas: i32,
    /// Desired replicas of the workload.
    #[serde(default)]
    pub desired_replicas: i32,
    /// When the replicas were last changed.
    pub last_scale_time: Option<Time>,
    /// How often the replicas were changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scaling_events_count: i32,
    /// The current metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub current_metrics: Vec<MetricStatus>,
    /// The conditions of the object, the latest change first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// Type of the condition that was set last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_condition_type: String,
    /// Status of the condition that was set last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_condition_state: String,
    /// The generation of the object that the status is based on.
    pub observed_generation: Option<i64>,
    /// The last scale decision, with its intermediate results.
    pub decision: Option<ScaleDecisionStatus>,
}

/// The current value of one metric. The blocks object and pods are only kept if other controllers wrote them.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricStatus {
    /// Metric type, as in the spec.
    #[serde(rename = "type")]
    pub kind: String,
    /// Current value of an external metric, or as observed by a recommender.
    pub external: Option<ExternalStatus>,
    /// Current usage of a resource by pods.
    pub resource: Option<ResourceStatus>,
    /// Current usage of a resource by one container of each pod.
    pub container_resource: Option<ContainerResourceStatus>,
}

/// The current value of an external metric.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalStatus {
    /// The metric name.
    pub metric_name: String,
    /// Selects the series that were summed.
    pub metric_selector: Option<LabelSelector>,
    /// The value that was compared with the watermarks.
    pub current_value: Quantity,
    /// The current average per pod.
    pub current_average_value: Option<Quantity>,
}

/// The current usage of a resource by pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Name of the resource.
    pub name: String,
    /// Utilization in percent of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_average_utilization: Option<i32>,
    /// The value that was compared with the watermarks.
    pub current_average_value: Quantity,
}

/// The current usage of a resource by one container of each pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourceStatus {
    /// Name of the resource.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// Utilization in percent of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_average_utilization: Option<i32>,
    /// The value that was compared with the watermarks.
    pub current_average_value: Quantity,
}

/// A condition of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, such as AbleToScale.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition, one of True, False or Unknown.
    pub status: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason for the status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message with details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
