//! What other controllers may have written into the status of a WatermarkPodAutoscaler: in the definition, so that it is
//! not lost, and otherwise nobody's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;

use crate::{api::scale_target::ScaleTarget, types::quantity::Quantity};

/// What a metric of one object was. Nothing here writes it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ObjectStatus {
    /// The object.
    target: ScaleTarget,
    /// Name of the metric.
    metric_name: String,
    /// What it was.
    current_value: Quantity,
    /// Which of its series were looked at.
    selector: Option<LabelSelector>,
    /// The same for each pod.
    average_value: Option<Quantity>,
}

/// What a metric of each pod was. Nothing here writes it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub struct PodsStatus {
    /// Name of the metric.
    metric_name: String,
    /// What it was for each pod.
    current_average_value: Quantity,
    /// Which of its series were looked at.
    selector: Option<LabelSelector>,
}
