//! Status fields of a WatermarkPodAutoscaler that only other controllers write. They are in the CRD so that they are not
//! pruned, and not used otherwise.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;

use crate::{api::scale_target::ScaleTarget, types::quantity::Quantity};

/// The current value of a metric of an object. Plimsoll does not write it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ObjectStatus {
    /// The object.
    target: ScaleTarget,
    /// Name of the metric.
    metric_name: String,
    /// The current value.
    current_value: Quantity,
    /// Selects the series of the metric.
    selector: Option<LabelSelector>,
    /// The current average per pod.
    average_value: Option<Quantity>,
}

/// The current value of a metric of pods. Plimsoll does not write it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub struct PodsStatus {
    /// Name of the metric.
    metric_name: String,
    /// The current average per pod.
    current_average_value: Quantity,
    /// Selects the series of the metric.
    selector: Option<LabelSelector>,
}
