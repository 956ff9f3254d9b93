//! The results of the probes: all inputs of a diagnosis.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    schema::{RecordingRules, Schema},
    server_flavor::BuildInfo,
};
use serde::Deserialize;

use super::report::{CoverageReport, Evidence, Level};

/// Metric families of kube-state-metrics that improve history, and what is lost without them.
pub const KUBE_STATE_METRICS_FAMILIES: [(&str, Level, &str); 4] = [
    ("kube_pod_owner", Level::Warning, "deleted pods are matched to workloads by name alone"),
    ("kube_pod_labels", Level::Ok, "upstream's recommender could not match deleted pods to VPAs"),
    ("kube_pod_container_status_restarts_total", Level::Warning, "past OOM kills are not counted"),
    // kube-state-metrics exports it only after a container has terminated.
    (
        "kube_pod_container_status_last_terminated_reason",
        Level::Ok,
        "either no container has ended, or it is dropped and kills for memory in the past do not count",
    ),
];

#[derive(Clone, Debug)]
pub struct ProbeAnswer<T> {
    pub evidence: Vec<Evidence>,
    pub answer: Result<T, String>,
}

impl<T> Default for ProbeAnswer<T> {
    fn default() -> Self {
        Self { evidence: Vec::new(), answer: Err("not probed".to_owned()) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    #[default]
    Cluster,
    Server,
    Schema,
    Families,
    Depth,
    Cost,
    Comparison,
    Done,
}

impl Stage {
    /// What this stage and all later ones find out.
    pub fn remaining(self) -> &'static [&'static str] {
        const DESCRIPTIONS: [&str; Stage::Done as usize] = [
            "the pods of the cluster",
            "what the server is and keeps",
            "what its series are called",
            "throttling and the families of kube-state-metrics",
            "how far back history goes",
            "what reading it costs",
            "which pods have series",
        ];
        &DESCRIPTIONS[self as usize..]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeInfo {
    /// The configured retention: `15d`, `1GiB` or `15d or 1GiB`.
    pub storage_retention: Option<String>,
}

/// The number of containers with series at one time.
#[derive(Clone, Debug)]
pub struct Depth {
    pub age: Duration,
    pub containers: ProbeAnswer<u64>,
}

/// A small part of history, read with the recommender's queries.
#[derive(Clone, Debug)]
pub struct SampleRead {
    /// Whose history was read, such as `namespace shop`.
    pub scope: String,
    pub queries: Vec<Evidence>,
    /// Why reading failed. A query that failed but succeeded when it was split is not a failure.
    pub failure: Option<String>,
    /// VPAs that have pods but no history, although reading succeeded.
    pub vpas_without_history: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub enum ClusterCoverage {
    NoCluster(String),
    /// The cluster could not be read, for this reason.
    Unreadable(String),
    /// The cluster has no VPAs, or no VPA CustomResourceDefinition.
    #[default]
    Empty,
    Compared(CoverageReport, Vec<Evidence>),
    /// VPAs were read, but the series to compare them with were not.
    Unmatched(String, Vec<Evidence>),
}

#[derive(Clone, Debug, Default)]
pub struct ProbeResults {
    pub at: Time,
    pub address: String,
    pub wanted_history: Duration,
    /// The stage that was running when the deadline passed, or [`Stage::Done`].
    pub stage: Stage,
    pub deadline: Duration,
    /// The first query: whether the server answers at all.
    pub first_query: Vec<Evidence>,
    pub build: ProbeAnswer<BuildInfo>,
    pub flags: ProbeAnswer<BTreeMap<String, String>>,
    pub runtime: ProbeAnswer<RuntimeInfo>,
    pub schema: ProbeAnswer<Schema>,
    /// Recorded usage; `None` if the server has no usage.
    pub recording_rules: Option<ProbeAnswer<RecordingRules>>,
    /// Containers with throttling series; `None` if the server has no usage.
    pub throttled: Option<ProbeAnswer<u64>>,
    /// Which of [`KUBE_STATE_METRICS_FAMILIES`] exist; `None` without kube-state-metrics.
    pub families: Option<ProbeAnswer<BTreeSet<String>>>,
    /// Containers with series at sampled times, from the latest to the oldest.
    pub depth: Vec<Depth>,
    /// The sample read; `None` if there are no series.
    pub sample_read: Option<SampleRead>,
    pub cluster_coverage: ClusterCoverage,
    /// The connection flags as given, quoted for a shell.
    pub given_flags: Vec<String>,
    pub secret_flags: Vec<String>,
}

impl ProbeResults {
    pub fn has_completed(&self, stage: Stage) -> bool {
        stage < self.stage
    }
}
