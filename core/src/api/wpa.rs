//! WatermarkPodAutoscaler, `datadoghq.com/v1alpha1`: what users ask for and what they are told.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    scale_decision::ScaleDecision,
    scale_target::{ScaleTarget, TlsConfig},
};
use crate::types::quantity::Quantity;

/// How a workload follows metrics that are to stay between two marks.
#[expect(clippy::duplicated_attributes, reason = "columns of one type repeat its name")]
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
    /// The fewest replicas. Left out, 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,
    /// The most replicas. It has to be set.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// `absolute` compares a metric as it is with its marks, `average` its share of each ready pod. Left out, absolute.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// How far beyond a mark a metric may be before it counts, as a share of the mark: 0.1 is a tenth, and the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Quantity>,
    /// Percentage of the replicas that may be added at once; 0 adds none. Left out, 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_limit_factor: Option<Quantity>,
    /// Percentage of the replicas that may be removed at once, below 100; 0 removes none. Left out, 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_limit_factor: Option<Quantity>,
    /// After any change, no replicas are added for so long. Left out, 60.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub upscale_forbidden_window_seconds: i32,
    /// After any change, no replicas are removed for so long. Left out, 300.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub downscale_forbidden_window_seconds: i32,
    /// A metric has to be above its high mark for so long before replicas are added.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub upscale_delay_above_watermark_seconds: i32,
    /// Metrics have to be below their low marks for so long before replicas are removed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub downscale_delay_below_watermark_seconds: i32,
    /// Proposals are rounded up to a multiple of this. Left out, 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replica_scaling_absolute_modulo: Option<i32>,
    /// Between the marks, go step by step towards `highwatermark` or `lowwatermark`. Left out, towards neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub converge_towards_watermark: String,
    /// Everything is computed and shown, and the workload is left as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// A metric of zero counts. Left out, it is taken for one that says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tolerate_zero: bool,
    /// What is looked at; the largest proposal holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub metrics: Vec<MetricSpec>,
    /// A service that is asked how many replicas there should be, in the place of metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommender: Option<RecommenderSpec>,
    /// Nothing is computed while less than this percentage of the pods is ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 100))]
    pub min_available_replica_percentage: i32,
    /// How long new pods get to be ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1))]
    pub readiness_delay_seconds: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// One metric and its marks. Only what belongs to its type is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricSpec {
    /// External, Resource or ContainerResource.
    #[serde(rename = "type")]
    pub kind: String,
    /// A metric of the external metrics API, or of a Prometheus that is asked by the query in an annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalMetric>,
    /// What the pods use of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceMetric>,
    /// What one container of each pod uses of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_resource: Option<ContainerResourceMetric>,
}

/// A metric that belongs to no object of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetric {
    /// Its name.
    pub metric_name: String,
    /// Which of its series are added up. It has to be there, and may be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_selector: Option<LabelSelector>,
    /// Above this, replicas are added. Left out, the low mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<Quantity>,
    /// Below this, replicas are removed. Left out, the high mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_watermark: Option<Quantity>,
}

/// What pods use of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMetric {
    /// Name of the resource, such as cpu.
    pub name: String,
    /// The pods whose usage is added up. It has to be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_selector: Option<LabelSelector>,
    /// Above this, replicas are added: cores or bytes, never a share of requests. Left out, the low mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<Quantity>,
    /// Below this, replicas are removed. Left out, the high mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_watermark: Option<Quantity>,
}

/// What one container of each pod uses of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourceMetric {
    /// Name of the resource, such as cpu.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// The pods whose usage is added up. It has to be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_selector: Option<LabelSelector>,
    /// Above this, replicas are added: cores or bytes, never a share of requests. Left out, the low mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<Quantity>,
    /// Below this, replicas are removed. Left out, the high mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_watermark: Option<Quantity>,
}

/// A service that is asked how many replicas there should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommenderSpec {
    /// Where it is: http or https.
    pub url: String,
    /// What kind of target it is asked for, such as cpu.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_type: String,
    /// Upper end of the band that it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<Quantity>,
    /// Lower end of the band that it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_watermark: Option<Quantity>,
    /// What else it is told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// How it is reached over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<TlsConfig>,
}

/// What users are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatermarkPodAutoscalerStatus {
    /// Pods that the workload has.
    #[serde(default)]
    pub current_replicas: i32,
    /// Replicas that it is to have.
    #[serde(default)]
    pub desired_replicas: i32,
    /// When replicas were last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// How often they were changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scaling_events_count: i32,
    /// What the metrics were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub current_metrics: Vec<MetricStatus>,
    /// What holds of this object, the latest change first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// The condition that was said last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_condition_type: String,
    /// What it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_condition_state: String,
    /// The generation of this object that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How the last decision came about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<ScaleDecision>,
}

/// What one metric was. More kinds are in the definition for what others wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricStatus {
    /// As in the spec.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of a metric that belongs to no object, and of what a recommender observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStatus>,
    /// Of what pods use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceStatus>,
    /// Of what one container of each pod uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_resource: Option<ContainerResourceStatus>,
}

/// What an external metric was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalStatus {
    /// Its name.
    pub metric_name: String,
    /// Which of its series were added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_selector: Option<LabelSelector>,
    /// What was compared with the marks.
    pub current_value: Quantity,
    /// The same for each pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_average_value: Option<Quantity>,
}

/// What pods used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Name of the resource.
    pub name: String,
    /// As a percentage of what they request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_average_utilization: Option<i32>,
    /// What was compared with the marks.
    pub current_average_value: Quantity,
}

/// What one container of each pod used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResourceStatus {
    /// Name of the resource.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// As a percentage of what it requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_average_utilization: Option<i32>,
    /// What was compared with the marks.
    pub current_average_value: Quantity,
}

/// One fact about the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which fact, such as AbleToScale.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds: True, False or Unknown.
    pub status: String,
    /// When that last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
