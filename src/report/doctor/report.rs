//! The report about a Prometheus. `--output json` prints it, and the text output is rendered from it alone.

use clap::ValueEnum;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::server_flavor::ServerFlavor;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, VariantArray};

/// The schema version. It increases when a field changes its meaning or is removed, not when a field is added.
pub const SCHEMA_VERSION: u32 = 1;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    pub(crate) schema_version: u32,
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) at: Time,
    pub(crate) server: Server,
    /// How far back history is required, in seconds.
    pub(crate) wanted_seconds: u64,
    /// How far back history goes, in seconds, up to the required time; absent if there is none.
    pub(crate) reaches_seconds: Option<u64>,
    pub(crate) findings: Vec<Finding>,
    /// The recommender's queries for history, and their cost.
    pub(crate) queries: Vec<Evidence>,
    pub(crate) cluster: Option<CoverageReport>,
    pub(crate) flags: Vec<String>,
    /// Given flags that contain secrets. They belong in files or in the environment.
    pub(crate) secrets: Vec<String>,
}

/// A server with the Prometheus HTTP API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    pub address: String,
    pub kind: ServerFlavor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    #[value(skip)]
    Ok,
    #[value(help = "Warnings and problems")]
    Warning,
    #[value(help = "Problems only")]
    Problem,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A stable identifier, independent of the message.
    pub code: String,
    pub topic: Topic,
    pub level: Level,
    /// What was found, and what to do.
    pub message: String,
    pub evidence: Vec<Evidence>,
}

/// A part of the report, with its heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, VariantArray)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    #[strum(to_string = "SERVER")]
    Server,
    #[strum(to_string = "CONTAINER SERIES")]
    Containers,
    #[strum(to_string = "POD LABELS AND TERMINATION")]
    Pods,
    /// How far back history goes, and its cost.
    #[strum(to_string = "HISTORY")]
    History,
    #[strum(to_string = "CLUSTER")]
    Cluster,
}

/// One query to the server, and its cost.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub asked: String,
    /// Start, end and step of a range query; absent for an instant query.
    pub range: Option<Range>,
    pub millis: u64,
    pub requests: u64,
    pub series: u64,
    pub points: u64,
    /// The size of the response in bytes, after decompression.
    pub bytes: u64,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    pub from: Time,
    /// The latest possible time of the last point.
    pub to: Time,
    pub step_seconds: f64,
}

/// Which pods of a cluster have series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoverageReport {
    pub address: String,
    pub vpas: usize,
    /// VPAs that were not compared, because there are too many.
    pub passed_over: usize,
    pub pods: usize,
    pub with_series: usize,
    pub without: Vec<PartlyCoveredVpa>,
}

/// A VPA with pods that have no series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartlyCoveredVpa {
    pub namespace: String,
    pub name: String,
    pub pods: usize,
    pub with_series: usize,
}

impl DoctorReport {
    pub(crate) fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}
