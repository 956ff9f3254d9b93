//! The report about a Prometheus. `--output json` prints it, and the text output is rendered from it alone.

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use super::server_flavor::ServerFlavor;

/// The schema version. It increases when a field changes its meaning or is removed, not when a field is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The result of `plimsoll doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always `doctor-prometheus`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// When the server was queried.
    pub at: Time,
    /// The server.
    pub server: Server,
    /// How far back history is required, in seconds.
    pub wanted_seconds: u64,
    /// How far back history goes, in seconds, up to the required time; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_seconds: Option<u64>,
    /// The results of all checks, in order.
    pub findings: Vec<Finding>,
    /// The recommender's queries for history, and their cost.
    pub queries: Vec<Evidence>,
    /// The comparison with the cluster, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<CoverageReport>,
    /// The suggested flags, quoted for a shell.
    pub flags: Vec<String>,
    /// Given flags that contain secrets. They belong in files or in the environment.
    pub secrets: Vec<String>,
}

/// A server with the Prometheus HTTP API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The server's URL.
    pub address: String,
    /// The product.
    pub kind: ServerFlavor,
    /// The release, if the server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// It works, but could be improved.
    Warning,
    /// History will be missing or incorrect.
    Problem,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A stable identifier, independent of the message.
    pub code: String,
    /// The section of the report.
    pub topic: Topic,
    /// The severity.
    pub level: Level,
    /// What was found, and what to do.
    pub message: String,
    /// The queries that led to the finding.
    pub evidence: Vec<Evidence>,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    /// The server itself.
    Server,
    /// Series of containers.
    Containers,
    /// Labels and termination of pods, from kube-state-metrics.
    Pods,
    /// How far back history goes, and its cost.
    History,
    /// The comparison with the cluster.
    Cluster,
}

impl Topic {
    /// All topics, in the order of the report.
    pub const ALL: [Self; 5] =
        [Self::Server, Self::Containers, Self::Pods, Self::History, Self::Cluster];

    /// The heading in the text output.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Server => "SERVER",
            Self::Containers => "CONTAINER SERIES",
            Self::Pods => "POD LABELS AND TERMINATION",
            Self::History => "HISTORY",
            Self::Cluster => "CLUSTER",
        }
    }
}

/// One query to the server, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The purpose of the query.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The query, or the requested path.
    pub asked: String,
    /// Start, end and step of a range query; absent for an instant query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// The response time in milliseconds.
    pub millis: u64,
    /// The number of requests.
    pub requests: u64,
    /// The number of series in the response.
    pub series: u64,
    /// The number of points in the response.
    pub points: u64,
    /// The size of the response in bytes, after decompression.
    pub bytes: u64,
    /// Why the query failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The time range of a range query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The time of the first point.
    pub from: Time,
    /// The latest possible time of the last point.
    pub to: Time,
    /// The time between two points, in seconds.
    pub step_seconds: f64,
}

/// Which pods of a cluster have series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoverageReport {
    /// The URL of the API server.
    pub address: String,
    /// VPAs that were compared.
    pub vpas: usize,
    /// VPAs that were not compared, because there are too many.
    pub passed_over: usize,
    /// Pods of the compared VPAs.
    pub pods: usize,
    /// Those of the pods that have series.
    pub with_series: usize,
    /// VPAs with pods that have no series.
    pub without: Vec<PartlyCoveredVpa>,
}

/// A VPA with pods that have no series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartlyCoveredVpa {
    /// Namespace of the VPA.
    pub namespace: String,
    /// Name of the VPA.
    pub name: String,
    /// Number of its pods.
    pub pods: usize,
    /// Number of its pods that have series.
    pub with_series: usize,
}

impl DoctorReport {
    /// Returns the highest severity of all findings.
    pub fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}
