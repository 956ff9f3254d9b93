//! What there is to say about a pod, as data: `--output json` prints it, and the text is made from nothing else.

use std::sync::Arc;

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use crate::report::explain::report::Finding;
use plimsoll_core::types::quantity::Quantity;

/// Raised whenever a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// A pod, and what the updater would do about it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `explain-pod`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// When it was decided.
    pub at: Time,
    /// Whose decision: `plimsoll` or `upstream`.
    pub compat: String,
    /// Its direct controller, if it has one: pods of one controller are one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ObjectName>,
    /// The topmost of its controllers, by which its VPA is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<ObjectName>,
    /// Its VPA, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpa: Option<VpaSummary>,
    /// What becomes of it.
    pub verdict: PodVerdict,
    /// How far it is from what is recommended for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub need: Option<Need>,
    /// What its containers request and what is recommended for them.
    pub containers: Vec<Container>,
    /// When its turn comes among the pods of its VPA that are worth a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The pods of its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// How what keeps surprises away stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<Guards>,
    /// What is held back, or wrong; the exit code is 1 when there is any.
    pub findings: Vec<Finding>,
    /// What is good to know.
    pub notes: Vec<String>,
}

/// An object of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectName {
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// The VPA of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaSummary {
    /// Its name.
    pub name: String,
    /// When pods get what is recommended.
    pub update_mode: String,
    /// The recommender that it asks for.
    pub recommender: String,
    /// What the updater said last of what it holds back, in the condition of the VPA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<PausedUpdates>,
}

/// The condition `UpdatesHeldBack`, while it is True.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedUpdates {
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `evict`, `resize`, `unboost`, or `none`.
    pub action: String,
    /// Why it is left as it is: a word of `plimsoll_updater_skipped_pods`, or of what keeps an updater from looking at
    /// it at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    pub message: String,
    /// Whether a change is wanted and held back.
    pub held_back: bool,
    /// Whether a resize restarts a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<bool>,
}

/// How far a pod is from what is recommended for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Why it is worth a change: `quick_oom`, `outside_range` or `drift`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// Why it is worth none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// How far the sums of all requests are from those of all targets: shares, added up over the resources.
    pub difference: f64,
    /// Whether some request is out of its bounds, or not there.
    pub outside_range: bool,
    /// Whether some request is to grow.
    pub grows: bool,
}

/// One container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// CPU, where it is requested or recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<ContainerAmounts>,
    /// Memory, where it is requested or recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ContainerAmounts>,
}

/// What a container has of a resource, and what it should have after all rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerAmounts {
    /// What it requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Quantity>,
    /// What it should request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Quantity>,
    /// Below this it is to be given more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<Quantity>,
    /// Above this it is to be given less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<Quantity>,
    /// How its request stands to the bounds.
    pub standing: RequestPosition,
}

/// How a request stands to its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestPosition {
    /// Nothing is recommended.
    #[default]
    Unasked,
    /// Nothing is requested.
    Missing,
    /// It is below the lower one.
    Below,
    /// It is between them.
    Within,
    /// It is above the upper one.
    Above,
}

impl ContainerAmounts {
    /// With how the request stands to the bounds.
    #[must_use]
    pub fn with_position(mut self) -> Self {
        let beyond = |is: fn(&Quantity, &Quantity) -> bool, bound: Option<Quantity>| {
            self.request.zip(bound).is_some_and(|(request, bound)| is(&request, &bound))
        };
        self.standing = match (self.target, self.request) {
            (None, _) => RequestPosition::Unasked,
            (Some(_), None) => RequestPosition::Missing,
            _ if beyond(PartialOrd::lt, self.lower) => RequestPosition::Below,
            _ if beyond(PartialOrd::gt, self.upper) => RequestPosition::Above,
            _ => RequestPosition::Within,
        };
        self
    }
}

/// When the turn of a pod comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its place among them, from 1; none when it is not worth a change, or may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// How many pods of the VPA are worth a change and might have it.
    pub candidates: usize,
    /// What is done to other pods of the VPA before its turn comes, as if all of it went well.
    pub before: Vec<EarlierAction>,
}

/// What is done to another pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierAction {
    /// The pod.
    pub pod: String,
    /// `evict`, `resize` or `surge`.
    pub action: String,
}

/// The pods of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Live pods.
    pub live: u32,
    /// Pods that the controller wants.
    pub wanted: u32,
    /// Pods that count as up.
    pub up: u32,
    /// Pods of these that may be down at once.
    pub may_be_down: u32,
    /// Whether one more may go down.
    pub allows_one_more: bool,
    /// Whether there are fewer than the least that there must be.
    pub below_minimum: bool,
}

/// How the guards stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guards {
    /// The recommender: `fresh`, `loading`, `stale`, `absent`, `unknown`, `notAsked` or `unreadable`.
    pub recommender: LeaseState,
    /// The admission controller: `ready`, `stale`, `unknown`, `notAsked` or `unreadable`.
    pub admission_controller: LeaseState,
    /// When it may be changed.
    pub windows: Windows,
    /// The change of its workload that is being made, or was made last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What was done to this pod last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<PodChange>,
    /// Whether changes made pods of the workload worse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Since when somebody else is known to write other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewritten_since: Option<Time>,
    /// Changes within the last hour.
    pub changes: Vec<ChangesMade>,
    /// Until when nothing is changed in the cluster, because several workloads got worse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_stopped_until: Option<Time>,
    /// Evictions since one was last seen to have its effect.
    pub unproven: u32,
    /// So many of them may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven_allowed: Option<u32>,
}

/// What was seen of somebody who tells by a Lease that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// In one word.
    pub state: String,
    /// When the Lease was renewed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Time>,
}

/// When a workload may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Windows {
    /// Whether there are any.
    pub limited: bool,
    /// Whether it may be changed now.
    pub open: bool,
    /// When the next one opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
}

/// A change of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// When it began.
    pub began: Time,
    /// When the last pod was changed.
    pub last: Time,
    /// Pods that were changed since one went first.
    pub touched: u32,
    /// Those of them that were evicted.
    pub evicted: u32,
    /// How many such changes there were one soon after the other.
    pub streak: u32,
}

/// What was done to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodChange {
    /// `evicted` or `resized`.
    pub what: String,
    /// When.
    pub at: Time,
}

/// Nothing is changed, because pods got worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// What got worse, in one word.
    pub harm: String,
    /// The same in a sentence.
    pub message: String,
    /// Since when.
    pub since: Time,
    /// Until when.
    pub until: Time,
    /// Whether that is still to come.
    pub open: bool,
}

/// Changes within the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesMade {
    /// `namespace` or `cluster`.
    pub within: String,
    /// `disruption` or `resize`.
    pub charge: String,
    /// So many were made.
    pub made: u32,
    /// So many may be; none for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u32>,
}
