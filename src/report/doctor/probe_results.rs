//! The results of the probes: all inputs of a diagnosis, and the product behind the server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::schema::{RecordingRules, Schema};
use serde::{Deserialize, Serialize};

use super::report::{CoverageReport, Evidence};

/// Metric families of kube-state-metrics that improve history.
pub const KUBE_STATE_METRICS_FAMILIES: [&str; 4] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_status_last_terminated_reason",
];

#[derive(Clone, Debug)]
pub struct ProbeAnswer<T> {
    pub evidence: Vec<Evidence>,
    pub answer: Result<T, String>,
}

impl<T> ProbeAnswer<T> {
    pub fn not_yet() -> Self {
        Self { evidence: Vec::new(), answer: Err("not probed".to_owned()) }
    }
}

/// The stages of a diagnosis, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
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

#[derive(Clone, Debug)]
pub enum ClusterCoverage {
    NoCluster(String),
    /// The cluster could not be read, for this reason.
    Unreadable(String),
    /// The cluster has no VPAs, or no VPA CustomResourceDefinition.
    Empty,
    Compared(CoverageReport, Vec<Evidence>),
    /// VPAs were read, but the series to compare them with were not.
    Unmatched(String, Vec<Evidence>),
}

#[derive(Clone, Debug)]
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
    pub fn new(at: Time, address: String, wanted_history: Duration, deadline: Duration) -> Self {
        Self {
            at,
            address,
            wanted_history,
            stage: Stage::Cluster,
            deadline,
            first_query: Vec::new(),
            build: ProbeAnswer::not_yet(),
            flags: ProbeAnswer::not_yet(),
            runtime: ProbeAnswer::not_yet(),
            schema: ProbeAnswer::not_yet(),
            recording_rules: None,
            throttled: None,
            families: None,
            depth: Vec::new(),
            sample_read: None,
            cluster_coverage: ClusterCoverage::Empty,
            given_flags: Vec::new(),
            secret_flags: Vec::new(),
        }
    }

    pub fn has_completed(&self, stage: Stage) -> bool {
        stage < self.stage
    }
}

/// A product with the Prometheus HTTP API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerFlavor {
    Prometheus,
    Thanos,
    /// Grafana Mimir, or Grafana's own service.
    Mimir,
    Cortex,
    VictoriaMetrics,
    Amazon,
    Google,
    Azure,
    /// A server that answers but does not identify itself.
    Unknown,
}

impl ServerFlavor {
    pub fn name(self) -> &'static str {
        match self {
            Self::Prometheus => "Prometheus",
            Self::Thanos => "Thanos",
            Self::Mimir => "Grafana Mimir",
            Self::Cortex => "Cortex",
            Self::VictoriaMetrics => "VictoriaMetrics",
            Self::Amazon => "Amazon Managed Service for Prometheus",
            Self::Google => "Google Cloud Managed Service for Prometheus",
            Self::Azure => "Azure Monitor managed service for Prometheus",
            Self::Unknown => "a server that does not identify itself",
        }
    }

    /// Whether the product can deduplicate replicated series itself.
    pub fn removes_replicas(self) -> bool {
        matches!(self, Self::Thanos | Self::Mimir | Self::Cortex | Self::Amazon)
    }
}

/// A server's build information. Each product reports only some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildInfo {
    /// The product's name, as Mimir and Cortex report it.
    pub application: Option<String>,
    pub version: Option<String>,
    pub revision: Option<String>,
    pub go_version: Option<String>,
}

/// Detects the product and its release.
pub fn detect_flavor(
    address: &str,
    build: Option<&BuildInfo>,
    flags: Option<&BTreeMap<String, String>>,
) -> (ServerFlavor, Option<String>) {
    let version = build.and_then(|build| build.version.clone()).filter(|text| !text.is_empty());
    if let Some(kind) = flavor_of_address(address) {
        // A managed service reports the release of its backend, which is not the service's version.
        return (kind, None);
    }
    let Some(build) = build else { return (ServerFlavor::Unknown, None) };
    let application = build.application.as_deref().unwrap_or_default().to_ascii_lowercase();
    if application.contains("mimir") || application.contains("enterprise metrics") {
        return (ServerFlavor::Mimir, version);
    }
    if application.contains("cortex") {
        return (ServerFlavor::Cortex, version);
    }
    let has_text = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if !has_text(&build.revision) && !has_text(&build.go_version) {
        // VictoriaMetrics reports an old release of Prometheus, or nothing, for Grafana's sake.
        return (ServerFlavor::VictoriaMetrics, None);
    }
    let has = |name: &str| flags.is_some_and(|flags| flags.keys().any(|flag| flag == name));
    if has("query.replica-label")
        || version.as_deref().is_some_and(|version| version.starts_with("0."))
    {
        return (ServerFlavor::Thanos, version);
    }
    (ServerFlavor::Prometheus, version)
}

fn flavor_of_address(address: &str) -> Option<ServerFlavor> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split(['/', ':', '?']).next().unwrap_or_default().to_ascii_lowercase();
    let ends = |end: &str| host.ends_with(end);
    if host.starts_with("aps-workspaces") && (ends(".amazonaws.com") || ends(".amazonaws.com.cn")) {
        Some(ServerFlavor::Amazon)
    } else if host == "monitoring.googleapis.com" {
        Some(ServerFlavor::Google)
    } else if ends(".prometheus.monitor.azure.com") {
        Some(ServerFlavor::Azure)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_flavor_is_detected_from_build_info_or_address() {
        let flags =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let thanos: BTreeMap<_, _> = flags(&["query.replica-label", "grpc-address"]);
        let plain: BTreeMap<_, _> = flags(&["storage.tsdb.retention.time"]);
        let local = "http://localhost:9090";
        for (address, build, flags, kind, version) in [
            (
                local,
                r#"{"version":"3.15.0","revision":"abc","branch":"HEAD","goVersion":"go1.26"}"#,
                Some(&plain),
                ServerFlavor::Prometheus,
                Some("3.15.0"),
            ),
            (
                local,
                r#"{"version":"0.37.2","revision":"abc","goVersion":"go1.23"}"#,
                None,
                ServerFlavor::Thanos,
                Some("0.37.2"),
            ),
            (
                local,
                r#"{"version":"1.0.0","revision":"abc","goVersion":"go1.26"}"#,
                Some(&thanos),
                ServerFlavor::Thanos,
                Some("1.0.0"),
            ),
            (
                local,
                r#"{"application":"Grafana Mimir","version":"2.15.0","goVersion":"go1.23"}"#,
                None,
                ServerFlavor::Mimir,
                Some("2.15.0"),
            ),
            (local, r#"{"version":"2.24.0"}"#, None, ServerFlavor::VictoriaMetrics, None),
            (local, "{}", None, ServerFlavor::VictoriaMetrics, None),
            (
                "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1",
                "{}",
                None,
                ServerFlavor::Amazon,
                None,
            ),
            (
                "https://monitoring.googleapis.com/v1/projects/p/location/global/prometheus",
                "{}",
                None,
                ServerFlavor::Google,
                None,
            ),
            ("https://x-1.eu.prometheus.monitor.azure.com", "{}", None, ServerFlavor::Azure, None),
        ] {
            let build: BuildInfo = serde_json::from_str(build).expect("JSON");
            let found = detect_flavor(address, Some(&build), flags);
            assert_eq!(found, (kind, version.map(ToOwned::to_owned)), "{address} {build:?}");
        }
        assert_eq!(detect_flavor("http://x", None, None), (ServerFlavor::Unknown, None));
    }
}
