//! The report of `plimsoll recommend`, as data. Forms only render it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{recommender::ResourceExplanation, types::Time};

use super::{
    evidence::{EvidenceGap, MemoryPeak, NodeGroupTarget, RunCounts},
    survey::{AutoscalerRef, ContainerRole, Resource, RuntimeHint, Unread, UtilizationTarget},
};

/// The schema version of the report. It increases when a field changes its meaning or is removed, not when a field is
/// added.
pub const SCHEMA_VERSION: u32 = 1;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub schema_version: u32,
    /// `recommend`.
    pub kind: String,
    /// The version of Plimsoll.
    pub version: String,
    /// The time of the report; with `--until` that time.
    pub at: Time,
    /// The clusters, with their servers.
    pub sources: Vec<SourceReport>,
    /// Flags that change numbers and differ from their default, as `--name=value`.
    pub settings: Vec<String>,
    /// The name of the recommendation strategy, if it is not Plimsoll's.
    pub strategy: Option<String>,
    /// The currency, if prices are known.
    pub currency: Option<String>,
    /// The totals of all workloads.
    pub totals: Totals,
    /// The totals by namespace, sorted by name.
    pub namespaces: BTreeMap<String, Totals>,
    /// The workloads, sorted by cluster, namespace, kind and name.
    pub workloads: Vec<WorkloadReport>,
    /// What could not be read. If this is not empty, the report is incomplete and the exit code is 4.
    pub unread: Vec<Unread>,
    /// Remarks that concern the whole report.
    pub remarks: Vec<String>,
}

/// A server that history was read from.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// The context or the value of the cluster label.
    pub cluster: Option<String>,
    /// The server: `monitoring/prometheus-operated:9090`, or its address.
    pub server: String,
    /// What it is, such as `Prometheus 3.15.0`.
    pub product: Option<String>,
    /// Whether it is read through the API server.
    pub proxied: bool,
    /// The start of the window.
    pub from: Option<Time>,
    /// The end of the window.
    pub until: Option<Time>,
    /// The step of CPU samples in seconds.
    pub step_seconds: Option<u64>,
    pub queries: u64,
    /// The size of their responses in bytes, after decompression.
    pub bytes: u64,
    /// The size of their responses as they were transferred; 0 if unknown.
    #[serde(default)]
    pub transferred_bytes: u64,
    /// How long they took in seconds.
    pub seconds: f64,
}

impl SourceReport {
    /// The size of the responses as they were transferred, as far as it is known.
    pub fn size(&self) -> u64 {
        if self.transferred_bytes > 0 { self.transferred_bytes } else { self.bytes }
    }
}

/// Sums over workloads.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub workloads: usize,
    pub containers: usize,
    /// CPU, in millicores.
    pub cpu: ResourceTotals,
    /// Memory, in bytes.
    pub memory: ResourceTotals,
    /// The score, from 0 to 100; `None` if no container has a number.
    pub score: Option<Score>,
    /// Containers by their highest risk.
    pub risk: BTreeMap<Level, usize>,
    /// Containers by their highest waste.
    pub waste: BTreeMap<Level, usize>,
    /// Containers without a number, by reason.
    pub unsaid: BTreeMap<EvidenceGap, usize>,
}

/// Sums of one resource over all pods.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTotals {
    /// What pods request, where both the request and the target are known.
    pub requested: i64,
    /// What they should request.
    pub needed: i64,
    /// What the requests cost a month, if prices are known.
    pub cost: Option<f64>,
    /// What they should cost.
    pub needed_cost: Option<f64>,
    /// The number of containers that are in the amounts and not in the costs, because a price or a node is unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_price: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How well requests fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// From 0 to 100.
    pub value: u32,
    /// The share of requests that is not needed, from 0 to 1.
    pub wasted: f64,
    /// The share of containers at risk, from 0 to 1.
    pub at_risk: f64,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReport {
    /// The cluster, if the report covers several.
    pub cluster: Option<String>,
    pub namespace: String,
    /// `apps/v1`; absent if only series are known.
    pub api_version: Option<String>,
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The number of its pods; absent if unknown.
    pub replicas: Option<u32>,
    /// The VerticalPodAutoscaler that targets it.
    pub vpa: Option<String>,
    /// The autoscalers of replicas that target it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled_by: Vec<AutoscalerRef>,
    /// Targets of autoscalers that have to change together with the requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_changes: Vec<TargetChange>,
    /// What the shape of the workload is, if it is not a plain one: `cronjob by owner`.
    pub shape: Option<String>,
    /// Runs of a CronJob or Job.
    pub runs: Option<RunCounts>,
    pub containers: Vec<ContainerReport>,
}

impl WorkloadReport {
    /// What its requests and its targets cost a month; `None` if a price or the number of its pods is unknown.
    pub fn monthly_costs(&self) -> Option<(f64, f64)> {
        let containers =
            self.containers.iter().filter(|container| container.role != ContainerRole::Init);
        let rows = containers.flat_map(|container| &container.resources);
        let both = rows.filter(|row| row.request.is_some() && row.target.is_some());
        let costs = both.map(|row| row.cost.zip(row.new_cost));
        let sum = |(cost, new_cost): (f64, f64), costs: Option<(f64, f64)>| {
            costs.map(|(of_row, new_of_row)| (cost + of_row, new_cost + new_of_row))
        };
        let mut costs = costs.peekable();
        // Without any row, nothing is known.
        costs.peek()?;
        costs.try_fold((0.0, 0.0), sum)
    }
}

