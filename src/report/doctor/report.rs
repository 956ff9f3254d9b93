//! What there is to say about a Prometheus, as data: `--output json` prints it, and the text is made from nothing
//! else.

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use super::server_flavor::ServerFlavor;

/// Raised whenever a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// A server, and what it is good for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `doctor-prometheus`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// When it was asked.
    pub at: Time,
    /// The server.
    pub server: Server,
    /// How far back history is wanted, in seconds.
    pub wanted_seconds: u64,
    /// How far back it reaches as far as was looked, in seconds; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_seconds: Option<u64>,
    /// Everything that was checked, in order.
    pub findings: Vec<Finding>,
    /// The queries for history as the recommender would ask them, and what they cost.
    pub queries: Vec<Evidence>,
    /// The cluster beside it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<CoverageReport>,
    /// The flags to use, each as a shell takes it.
    pub flags: Vec<String>,
    /// Flags that were given and hold secrets: they belong into files or the environment.
    pub secrets: Vec<String>,
}

/// A server that speaks Prometheus' API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Where it is.
    pub address: String,
    /// What it is.
    pub kind: ServerFlavor,
    /// Which release, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and could be better.
    Warning,
    /// History will be missing or wrong.
    Problem,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stays the same whatever the words.
    pub code: String,
    /// What it is about.
    pub topic: Topic,
    /// How good it is.
    pub level: Level,
    /// What was found, and what to do.
    pub message: String,
    /// What it was found by.
    pub evidence: Vec<Evidence>,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    /// The server itself.
    Server,
    /// Series of containers.
    Containers,
    /// Labels and ends of pods: kube-state-metrics.
    Pods,
    /// How far back it goes.
    History,
    /// The cluster beside it.
    Cluster,
}

impl Topic {
    /// In the order in which they are told.
    pub const ALL: [Self; 5] =
        [Self::Server, Self::Containers, Self::Pods, Self::History, Self::Cluster];

    /// As a heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Server => "SERVER",
            Self::Containers => "SERIES OF CONTAINERS",
            Self::Pods => "LABELS AND ENDS OF PODS",
            Self::History => "HISTORY",
            Self::Cluster => "CLUSTER",
        }
    }
}

/// One question to the server, and what the answer took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The query, or the path that was read.
    pub asked: String,
    /// The moments that a range was asked for: first, last and step; a query for one moment has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// How long the answer took, in milliseconds.
    pub millis: u64,
    /// Requests that it took.
    pub requests: u64,
    /// Series in the answer.
    pub series: u64,
    /// Points in the answer.
    pub points: u64,
    /// Bytes of the answer, after decompression.
    pub bytes: u64,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The moments of a range query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The first.
    pub from: Time,
    /// The last at most.
    pub to: Time,
    /// Between two, in seconds.
    pub step_seconds: f64,
}

/// A cluster beside its series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoverageReport {
    /// The cluster.
    pub address: String,
    /// VPAs that were compared.
    pub vpas: usize,
    /// VPAs that were not, because there are so many.
    pub passed_over: usize,
    /// Pods of them.
    pub pods: usize,
    /// Pods of them that have series.
    pub with_series: usize,
    /// VPAs some of whose pods have none.
    pub without: Vec<PartlyCoveredVpa>,
}

/// A VPA some of whose pods have no series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartlyCoveredVpa {
    /// Namespace of the VPA.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its pods.
    pub pods: usize,
    /// Those that have series.
    pub with_series: usize,
}

impl DoctorReport {
    /// The worst level of all findings.
    pub fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}
