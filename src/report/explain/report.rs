//! What there is to say about a VPA, as data: `--output json` prints it, and the text is made from nothing else.

use std::sync::Arc;

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use plimsoll_core::{
    recommender::{RecommendationReason, ResourceAmounts, ResourceExplanation},
    types::quantity::Quantity,
};

/// Raised whenever a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// A VPA, and why its numbers are what they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `explain-vpa`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Namespace of the VPA.
    pub namespace: String,
    /// Name of the VPA.
    pub name: String,
    /// When the numbers were worked out anew.
    pub at: Time,
    /// Whose numbers: `plimsoll` or `upstream`.
    pub compat: String,
    /// The recommender that the VPA asks for.
    pub recommender: String,
    /// When pods get what is recommended.
    pub update_mode: String,
    /// The workload.
    pub target: Target,
    /// Number of pods that match.
    pub pods: usize,
    /// What the numbers were worked out from.
    pub history: History,
    /// What all containers of a pod may have together, where that is limited.
    pub room: PodCapacity,
    /// The conditions: those that are written, and those that would be.
    pub conditions: Vec<Condition>,
    /// Annotations that make no sense and are ignored.
    pub ignored_annotations: Vec<String>,
    /// Containers with a recommendation, by name.
    pub containers: Vec<Container>,
    /// Containers without one.
    pub left_out: Vec<OmittedContainer>,
    /// What should be looked at; the exit code is 1 when there is any.
    pub findings: Vec<Finding>,
    /// What is good to know.
    pub notes: Vec<String>,
}

/// The workload of a VPA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `found`, `unsupported` or `unavailable`.
    pub state: String,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The labels of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// Where the stored history comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The storage, or `annotation` where all there is to go by is what the recommender said on the VPA.
    pub storage: String,
    /// What it has of each container.
    pub records: Vec<StoredRecord>,
    /// What could not be used.
    pub skipped: Vec<SkippedRecord>,
}

/// What is stored of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRecord {
    /// The container.
    pub container: Arc<str>,
    /// `exact`, `upstream` for the form that leaves out open windows and exact weights, or `explanation`.
    pub form: RecordForm,
    /// Whether it is the VPA's own; otherwise it was left by another VPA of the same workload.
    pub own: bool,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Time>,
    /// When the history began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// When a live pod last had the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_alive: Option<Time>,
    /// What became of it: `used`, or `expired` when it lies too far back.
    pub outcome: String,
}

/// How much a stored record can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordForm {
    /// Everything.
    Exact,
    /// What upstream's checkpoints can say.
    Upstream,
    /// No history, but what the recommender said of it on the VPA when it wrote the status.
    Explanation,
}

/// A record that was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRecord {
    /// Which one.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What all containers of a pod may have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodCapacity {
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CapacityLimit>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<CapacityLimit>,
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityLimit {
    /// No more than this.
    pub amount: Quantity,
    /// Who says so.
    pub by: RecommendationReason,
}

/// A condition, and whether it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// In one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `written`, `new` when the status does not have it yet, `outdated` when only the status has it.
    pub state: String,
}

/// A container with a recommendation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// Number of pods that have it.
    pub pods: usize,
    /// Kills for memory that its pods show.
    pub kills: Vec<OomKill>,
    /// CPU, where it is recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Resource>,
    /// Memory, where it is recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Resource>,
}

/// A kill for memory that a pod shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    /// The pod.
    pub pod: Arc<str>,
    /// When.
    pub at: Time,
    /// Whether the stored history knows of it; absent where that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
}

/// One resource of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// How the two rows of numbers stand to each other.
    pub agreement: Agreement,
    /// What the status says; absent when it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RecommendedNumbers>,
    /// What was worked out anew.
    pub recomputed: RecommendedNumbers,
    /// Why: the recomputed numbers follow from these fields alone, and from the pod's room where that decides.
    pub chain: ResourceExplanation,
    /// What the pods request.
    pub requests: Requests,
}

/// How written numbers stand to those that were worked out anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Agreement {
    /// They are equal.
    Same,
    /// They differ by no more than samples since the last save explain, or than what is not worth a write.
    Drift,
    /// They differ by more.
    Differs,
    /// The status has none.
    Unwritten,
}

/// The numbers of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecommendedNumbers {
    /// What to request.
    pub target: Option<Quantity>,
    /// Below this the pod should be given more.
    pub lower: Option<Quantity>,
    /// Above this the pod could do with less.
    pub upper: Option<Quantity>,
    /// The target before limits.
    pub uncapped: Option<Quantity>,
}

/// The name in place of a storage's where the VPA's own annotation is all there is to go by.
pub const ANNOTATION_STORAGE: &str = "annotation";

impl History {
    /// Whether all there is to go by is what the recommender said on the VPA.
    pub fn is_from_annotation(&self) -> bool {
        self.storage == ANNOTATION_STORAGE
    }
}

impl RecommendedNumbers {
    /// Those of one resource.
    pub fn from_amounts(
        all: [ResourceAmounts; 4],
        pick: fn(&ResourceAmounts) -> Option<Quantity>,
    ) -> Self {
        let [target, lower, upper, uncapped] = all.map(|amounts| pick(&amounts));
        Self { target, lower, upper, uncapped }
    }
}

/// What the pods of a VPA request for one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    /// The least of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Quantity>,
    /// The most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Quantity>,
    /// Number of pods that request none.
    pub without: usize,
    /// By how many percent the target is above the most that is requested; negative when it is below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_above_percent: Option<f64>,
}

/// A container without a recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedContainer {
    /// Its name.
    pub container: Arc<str>,
    /// `off`, `stale`, `onlyInStatus` or `unexplained`.
    pub why: String,
}

/// Something that should be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stays the same whatever the words.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    /// A finding.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}