/// A utilization target that has to change together with requests, so that the same usage per pod leads to the same number
/// of replicas.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetChange {
    #[serde(flatten)]
    pub target: UtilizationTarget,
    /// The new percentage; absent if the resource is left alone.
    pub new_percent: Option<u32>,
    /// Why the resource is left alone.
    pub held: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    pub name: String,
    /// When it runs.
    pub role: ContainerRole,
    /// Why no manifest can be patched; absent if one can.
    pub no_patch: Option<NoPatchReason>,
    /// CPU, then memory.
    pub resources: Vec<ResourceReport>,
    /// OOM kills within the window.
    pub oom_kills: u32,
    pub last_oom_kill: Option<Time>,
    /// The share of CFS periods in which it was throttled; absent if unknown.
    pub throttled_share: Option<f64>,
    /// The peak of memory of one pod within the window.
    pub memory_peak: Option<MemoryPeak>,
    /// The peak in a longer time, if it is above the target.
    pub rare_memory_peak: Option<MemoryPeak>,
    /// The peak without page cache, if it differs by a third.
    pub needed_memory_peak: Option<MemoryPeak>,
    /// Targets by node group, if they differ enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_groups: Vec<NodeGroupTarget>,
    /// Settings of the runtime.
    pub runtime: Option<RuntimeHint>,
    /// Remarks, such as that a limit follows the heap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// Why no manifest has the resources of a container.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum NoPatchReason {
    /// Pods have the container and their template does not: a webhook or a controller injects it.
    Injected,
    /// The workload stands for several Jobs or other owners.
    Grouped,
}

/// What the pod template asks for, in millicores or bytes.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateAmounts {
    pub request: Option<i64>,
    pub limit: Option<i64>,
}

/// One resource of a container. CPU is in millicores, memory in bytes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReport {
    pub resource: Resource,
    /// The request of one existing pod; absent if there is none or it is unknown.
    pub request: Option<i64>,
    /// The limit of one existing pod.
    pub limit: Option<i64>,
    /// What the pod template asks for, if pods run with other amounts.
    pub template: Option<TemplateAmounts>,
    /// What it should request; absent if there is no number.
    pub target: Option<i64>,
    /// Pods with a lower request should get more.
    pub lower: Option<i64>,
    /// Pods with a higher request need less.
    pub upper: Option<i64>,
    /// What to do with the request and the limit of the pod template.
    pub change: Change,
    /// How dangerous the request or limit is.
    pub risk: Level,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risk_reasons: Vec<RiskReason>,
    /// How much is requested and not needed.
    pub waste: Level,
    /// What the requests of all pods cost a month.
    pub cost: Option<f64>,
    /// What they would cost with the target.
    pub new_cost: Option<f64>,
    /// Why there is no number.
    pub unsaid: Option<EvidenceGap>,
    /// How the recommender came to the number.
    pub explanation: Option<Box<ResourceExplanation>>,
}

impl ResourceReport {
    /// The new request, if it is another one than pods have now.
    pub fn new_request(&self) -> Option<i64> {
        self.change.request.filter(|new| self.request != Some(*new))
    }

    /// The new limit, if it is another one than pods have now.
    pub fn new_limit(&self) -> Option<i64> {
        self.change.limit.filter(|new| self.limit != Some(*new))
    }
}

/// What to do with the request and the limit of a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The new request; absent if it stays as it is.
    pub request: Option<i64>,
    /// The new limit; absent if it stays as it is.
    pub limit: Option<i64>,
    /// Whether the limit should be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove_limit: bool,
    /// Why nothing changes although the target differs: an autoscaler, or the shape of the workload.
    pub held: Option<String>,
}

/// A level of risk or waste.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Level {
    /// Unknown: there is too little history, or requests could not be read.
    Unsaid,
    /// None.
    #[default]
    Ok,
    /// Worth knowing.
    Low,
    /// Worth a change.
    Medium,
    /// Needs a change.
    High,
    /// Needs a change now.
    Critical,
}

/// What the risk of a resource is.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "code")]
pub enum RiskReason {
    /// It was killed for memory under a limit that still stands.
    #[serde(rename_all = "camelCase")]
    OomKilled {
        /// How often.
        kills: u32,
        last: Option<Time>,
    },
    /// Its peak is close to the limit.
    #[serde(rename_all = "camelCase")]
    PeakNearLimit {
        /// The share of the limit.
        share: f64,
    },
    #[serde(rename_all = "camelCase")]
    Throttled {
        /// The share of periods.
        share: f64,
    },
    /// It uses more than it requests.
    #[serde(rename_all = "camelCase")]
    UsageAboveRequest {
        /// The share of time.
        share: f64,
    },
    /// The request is below the lower bound, or well below the target.
    BelowNeed,
    /// It has no request.
    NoRequest,
}
