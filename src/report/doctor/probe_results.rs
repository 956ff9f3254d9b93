//! The results of the probes: all inputs of a diagnosis.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::schema::{RecordingRules, Schema};
use serde::Deserialize;

use super::{
    report::{CoverageReport, Evidence},
    server_flavor::BuildInfo,
};

/// Metric families of kube-state-metrics that improve history.
pub const KUBE_STATE_METRICS_FAMILIES: [&str; 4] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_status_last_terminated_reason",
];

/// The queries of one probe and their result.
#[derive(Clone, Debug)]
pub struct ProbeAnswer<T> {
    /// The queries.
    pub evidence: Vec<Evidence>,
    /// The result, or why there is none.
    pub answer: Result<T, String>,
}

impl<T> ProbeAnswer<T> {
    /// A probe that has not run.
    pub fn not_yet() -> Self {
        Self { evidence: Vec::new(), answer: Err("not probed".to_owned()) }
    }
}

/// The stages of a diagnosis, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Pods and VPAs of the cluster.
    Cluster,
    /// The server's flavor, flags and retention.
    Server,
    /// Metric and label names.
    Schema,
    /// Throttling and kube-state-metrics families.
    Families,
    /// How far back history goes.
    Depth,
    /// The cost of reading history.
    Cost,
    /// Which pods of the cluster have series.
    Comparison,
    /// All stages completed.
    Done,
}

impl Stage {
    /// The text for a list of stages; `None` for [`Stage::Done`].
    pub fn description(self) -> Option<&'static str> {
        Some(match self {
            Self::Cluster => "the pods of the cluster",
            Self::Server => "what the server is and keeps",
            Self::Schema => "what its series are called",
            Self::Families => "throttling and the families of kube-state-metrics",
            Self::Depth => "how far back history goes",
            Self::Cost => "what reading it costs",
            Self::Comparison => "which pods have series",
            Self::Done => return None,
        })
    }

    /// The next stage.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Cluster => Self::Server,
            Self::Server => Self::Schema,
            Self::Schema => Self::Families,
            Self::Families => Self::Depth,
            Self::Depth => Self::Cost,
            Self::Cost => Self::Comparison,
            Self::Comparison | Self::Done => Self::Done,
        }
    }
}

/// The server's runtime information.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeInfo {
    /// The configured retention: `15d`, `1GiB` or `15d or 1GiB`.
    pub storage_retention: Option<String>,
}

/// The number of containers with series at one time.
#[derive(Clone, Debug)]
pub struct Depth {
    /// How long ago that time is.
    pub age: Duration,
    /// The number of containers.
    pub containers: ProbeAnswer<u64>,
}

/// A small part of history, read with the recommender's queries.
#[derive(Clone, Debug)]
pub struct SampleRead {
    /// Whose history was read, such as `namespace shop`.
    pub scope: String,
    /// The queries that were sent.
    pub queries: Vec<Evidence>,
    /// Why reading failed. A query that failed but succeeded when it was split is not a failure.
    pub failure: Option<String>,
    /// VPAs that have pods but no history, although reading succeeded.
    pub vpas_without_history: Vec<String>,
}

/// The comparison with the cluster.
#[derive(Clone, Debug)]
pub enum ClusterCoverage {
    /// No cluster is configured, for this reason.
    NoCluster(String),
    /// The cluster could not be read, for this reason.
    Unreadable(String),
    /// The cluster has no VPAs, or no VPA CustomResourceDefinition.
    Empty,
    /// Pods were compared with series.
    Compared(CoverageReport, Vec<Evidence>),
    /// VPAs were read, but the series to compare them with were not.
    Unmatched(String, Vec<Evidence>),
}

/// The results of all probes.
#[derive(Clone, Debug)]
pub struct ProbeResults {
    /// When the probes ran.
    pub at: Time,
    /// The server's address, without secrets.
    pub address: String,
    /// How far back history is required.
    pub wanted_history: Duration,
    /// The stage that was running when the deadline passed, or [`Stage::Done`].
    pub stage: Stage,
    /// The time limit of all probes.
    pub deadline: Duration,
    /// The first query: whether the server answers at all.
    pub first_query: Vec<Evidence>,
    /// The server's build information.
    pub build: ProbeAnswer<BuildInfo>,
    /// The server's flags.
    pub flags: ProbeAnswer<BTreeMap<String, String>>,
    /// The server's runtime information.
    pub runtime: ProbeAnswer<RuntimeInfo>,
    /// The detected metric and label names.
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
    /// The comparison with the cluster.
    pub cluster_coverage: ClusterCoverage,
    /// The connection flags as given, quoted for a shell.
    pub given_flags: Vec<String>,
    /// Names of given flags that contain secrets.
    pub secret_flags: Vec<String>,
}

impl ProbeResults {
    /// Whether a stage completed.
    pub fn has_completed(&self, stage: Stage) -> bool {
        stage < self.stage
    }
}
