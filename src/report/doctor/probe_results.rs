//! What was asked of a server and what came: all that a diagnosis is made from.

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

/// Families of kube-state-metrics that history is better with.
pub const KUBE_STATE_METRICS_FAMILIES: [&str; 4] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_status_last_terminated_reason",
];

/// Questions about one thing, and what they came to.
#[derive(Clone, Debug)]
pub struct ProbeAnswer<T> {
    /// The questions.
    pub evidence: Vec<Evidence>,
    /// What came, or why nothing did.
    pub answer: Result<T, String>,
}

impl<T> ProbeAnswer<T> {
    /// No question yet.
    pub fn not_yet() -> Self {
        Self { evidence: Vec::new(), answer: Err("it was not asked about".to_owned()) }
    }
}

/// What is asked about, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The cluster beside it.
    Cluster,
    /// What it is.
    Server,
    /// What its series are called.
    Schema,
    /// Which others there are.
    Families,
    /// How far back they go.
    Depth,
    /// What reading them costs.
    Cost,
    /// Which pods of the cluster have series.
    Comparison,
    /// Nothing is left.
    Done,
}

impl Stage {
    /// As a list says it. None when nothing is left.
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

    /// The one after it.
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

/// What a server says of itself while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeInfo {
    /// How much is kept: `15d`, `1GiB` or `15d or 1GiB`.
    pub storage_retention: Option<String>,
}

/// How many containers had series at one moment.
#[derive(Clone, Debug)]
pub struct Depth {
    /// How long ago.
    pub age: Duration,
    /// How many.
    pub containers: ProbeAnswer<u64>,
}

/// A little history, read as a recommender reads it.
#[derive(Clone, Debug)]
pub struct SampleRead {
    /// Whose, as in `namespace shop`.
    pub scope: String,
    /// The queries that it took.
    pub queries: Vec<Evidence>,
    /// Why not all of it could be read. A query that failed and was asked again in parts is none.
    pub failure: Option<String>,
    /// The VPAs with pods of which nothing came, though it was all read.
    pub vpas_without_history: Vec<String>,
}

/// How the cluster beside a server was read.
#[derive(Clone, Debug)]
pub enum ClusterCoverage {
    /// Nobody knows one, for this reason.
    NoCluster(String),
    /// It does not answer as it should.
    Unreadable(String),
    /// It has no VPAs, or does not know what one is.
    Empty,
    /// It was compared.
    Compared(CoverageReport, Vec<Evidence>),
    /// Its VPAs are known, but not the series to compare them with.
    Unmatched(String, Vec<Evidence>),
}

/// All that was read.
#[derive(Clone, Debug)]
pub struct ProbeResults {
    /// When.
    pub at: Time,
    /// Where the server is, without secrets.
    pub address: String,
    /// How far back history is wanted.
    pub wanted_history: Duration,
    /// What was being asked about when the time for all of it was up.
    pub stage: Stage,
    /// The time for all of it.
    pub deadline: Duration,
    /// The first question: whether it answers queries at all.
    pub first_query: Vec<Evidence>,
    /// Its build.
    pub build: ProbeAnswer<BuildInfo>,
    /// Its flags.
    pub flags: ProbeAnswer<BTreeMap<String, String>>,
    /// What it says of itself.
    pub runtime: ProbeAnswer<RuntimeInfo>,
    /// What it calls its series.
    pub schema: ProbeAnswer<Schema>,
    /// What recording rules have made of usage; not asked where it has none.
    pub recording_rules: Option<ProbeAnswer<RecordingRules>>,
    /// Containers whose throttling it knows; not asked where it has no usage.
    pub throttled: Option<ProbeAnswer<u64>>,
    /// Which of [`FAMILIES`] it has; not asked where there is no kube-state-metrics.
    pub families: Option<ProbeAnswer<BTreeSet<String>>>,
    /// How far back it goes, from the youngest moment to the oldest.
    pub depth: Vec<Depth>,
    /// A little history that was read; none where there are no series.
    pub sample_read: Option<SampleRead>,
    /// The cluster beside it.
    pub cluster_coverage: ClusterCoverage,
    /// Flags of the server as they were given, each as a shell takes it.
    pub given_flags: Vec<String>,
    /// Given flags that hold secrets.
    pub secret_flags: Vec<String>,
}

impl ProbeResults {
    /// Whether all of this was asked about.
    pub fn has_completed(&self, stage: Stage) -> bool {
        stage < self.stage
    }
}
