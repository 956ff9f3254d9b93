//! The last scale decision of an autoscaler, as its status shows it.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::types::{self, quantity::Quantity};

/// The last scale decision, with its intermediate results.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDecisionStatus {
    /// When the decision was first made. Not updated by equal later decisions.
    pub at: Option<Time>,
    /// The metrics that were evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub sources: Vec<MetricDecisionStatus>,
    /// Replicas of the workload before the decision.
    #[serde(default)]
    pub from: i32,
    /// Replicas proposed by the metrics.
    pub proposal: Option<i32>,
    /// Proposed replicas after limits were applied.
    pub limited: Option<i32>,
    /// Since when metrics are not available.
    pub unknown_since: Option<Time>,
    /// Until when replicas are not changed, if known.
    pub held_until: Option<Time>,
    /// Desired replicas of the workload.
    #[serde(default)]
    pub to: i32,
    /// Why the replicas differ from what the metrics ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub restrictions: Vec<String>,
}

/// The evaluation of one metric.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricDecisionStatus {
    /// The metric name with its selector.
    pub name: String,
    /// The value that was compared with the watermarks.
    pub value: Option<Quantity>,
    /// Replicas are removed below this value, the low watermark minus its tolerance.
    pub low: Option<Quantity>,
    /// Replicas are added above this value, the high watermark plus its tolerance.
    pub high: Option<Quantity>,
    /// Position of the value, one of above, inside or below.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub position: String,
    /// Since when the value is at this position, or not available.
    pub since: Option<Time>,
    /// Replicas proposed by this metric.
    pub proposal: Option<i32>,
    /// Whether the proposal of this metric won.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// Why the metric is not available, in one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unknown: String,
    /// Why the metric is not available, as a message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl ScaleDecisionStatus {
    /// Removes what changes between reconciles without a change of the decision.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.at = None;
        self.proposal = None;
        // An intermediate result: the desired replicas are `to`.
        self.limited = None;
        for source in &mut self.sources {
            source.value = None;
            source.proposal = None;
            source.message.clear();
        }
        self
    }
}

/// Converts to a Kubernetes timestamp, which has whole seconds.
pub fn to_timestamp(at: types::Time) -> Time {
    Time(jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default())
}

/// Converts from a Kubernetes timestamp.
pub fn from_timestamp(stamp: &Time) -> types::Time {
    types::Time::from_secs(stamp.0.as_second())
}
