//! VerticalPodAutoscalerCheckpoint, `autoscaling.k8s.io/v1`: the history format that upstream's recommender can read too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The container that a checkpoint belongs to.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "autoscaling.k8s.io",
    version = "v1",
    kind = "VerticalPodAutoscalerCheckpoint",
    shortname = "vpacheckpoint",
    namespaced,
    status = "VerticalPodAutoscalerCheckpointStatus",
    derive = "PartialEq",
    schema = "disabled", // made together with the other definitions, in the root crate
    annotation("api-approved.kubernetes.io", "https://github.com/kubernetes/kubernetes/pull/63797")
)]
#[serde(rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerCheckpointSpec {
    /// Name of the VerticalPodAutoscaler, in the namespace of this object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vpa_object_name: String,
    /// Name of the container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
}

/// The usage history of the container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerticalPodAutoscalerCheckpointStatus {
    /// When this status was written.
    #[schemars(schema_with = "time_or_null")]
    pub last_update_time: Option<MetaTime>,
    /// Version of the format.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// CPU usage, in cores.
    pub cpu_histogram: HistogramCheckpoint,
    /// Memory peaks, in bytes.
    pub memory_histogram: HistogramCheckpoint,
    /// Time of the earliest CPU sample.
    #[schemars(schema_with = "time_or_null")]
    pub first_sample_start: Option<MetaTime>,
    /// Time of the latest CPU sample.
    #[schemars(schema_with = "time_or_null")]
    pub last_sample_start: Option<MetaTime>,
    /// Number of CPU samples.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "whole_number")]
    pub total_samples_count: i64,
}

/// A histogram with rounded weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HistogramCheckpoint {
    /// The time at which a sample has weight 1.
    #[schemars(schema_with = "time_or_null")]
    pub reference_timestamp: Option<MetaTime>,
    /// Weights by bucket index, scaled so that the largest is 10000.
    // Free-form in the schema, so the values may be anything. `decode` parses them: an error affects one object only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "anything_by_name")]
    pub bucket_weights: BTreeMap<String, Value>,
    /// Sum of all weights, not scaled.
    #[serde(skip_serializing_if = "is_nothing")]
    #[schemars(schema_with = "number")]
    pub total_weight: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_nothing(weight: &f64) -> bool {
    *weight == 0.0
}

fn time_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

fn whole_number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

fn number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "number" })
}

fn anything_by_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
