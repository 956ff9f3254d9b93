//! How an installation is, on one screen: what its Leases and pods say becomes lines, and what is wrong becomes findings.

mod checks;
pub mod text;

use plimsoll_core::types::Time;
use serde::Serialize;

pub use self::checks::build_report;
use plimsoll_core::api::role_health::RoleHealth;

/// Version of the report, and what it is.
pub const SCHEMA_VERSION: u32 = 1;
const KIND: &str = "status";

/// A Lease of a role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseFacts {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// When it was renewed last, by the clock of whoever did.
    pub renewed: Option<Time>,
    /// For how long that counts.
    pub seconds: i64,
    /// What the role says of itself; upstream's say nothing.
    pub vitals: Option<RoleHealth>,
    /// Why that could not be read.
    pub unreadable: Option<String>,
}

/// A pod of an installation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which role it has by its label.
    pub component: String,
    /// What it runs.
    pub image: String,
    /// Whether it is ready.
    pub is_ready: bool,
    /// How often its containers were started again.
    pub restarts: i64,
}

/// All that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Where it was asked.
    pub cluster: String,
    /// Leases of roles.
    pub leases: Vec<LeaseFacts>,
    /// Pods of this project.
    pub pods: Vec<PodFacts>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// How an installation is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// Which form this has.
    pub schema_version: u32,
    /// Always `status`.
    pub kind: &'static str,
    /// Of this program.
    pub version: String,
    /// Where it was asked.
    pub cluster: String,
    /// When.
    pub time: Time,
    /// The roles that were found.
    pub roles: Vec<RoleReport>,
    /// What somebody should look at, the worst first.
    pub findings: Vec<Finding>,
}

/// One role.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleReport {
    /// `recommender`, `updater`, `admission-controller` or `watermark`.
    pub role: String,
    /// Its Lease: namespace and name.
    pub lease: String,
    /// Who leads; of an admission controller, who was last to say that it can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Of the program that leads, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds since the Lease was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds: Option<f64>,
    /// Seconds since its last pass ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_age_seconds: Option<f64>,
    /// How many objects it looks after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// About how many of them nothing new is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<u64>,
    /// The state of the history as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// Until when nothing is changed anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker_until: Option<Time>,
    /// Workloads that are left alone because their pods got worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_workloads: Option<u64>,
    /// Its pods that are ready, and all of them.
    pub ready: usize,
    /// All of its pods.
    pub pods: usize,
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// A word for it that stays.
    pub code: &'static str,
    /// What is so, and what to do.
    pub message: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// It keeps a role from its work.
    Problem,
    /// It could be better.
    Warning,
}
