//! The report of `plimsoll backtest`, as data. Forms only render it.

mod build;
mod containers;
mod sums;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use build::build;

use super::{policy::PolicyLabel, replica_model::ReplicaRule};
use crate::types::Time;

pub const SCHEMA_VERSION: u32 = 1;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BacktestReport {
    pub schema_version: u32,
    pub kind: String,
    /// The version of Plimsoll.
    pub version: String,
    /// What was replayed: a namespace, `all namespaces`, or the names of trace files.
    pub scope: String,
    /// The beginning of the warm-up.
    pub warm_up_from: Time,
    /// The beginning of the evaluation.
    pub from: Time,
    /// Its end.
    pub until: Time,
    pub workloads: u32,
    pub containers: u32,
    /// Container-days that are judged.
    pub container_days: u64,
    /// The share of container-minutes whose demand is unknown: censored, assumed or left out.
    pub unknown_share: f64,
    /// The share of minutes without samples.
    pub missing_share: f64,
    /// Containers left out of the figures of memory.
    pub elastic_containers: u32,
    /// Where the numbers of replicas come from.
    pub replicas: ReplicasReport,
    /// The currency, if prices are known.
    pub currency: Option<String>,
    /// The policies in the order they were asked for.
    pub policies: Vec<PolicyReport>,
    /// The policies that no other beats, from the cheapest to the safest, with the price of what each avoids.
    pub frontier: Vec<FrontierStep>,
    /// Containers that need a look, the worst first.
    pub worst: Vec<WorstContainer>,
    /// Remarks that concern the whole report.
    pub remarks: Vec<String>,
}

/// Where the numbers of replicas come from, in workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasReport {
    /// What was asked for: `recorded` or `model`.
    pub rule: ReplicaRule,
    /// Workloads whose replicas are modelled.
    pub modelled: u32,
    /// Workloads whose replicas are as recorded, although their autoscaler would answer to other requests.
    pub recorded_with_autoscaler: u32,
    /// Workloads whose replicas are as recorded, and whose autoscalers could not be read.
    pub recorded_unknown_autoscaler: u32,
}

/// What a report needs beside the accounts. Parts of a backtest keep it, so that they can be merged.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportInputs {
    /// The version of Plimsoll.
    pub version: String,
    /// What was replayed.
    pub scope: String,
    /// The beginning of the warm-up.
    pub warm_up_from: Time,
    /// The beginning of the evaluation.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// The policies in the order of the accounts.
    pub policies: Vec<PolicyLabel>,
    /// The currency, if prices are known.
    pub currency: Option<String>,
    /// The price of a core for an hour.
    pub cpu_core_hour: Option<f64>,
    /// The price of a GiB of memory for an hour.
    pub memory_gib_hour: Option<f64>,
    /// Where the numbers of replicas come from.
    #[serde(default)]
    pub replicas: ReplicaRule,
    /// Remarks that were made before the replay.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// The figures of a policy: ratios are ratios of sums.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    pub name: String,
    /// Its settings that differ from those of its rule, as text.
    pub settings: String,
    /// How its recommendations reach pods: `updater`, `daily`, `weekly`, `instant`.
    pub apply: String,
    /// The mean of requested cores.
    pub cpu_requested: f64,
    /// The share of requested CPU that is slack.
    pub cpu_slack: Option<f64>,
    /// The share of time above the request.
    pub cpu_short_time: Option<f64>,
    /// The share of usage above the request.
    pub cpu_short_volume: Option<f64>,
    /// Container-days with more than 5 % of minutes above the request.
    pub bad_cpu_days: u64,
    /// The share of minutes at the CPU limit.
    pub throttled: Option<f64>,
    /// The mean of requested GiB; `None` if no memory was recorded.
    pub memory_requested: Option<f64>,
    /// The share of requested memory that is slack.
    pub memory_slack: Option<f64>,
    /// The share of windows above the request.
    pub memory_over_request: Option<f64>,
    pub oom_kills: u64,
    /// Container-days with at least one.
    pub oom_days: u64,
    /// Container-days with at least four.
    pub serious_days: u64,
    /// Changed pods, per workload-day.
    pub changes_per_day: f64,
    /// Evictions.
    pub evicted: u64,
    /// Resizes in place.
    pub resized: u64,
    /// The median of hours to the first recommendation.
    pub first_recommendation_hours: Option<f64>,
    /// What the requests cost a month.
    pub monthly_cost: Option<f64>,
    /// Whether no other policy beats it. `None` for a yardstick such as `oracle`, which is not judged, and if it depends on
    /// minutes whose demand is unknown; then a remark says so.
    pub is_on_frontier: Option<bool>,
    pub against_current: Option<Differences>,
    /// Sums by day, for charts.
    pub days: Vec<DayReport>,
    /// Counts of containers by slack of CPU, in tenths from 0 to 100 %.
    pub slack_histogram: Vec<u32>,
}

/// Differences to another policy, with 95 % intervals of a bootstrap over workloads.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Differences {
    /// The relative difference of cost, or of requested CPU without prices.
    pub cost: Interval,
    pub oom_days: Interval,
    pub bad_cpu_days: Interval,
}

/// An estimate with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    pub estimate: f64,
    /// The lower end of the interval.
    pub lower: f64,
    /// The upper end.
    pub upper: f64,
}

/// A policy of the frontier, compared with the one before.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontierStep {
    pub policy: String,
    /// What it costs more in the time of the evaluation than the one before (money with prices, else core-hours).
    pub extra_cost: Option<f64>,
    /// Bad days (OOM-days and bad CPU days) that it avoids.
    pub avoided_days: Option<u64>,
    /// The price of one of them.
    pub price_per_day: Option<f64>,
}

/// Sums of a day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DayReport {
    pub day: Time,
    /// The mean of requested cores.
    pub cpu_requested: f64,
    /// The mean of used cores.
    pub cpu_used: f64,
    /// The mean of requested GiB.
    pub memory_requested: f64,
    pub oom_kills: u64,
}

/// A container that is killed or short under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorstContainer {
    /// The workload: `shop/Deployment/web`.
    pub workload: String,
    pub container: String,
    pub policy: String,
    pub oom_days: u64,
    pub bad_cpu_days: u64,
    /// A sentence for people.
    pub remark: String,
}
