//! The product behind a server with the Prometheus HTTP API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A product with the Prometheus HTTP API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerFlavor {
    Prometheus,
    /// Thanos Query, or its query frontend.
    Thanos,
    /// Grafana Mimir, or Grafana's own service.
    Mimir,
    Cortex,
    /// VictoriaMetrics, single or cluster.
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
    /// The release of Go that it is built with.
    pub go_version: Option<String>,
}

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
