//! Label values of upstream's metrics for a pass and for the evaluation of a metric.

use serde::Serialize;
use strum::IntoStaticStr;

/// The action of a pass, or of the proposal of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// Add replicas.
    ScaleUp,
    /// Remove replicas.
    ScaleDown,
    /// No change.
    #[default]
    None,
}

impl Action {
    /// The action that changes `from` to `to`.
    pub fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::ScaleUp,
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::None,
        }
    }
}

/// The class of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Failure {
    /// The spec of the object is invalid.
    Spec,
    /// Any other error.
    Internal,
    /// No error.
    #[default]
    None,
}

/// The labels of one series of `metric_computation_total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Computed {
    /// `metric_type`: the type of the source, as in the spec.
    #[serde(rename = "type")]
    pub metric_type: String,
    /// The action of the proposal, relative to the replicas of the previous pass.
    pub action: Action,
    /// The class of the error, if there is no proposal.
    pub error: Failure,
}
