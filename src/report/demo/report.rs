//! What a demo found, as data: `--output json` prints it, and the text is made from nothing else.

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

/// Raised whenever a field changes its meaning or goes away; new fields do not raise it.
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
    /// Always true: the load comes from a seed. Everything else is computed by the real code.
    pub synthetic_load: bool,
    /// Seed of the load.
    pub seed: u64,
    /// Virtual days of each life.
    pub days: u32,
    /// Virtual time at which both lives begin.
    pub start: Time,
    /// Sums over all containers.
    pub lives: BothScenarios<Totals>,
    /// What the life with recommendations requested less. Negative where it requested more.
    pub savings: Savings,
    /// What became of the history.
    pub history: HistoryReport,
    /// Every container, in a fixed order.
    pub containers: Vec<ContainerReport>,
    /// Width of a point in the charts.
    pub chart_point_minutes: u32,
}

/// The same thing in both lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BothScenarios<T> {
    /// In the life without recommendations.
    pub without: T,
    /// In the life with them.
    pub with: T,
}

/// The difference of the two lives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Savings {
    /// Requested core-hours.
    pub core_hours: f64,
    /// Requested GiB-hours.
    pub gib_hours: f64,
    /// Kills for lack of memory.
    pub oom_kills: i64,
    /// Minutes in which CPU was throttled.
    pub throttled_minutes: i64,
}

impl Savings {
    /// The difference of two accounts.
    pub fn between(lives: &BothScenarios<Totals>) -> Self {
        let BothScenarios { without, with } = lives;
        Self {
            // Subtracted as whole numbers, divided once: what was saved exactly prints exactly.
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

/// What became of the recommender's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryReport {
    /// The storage it was kept in.
    pub backend: String,
    /// Saves of all histories.
    pub saves: u64,
    /// Recommenders that were stopped, and new ones that went on from the store.
    pub restarts: Vec<Restart>,
}

/// One restart of the recommender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// When.
    pub at: Time,
    /// Histories read back from the store.
    pub loaded: usize,
    /// Recommendations that were compared.
    pub compared: usize,
    /// Those that were exactly the same after as before.
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
    /// A few words on the workload.
    pub story: String,
    /// Whether it is a native sidecar.
    pub sidecar: bool,
    /// Replicas; absent for jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// What its pod template asks for.
    pub template: ContainerResources,
    /// What is recommended at the end; absent when it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<Recommended>,
    /// Its sums.
    pub lives: BothScenarios<Totals>,
    /// Its usage against its request.
    pub charts: BothScenarios<Chart>,
}

/// A recommendation and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommended {
    /// The numbers.
    #[serde(flatten)]
    pub advice: ResourceRecommendation,
    /// Why, in a few words each.
    pub why: Reasons,
    /// Why, as data from which the numbers can be worked out again.
    pub explanation: Explanation,
}

/// Why, in a few words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    /// Of the CPU.
    pub cpu: String,
    /// Of the memory.
    pub memory: String,
}
