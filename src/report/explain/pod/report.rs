//! The report about a pod. `--output json` prints it, and the text output is rendered from it alone.

use std::sync::Arc;

use plimsoll_core::types::{Time, quantity::Quantity};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::report::explain::report_parts::{Finding, ReportHeader};

/// A pod, and what the updater would do with it now.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// The object of the report, of kind `explain-pod`.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The compatibility mode: `plimsoll` or `upstream`.
    pub compat: String,
    /// Its direct controller, if it has one. Pods of one controller form a replica group.
    pub controller: Option<ObjectName>,
    /// Its topmost controller, by which its VPA is found.
    pub workload: Option<ObjectName>,
    pub vpa: Option<VpaSummary>,
    pub verdict: PodVerdict,
    /// How far its requests are from the recommendation.
    pub need: Option<Need>,
    pub containers: Vec<Container>,
    /// Its place in the order of pods to update.
    pub order: Option<Order>,
    pub group: Option<Group>,
    /// The state of the disruption guards.
    pub guards: Option<Guards>,
    /// Blocked updates and problems. The exit code is 1 if there are any.
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectName {
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpaSummary {
    pub name: String,
    pub update_mode: String,
    pub recommender: String,
    /// Why the updater paused updates, from the condition of the VPA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<PausedUpdates>,
}

/// The condition `UpdatesHeldBack`, while it is True.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedUpdates {
    pub reason: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The updater's decision about a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `evict`, `resize`, `unboost`, or `none`.
    pub action: String,
    /// Why the pod is skipped: a label value of `plimsoll_updater_skipped_pods`, or why the updater does not consider the
    /// pod at all.
    pub reason: Option<String>,
    pub message: String,
    pub held_back: bool,
    pub restarts: Option<bool>,
}

/// How far the requests of a pod are from the recommendation.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Need {
    /// Why the pod should be updated: `quick_oom`, `outside_range` or `drift`.
    pub word: Option<String>,
    pub why_not: Option<String>,
    /// The relative difference between the sums of requests and targets, added up over the resources.
    pub difference: f64,
    /// Whether a request is missing or outside its bounds.
    pub outside_range: bool,
    pub grows: bool,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Container {
    pub name: Arc<str>,
    pub cpu: Option<ContainerAmounts>,
    pub memory: Option<ContainerAmounts>,
}

/// The request of a container for one resource, and the recommendation after all rules.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerAmounts {
    pub request: Option<Quantity>,
    pub target: Option<Quantity>,
    pub lower: Option<Quantity>,
    pub upper: Option<Quantity>,
    pub standing: RequestPosition,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestPosition {
    #[default]
    Unasked,
    Missing,
    Below,
    Within,
    Above,
}

impl ContainerAmounts {
    /// Sets the position of the request relative to the bounds.
    #[must_use]
    pub fn with_position(mut self) -> Self {
        let exceeds = |compare: fn(&Quantity, &Quantity) -> bool, bound: Option<Quantity>| {
            self.request.zip(bound).is_some_and(|(request, bound)| compare(&request, &bound))
        };
        self.standing = match (self.target, self.request) {
            (None, _) => RequestPosition::Unasked,
            (Some(_), None) => RequestPosition::Missing,
            _ if exceeds(PartialOrd::lt, self.lower) => RequestPosition::Below,
            _ if exceeds(PartialOrd::gt, self.upper) => RequestPosition::Above,
            _ => RequestPosition::Within,
        };
        self
    }
}

/// The place of a pod in the order of updates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its place, starting at 1; `None` if it needs no update or may not be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// Number of pods of the VPA that need an update and may be updated.
    pub candidates: usize,
    /// Actions on other pods of the VPA before this one, assuming that all of them succeed.
    pub before: Vec<EarlierAction>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierAction {
    pub pod: String,
    /// `evict`, `resize` or `surge`.
    pub action: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub live: u32,
    pub wanted: u32,
    /// Number of pods that count as available.
    pub up: u32,
    /// Number of pods that may be unavailable at once.
    pub may_be_down: u32,
    pub allows_one_more: bool,
    /// Whether there are fewer live pods than `minReplicas`.
    pub below_minimum: bool,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guards {
    /// The recommender: `fresh`, `loading`, `stale`, `absent`, `unknown`, `notAsked` or `unreadable`.
    pub recommender: LeaseState,
    /// The admission controller: `ready`, `stale`, `unknown`, `notAsked` or `unreadable`.
    pub admission_controller: LeaseState,
    pub windows: Windows,
    /// The current or last rollout of its workload.
    pub rollout: Option<Rollout>,
    pub last_change: Option<PodChange>,
    pub breaker: Option<Breaker>,
    /// Since when another writer is known to overwrite the recommended values.
    pub rewritten_since: Option<Time>,
    pub changes: Vec<ChangesMade>,
    /// Until when the cluster-wide circuit breaker blocks all changes.
    pub cluster_stopped_until: Option<Time>,
    /// Evictions since the last one that was observed to take effect.
    pub unproven: u32,
    pub unproven_allowed: Option<u32>,
}

/// The state of a component that reports its health in a Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Windows {
    pub limited: bool,
    pub open: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub began: Time,
    pub last: Time,
    /// Number of pods changed since the last canary pod.
    pub touched: u32,
    /// Number of pods evicted since the last canary pod.
    pub evicted: u32,
    pub streak: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodChange {
    /// `evicted` or `resized`.
    pub what: String,
    pub at: Time,
}

/// The circuit breaker of a workload, which blocks changes after pods got worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub harm: String,
    pub message: String,
    pub since: Time,
    pub until: Time,
    pub open: bool,
}

/// Changes within the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesMade {
    /// `namespace` or `cluster`.
    pub within: String,
    /// `disruption` or `resize`.
    pub charge: String,
    pub made: u32,
    /// Maximum number of changes; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u32>,
}
