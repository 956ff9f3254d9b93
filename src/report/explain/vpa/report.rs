//! The report about a VPA. `--output json` prints it, and the text output is rendered from it alone.

use std::sync::Arc;

use plimsoll_core::{
    recommender::{ResourceAmounts, ResourceExplanation, pod_cap::PodLimits},
    types::{Time, quantity::Quantity},
};
use serde::{Deserialize, Serialize};

use crate::report::explain::report_parts::{Finding, ReportHeader};

/// A VPA, and how its recommendation was computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaReport {
    /// The object of the report, of kind `explain-vpa`.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The compatibility mode: `plimsoll` or `upstream`.
    pub compat: String,
    /// The recommender that the VPA selects.
    pub recommender: String,
    pub(crate) update_mode: String,
    /// The workload.
    pub target: Target,
    /// Number of matching pods.
    pub pods: usize,
    /// The history that the numbers were computed from.
    pub history: History,
    /// The limits for all containers of a pod together, if there are any.
    pub room: PodLimits,
    /// Conditions in the status, and conditions that the recommender would set.
    pub conditions: Vec<Condition>,
    pub(crate) ignored_annotations: Vec<String>,
    /// Containers with a recommendation, sorted by name.
    pub containers: Vec<Container>,
    /// Containers without a recommendation.
    pub left_out: Vec<OmittedContainer>,
    /// Problems to check. The exit code is 1 if there are any.
    pub findings: Vec<Finding>,
    /// Additional information.
    pub notes: Vec<String>,
}

/// The workload of a VPA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub kind: String,
    pub name: String,
    /// `found`, `unsupported` or `unavailable`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// The stored history that was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The storage, or `annotation` if only the recommender's explanation on the VPA is available.
    pub storage: String,
    pub records: Vec<StoredRecord>,
    pub skipped: Vec<SkippedRecord>,
}

/// The stored history of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRecord {
    pub container: Arc<str>,
    /// `exact`, `upstream` for the form that leaves out open windows and exact weights, or `explanation`.
    pub form: RecordForm,
    /// Whether the record belongs to this VPA. Otherwise it was left by another VPA of the same workload.
    pub own: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// When a live pod last had the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_alive: Option<Time>,
    /// `used`, or `expired` if the record is too old.
    pub outcome: String,
}

/// The precision of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordForm {
    Exact,
    Upstream,
    /// No history, only the explanation that the recommender stored on the VPA when it wrote the status.
    Explanation,
}

/// A record that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRecord {
    pub what: String,
    pub why: String,
}

/// A condition, and whether the status has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `written`, `new` if the status does not have it yet, or `outdated` if only the status has it.
    pub state: String,
}

/// A container with a recommendation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: Arc<str>,
    pub pods: usize,
    /// OOM kills in the status of its pods.
    pub kills: Vec<OomKill>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Resource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Resource>,
}

/// An OOM kill in the status of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    pub pod: Arc<str>,
    pub at: Time,
    /// Whether the stored history includes it; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
}

/// One resource of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// How the status and the recomputed numbers compare.
    pub agreement: Agreement,
    /// The numbers in the status; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RecommendedNumbers>,
    pub recomputed: RecommendedNumbers,
    /// The inputs of each step. The recomputed numbers follow from these fields alone, and from the pod capacity if that
    /// caps them.
    pub chain: ResourceExplanation,
    pub requests: Requests,
}

/// How the numbers in the status compare with the recomputed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Agreement {
    /// They are equal.
    Same,
    /// They differ by no more than what samples since the last save explain, or by less than the dead band.
    Drift,
    /// They differ by more than that.
    Differs,
    /// The status has no numbers yet.
    Unwritten,
}

/// The numbers of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecommendedNumbers {
    pub target: Option<Quantity>,
    /// The lower bound: below it the request should grow.
    pub lower: Option<Quantity>,
    /// The upper bound: above it the request can shrink.
    pub upper: Option<Quantity>,
    pub uncapped: Option<Quantity>,
}

/// The storage name if only the explanation annotation of the VPA is available.
pub const ANNOTATION_STORAGE: &str = "annotation";

impl History {
    /// Whether only the explanation annotation of the VPA is available.
    pub fn is_from_annotation(&self) -> bool {
        self.storage == ANNOTATION_STORAGE
    }
}

impl RecommendedNumbers {
    pub fn from_amounts(
        estimates: [ResourceAmounts; 4],
        pick: fn(&ResourceAmounts) -> Option<Quantity>,
    ) -> Self {
        let [target, lower, upper, uncapped] = estimates.map(|amounts| pick(&amounts));
        Self { target, lower, upper, uncapped }
    }

    /// The numbers in the order of the text output.
    pub const fn to_array(self) -> [Option<Quantity>; 4] {
        [self.target, self.lower, self.upper, self.uncapped]
    }
}

/// The requests of the pods of a VPA for one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Quantity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Quantity>,
    pub without: usize,
    /// By how many percent the target is above the largest request; negative if it is below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_above_percent: Option<f64>,
}

/// A container without a recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedContainer {
    pub container: Arc<str>,
    /// `off`, `stale`, `onlyInStatus` or `unexplained`.
    pub why: String,
}
