//! How a number of replicas came about: what the status of an autoscaler tells of its last decision.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::types::quantity::Quantity;

/// The last decision, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDecision {
    /// When it was made first: that later looks came to the same, to the last digit, is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// What was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub sources: Vec<MetricDecision>,
    /// Replicas that the workload had to have.
    #[serde(default)]
    pub from: i32,
    /// Replicas that its sources ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<i32>,
    /// The same within its limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<i32>,
    /// Since when it is not known what they ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<Time>,
    /// Until when they stay as they are, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Time>,
    /// Replicas that it is to have.
    #[serde(default)]
    pub to: i32,
    /// Why it has not what its sources ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub restrictions: Vec<String>,
}

/// What came of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricDecision {
    /// Its name, with its selector.
    pub name: String,
    /// What was compared with its marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Quantity>,
    /// Below this, replicas are removed: the mark less its tolerance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Quantity>,
    /// Above this, replicas are added: the mark with its tolerance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Quantity>,
    /// Where the value lies: above, inside or below.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub position: String,
    /// Since when it lies there, or says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Replicas that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<i32>,
    /// Whether it is the one that holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// Why nothing is known of it, in one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unknown: String,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl ScaleDecision {
    /// Without what differs from look to look while nothing is decided otherwise.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.at = None;
        self.proposal = None;
        // What it would be within its limits. What it is, is `to`.
        self.limited = None;
        for source in &mut self.sources {
            source.value = None;
            source.proposal = None;
            source.message.clear();
        }
        self
    }
}
