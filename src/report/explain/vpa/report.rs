//! The report about a VPA. `--output json` prints it, and the text output is rendered from it alone.

use std::sync::Arc;

use plimsoll_core::{
    history::SkippedRecord,
    recommender::{ResourceAmounts, ResourceExplanation, pod_cap::PodLimits},
    types::{Time, quantity::Quantity},
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

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
    pub recommender: String,
    pub(crate) update_mode: String,
    pub target: Target,
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
    pub notes: Vec<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub kind: String,
    pub name: String,
    /// `found`, `unsupported` or `unavailable`.
    pub state: String,
    pub message: Option<String>,
    pub selector: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The storage, or `annotation` if only the recommender's explanation on the VPA is available.
    pub storage: String,
    pub records: Vec<StoredRecord>,
    pub skipped: Vec<SkippedRecord>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRecord {
    pub container: Arc<str>,
    /// `exact`, `upstream` for the form that leaves out open windows and exact weights, or `explanation`.
    pub form: RecordForm,
    /// Whether the record belongs to this VPA. Otherwise it was left by another VPA of the same workload.
    pub own: bool,
    pub written: Option<Time>,
    pub created: Option<Time>,
    /// When a live pod last had the container.
    pub last_alive: Option<Time>,
    /// `used`, or `expired` if the record is too old.
    pub outcome: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordForm {
    Exact,
    Upstream,
    /// No history, only the explanation that the recommender stored on the VPA when it wrote the status.
    Explanation,
}

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

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: Arc<str>,
    pub pods: usize,
    pub kills: Vec<OomKill>,
    pub cpu: Option<Resource>,
    pub memory: Option<Resource>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    pub pod: Arc<str>,
    pub at: Time,
    /// Whether the stored history includes it; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
}

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
    Same,
    /// They differ by no more than what samples since the last save explain, or by less than the dead band.
    Drift,
    /// They differ by more than that.
    Differs,
    /// The status has no numbers yet.
    Unwritten,
}

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
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    pub least: Option<Quantity>,
    pub most: Option<Quantity>,
    pub without: usize,
    /// By how many percent the target is above the largest request; negative if it is below.
    pub target_above_percent: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedContainer {
    pub container: Arc<str>,
    /// `off`, `stale`, `onlyInStatus` or `unexplained`.
    pub why: String,
}
