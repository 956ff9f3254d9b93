//! The record of one reconcile, in the format of tests/cluster/hpa-oracle/scenario.go.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use plimsoll_core::hpa::labels::{Action, Computed, Failure};
use serde::{Serialize, Serializer};

use super::scenario::{Aged, Remembered};

/// One line of the output.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// Id of the scenario.
    pub id: String,
    /// The object, as namespace/name.
    pub hpa: String,
    /// Time since the start, in seconds.
    #[serde(serialize_with = "as_go")]
    pub at: f64,
    /// Value of the label `action` of `reconciliations_total`.
    pub action: Action,
    /// Value of the label `error` of `reconciliations_total`.
    pub error: Failure,
    /// Labels of `metric_computation_total`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub computed: Vec<Computed>,
    /// API calls, in order.
    pub calls: Vec<String>,
    /// Replicas that were written to the scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<i32>,
    /// Value of the metric `desired_replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Events, before any aggregation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PassEvent>,
    /// The status after the pass.
    pub status: HorizontalPodAutoscalerStatus,
    /// Whether the status was written.
    pub status_written: bool,
    /// The controller's state after the pass.
    pub memory: PassMemory,
}

/// An event.
#[derive(Clone, Debug, Serialize)]
pub struct PassEvent {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// The controller's state, with ages as Go prints them.
#[derive(Clone, Debug, Default)]
pub struct PassMemory(pub Remembered);

impl Serialize for PassMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct One {
            replicas: i32,
            #[serde(serialize_with = "as_go")]
            age: f64,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            outdated: bool,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct All {
            #[serde(skip_serializing_if = "Option::is_none")]
            recommendations: Option<Vec<One>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            scale_up_events: Option<Vec<One>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            scale_down_events: Option<Vec<One>>,
        }
        let list = |all: &Option<Vec<Aged>>| {
            let one =
                |one: &Aged| One { replicas: one.replicas, age: one.age, outdated: one.outdated };
            all.as_ref().map(|all| all.iter().map(one).collect())
        };
        All {
            recommendations: list(&self.0.recommendations),
            scale_up_events: list(&self.0.scale_up_events),
            scale_down_events: list(&self.0.scale_down_events),
        }
        .serialize(serializer)
    }
}

/// Serializes whole numbers without a fraction.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn as_go<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}
