//! `plimsoll status`: summarizes the Leases and pods of an installation, and reports problems as findings.

mod checks;
pub mod text;

use plimsoll_core::{api::role_health::RoleHealth, types::Time};
use serde::Serialize;
use serde_with::skip_serializing_none;

pub use self::checks::build_report;

pub const SCHEMA_VERSION: u32 = 1;
const KIND: &str = "status";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseFacts {
    pub namespace: String,
    pub name: String,
    /// The holder's identity; empty if there is no holder.
    pub holder: String,
    /// When it was last renewed, by the holder's clock.
    pub renewed: Option<Time>,
    /// The lease duration in seconds.
    pub seconds: i64,
    /// The health that the role reports; upstream's roles report none.
    pub vitals: Option<RoleHealth>,
    /// Why the health could not be read.
    pub unreadable: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    pub namespace: String,
    pub name: String,
    /// The role, from the pod's component label.
    pub component: String,
    pub image: String,
    pub is_ready: bool,
    /// The number of container restarts.
    pub restarts: i64,
}

/// The collected Leases and pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The URL of the API server.
    pub cluster: String,
    pub leases: Vec<LeaseFacts>,
    pub pods: Vec<PodFacts>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    pub schema_version: u32,
    /// Always `status`.
    pub kind: &'static str,
    pub(crate) version: String,
    pub(crate) cluster: String,
    pub(crate) time: Time,
    /// The roles that were found.
    pub roles: Vec<RoleReport>,
    /// Problems and warnings, the most severe first.
    pub findings: Vec<Finding>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleReport {
    /// `recommender`, `updater`, `admission-controller`, `watermark` or `horizontal`.
    pub role: String,
    /// What it does with objects, if it has modes.
    pub mode: Option<String>,
    /// Its Lease: namespace and name.
    pub lease: String,
    /// The leader; for an admission controller, the replica that last renewed the Lease.
    pub leader: Option<String>,
    /// Version of the leader, if it reports one.
    pub version: Option<String>,
    pub(crate) renewed_seconds: Option<f64>,
    /// Seconds since its last pass ended.
    pub loop_age_seconds: Option<f64>,
    /// Number of objects that it manages.
    pub objects: Option<u64>,
    pub(crate) stale: Option<u64>,
    /// The state of the history, such as `loading` or `failed`.
    pub history: Option<String>,
    /// Until when the cluster-wide circuit breaker blocks all changes.
    pub breaker_until: Option<Time>,
    /// Workloads whose updates are paused because their pods got worse.
    pub held_workloads: Option<u64>,
    /// Number of its ready pods.
    pub ready: usize,
    pub pods: usize,
}

/// A problem or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub level: Level,
    /// A stable identifier, independent of the message.
    pub code: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    fn new(level: Level, code: &'static str, message: impl Into<String>) -> Self {
        Self { level, code, message: message.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// A role does not work.
    Problem,
    /// It works, but could be improved.
    Warning,
}
