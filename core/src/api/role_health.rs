//! What a role says of itself on its Lease: enough to see from outside how it is, without reaching any pod.

use crate::types::Time;
use serde::{Deserialize, Serialize};

/// The annotation that has it, as JSON.
pub const ANNOTATION: &str = "plimsoll.dev/state";

/// How a role is, as of the last renewal of its Lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleHealth {
    /// Which role: `recommender`, `updater`, `admission-controller`, `watermark`.
    pub role: String,
    /// Of the program.
    pub version: String,
    /// When its last pass ended, or its last look at an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pass: Option<Time>,
    /// Seconds from one pass to the next.
    pub interval_seconds: f64,
    /// How many objects it looks after.
    pub objects: u64,
    /// About how many of them nothing new is known: no sample within a quarter of an hour, or no value of a metric.
    pub stale: u64,
    /// The state of the history as a whole, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// Until when nothing is changed anywhere, because changes went wrong at several workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker_until: Option<Time>,
    /// Workloads that are left alone because their pods got worse.
    pub held_workloads: u64,
}

impl RoleHealth {
    /// Of a role of this program, which knows nothing yet.
    pub fn new(role: &str, interval_seconds: f64) -> Self {
        Self {
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interval_seconds,
            ..Self::default()
        }
    }
}
