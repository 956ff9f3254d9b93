//! The report of a demo as data: `--output json` prints it, and the text is rendered from it.

use std::sync::Arc;

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use super::{
    chart::Chart,
    totals::{self, Totals},
};
use plimsoll_core::{
    recommender::Explanation,
    sim::{ContainerResources, ResourceRecommendation},
};

/// Version of the JSON schema, incremented when a field changes its meaning or is removed, but not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// A demo and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `demo`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Always true: the load is generated from a seed. Everything else is computed by the real code.
    pub synthetic_load: bool,
    /// Seed of the load.
    pub seed: u64,
    /// Simulated days of each scenario.
    pub days: u32,
    /// Simulated time at which both scenarios start.
    pub start: Time,
    /// Sums over all containers.
    pub lives: BothScenarios<Totals>,
    /// What the scenario with recommendations saves. Negative if it requests more.
    pub savings: Savings,
    /// Saves and restarts of the recommender's history.
    pub history: HistoryReport,
    /// Every container, in a fixed order.
    pub containers: Vec<ContainerReport>,
    /// Width of a point in the charts.
    pub chart_point_minutes: u32,
}

/// A value for each of the two scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BothScenarios<T> {
    /// Without recommendations.
    pub without: T,
    /// With recommendations.
    pub with: T,
}

/// The difference between the two scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Savings {
    /// Requested core-hours.
    pub core_hours: f64,
    /// Requested GiB-hours.
    pub gib_hours: f64,
    /// OOM kills.
    pub oom_kills: i64,
    /// Minutes in which CPU was throttled.
    pub throttled_minutes: i64,
}

impl Savings {
    /// Computes the difference between the totals of the scenarios.
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
    /// Name of the storage.
    pub backend: String,
    /// Number of saves.
    pub saves: u64,
    /// Restarts of the recommender.
    pub restarts: Vec<Restart>,
}

/// One restart of the recommender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// Simulated time of the restart.
    pub at: Time,
    /// Histories loaded from the store.
    pub loaded: usize,
    /// Recommendations that were compared.
    pub compared: usize,
    /// Recommendations that were identical before and after.
    pub unchanged: usize,
}

/// One container of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Namespace of the workload.
    pub namespace: Arc<str>,
    /// Name of the workload.
    pub workload: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// A short description of the workload.
    pub story: String,
    /// Whether it is a native sidecar.
    pub sidecar: bool,
    /// Replicas; absent for jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Resources of the pod template.
    pub template: ContainerResources,
    /// The recommendation at the end; absent if the container never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommended>,
    /// Totals of the container.
    pub lives: BothScenarios<Totals>,
    /// Usage and requests of the container.
    pub charts: BothScenarios<Chart>,
}

/// A recommendation and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommended {
    /// The recommended amounts.
    #[serde(flatten)]
    pub advice: ResourceRecommendation,
    /// Short reasons.
    pub why: Reasons,
    /// The reasons as data from which the amounts can be recomputed.
    pub explanation: Explanation,
}

/// Short reasons for a recommendation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    /// Reason for the CPU target.
    pub cpu: String,
    /// Reason for the memory target.
    pub memory: String,
}
