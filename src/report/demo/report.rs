//! The report of a demo as data: `--output json` prints it, and the text is rendered from it.

use std::sync::Arc;

use plimsoll_core::{
    recommender::Explanation,
    sim::{ContainerResources, ResourceRecommendation},
    types::Time,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    both_autoscalers::BothAutoscalers,
    totals::{self, Chart, Totals},
};

/// Version of the JSON schema, incremented when a field changes its meaning or is removed, but not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    pub(crate) schema_version: u32,
    pub(crate) kind: String,
    pub(crate) version: String,
    /// Always true: the load is generated from a seed. Everything else is computed by the real code.
    pub(crate) synthetic_load: bool,
    pub(crate) seed: u64,
    pub(crate) days: u32,
    pub(crate) start: Time,
    pub(crate) lives: BothScenarios<Totals>,
    /// What the scenario with recommendations saves. Negative if it requests more.
    pub(crate) savings: Savings,
    pub(crate) history: HistoryReport,
    pub(crate) containers: Vec<ContainerReport>,
    pub(crate) chart_point_minutes: u32,
    pub(crate) both_autoscalers: BothAutoscalers,
}

/// A value for each of the two scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BothScenarios<T> {
    pub without: T,
    pub with: T,
}

impl<T> BothScenarios<T> {
    pub fn map<U>(&self, change: impl Fn(&T) -> U) -> BothScenarios<U> {
        BothScenarios { without: change(&self.without), with: change(&self.with) }
    }
}

/// The difference between the two scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Savings {
    pub core_hours: f64,
    pub gib_hours: f64,
    pub oom_kills: i64,
    pub throttled_minutes: i64,
}

impl Savings {
    pub fn between(totals_by_scenario: &BothScenarios<Totals>) -> Self {
        let BothScenarios { without, with } = totals_by_scenario;
        Self {
            // Subtract integers and divide once, so that exact savings print exactly.
            core_hours: totals::core_hours(
                without.requested_millicore_minutes - with.requested_millicore_minutes,
            ),
            gib_hours: totals::gib_hours(
                without.requested_byte_minutes - with.requested_byte_minutes,
            ),
            oom_kills: without.oom_kills - with.oom_kills,
            throttled_minutes: without.throttled_minutes - with.throttled_minutes,
        }
    }
}

/// Saves and restarts of the recommender's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryReport {
    pub backend: String,
    pub saves: u64,
    pub restarts: Vec<Restart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    pub at: Time,
    pub loaded: usize,
    pub compared: usize,
    pub unchanged: usize,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    pub namespace: Arc<str>,
    pub workload: Arc<str>,
    pub container: Arc<str>,
    pub story: String,
    pub sidecar: bool,
    /// Replicas; absent for jobs.
    pub replicas: Option<u32>,
    pub template: ContainerResources,
    /// The recommendation at the end; absent if the container never ran.
    pub recommendation: Option<Recommended>,
    pub lives: BothScenarios<Totals>,
    pub charts: BothScenarios<Chart>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommended {
    #[serde(flatten)]
    pub advice: ResourceRecommendation,
    pub why: Reasons,
    /// The reasons as data from which the amounts can be recomputed.
    pub explanation: Explanation,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    pub cpu: String,
    pub memory: String,
}
