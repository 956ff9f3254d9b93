//! The health of a component, published in an annotation of its Lease, so that it can be read without access to a pod.

use crate::types::Time;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The annotation with the health, as JSON.
pub const ANNOTATION: &str = "plimsoll.dev/state";

/// The mode of a horizontal controller that replaces the HPA controller of the cluster.
pub const REPLACE_MODE: &str = "replace";

/// The health of a component at the last renewal of its Lease.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleHealth {
    /// The component: `recommender`, `updater`, `admission-controller`, `watermark` or `horizontal`.
    pub role: String,
    /// What the component does with objects, for components that have modes.
    pub mode: Option<String>,
    /// The version of the program.
    pub version: String,
    /// When the last pass or reconcile ended.
    pub last_pass: Option<Time>,
    /// The interval between passes, in seconds.
    pub interval_seconds: f64,
    pub objects: u64,
    /// Number of objects without current data: no sample within 15 minutes, or a metric is not available.
    pub stale: u64,
    /// The state of the history, for components that have one.
    pub history: Option<String>,
    /// Until when all updates are paused, because updates of several workloads failed.
    pub breaker_until: Option<Time>,
    /// Number of workloads whose updates are paused because their pods regressed.
    pub held_workloads: u64,
}

impl RoleHealth {
    /// The initial health of a component.
    pub fn new(role: &str, interval_seconds: f64) -> Self {
        Self {
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interval_seconds,
            ..Self::default()
        }
    }
}
