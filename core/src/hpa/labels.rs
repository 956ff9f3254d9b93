//! The words that upstream's metrics use for a pass and for the evaluation of a metric.

use serde::Serialize;

/// What a pass did, or what a metric asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// More replicas.
    ScaleUp,
    /// Fewer replicas.
    ScaleDown,
    /// No change.
    #[default]
    None,
}

impl Action {
    /// From one count to another.
    pub fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::ScaleUp,
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::None,
        }
    }
}

/// Who is to blame for a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The object itself.
    Spec,
    /// Anything else.
    Internal,
    /// Nothing failed.
    #[default]
    None,
}

/// One series of `metric_computation_total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Computed {
    /// `metric_type`: the type of the source, as the object names it.
    #[serde(rename = "type")]
    pub metric_type: String,
    /// What it asks for, relative to the replicas of the pass before.
    pub action: Action,
    /// Why there is no proposal.
    pub error: Failure,
}
