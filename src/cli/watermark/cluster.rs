//! The watermark controller's flags for the API server and leader election, and the namespaces to handle.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use crate::{
    cli::{
        election::LeaseTimes, go_values, parsed_flags::ParsedFlags, prometheus_auth::non_empty_path,
    },
    controllers::runtime::config::ElectionConfig,
};
use plimsoll_core::types::compat::Compat;

/// The default request timeout.
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Upstream's default for requests per second.
const UPSTREAM_QPS: f64 = 20.0;
/// Our default: enough to read the scale subresource of 1,500 targets in a period of 15 seconds.
const DEFAULT_QPS: f64 = 100.0;
/// The file with the pod's namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The ratio of burst to requests per second, as in upstream.
const BURST_FACTOR: f64 = 1.5;

/// The API server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct WatermarkClusterArgs {
    /// Path of the kubeconfig file, to run outside the cluster
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path())]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: PathBuf,
    /// Requests per second to the API server, with a burst of 1.5 times that; 0 means no limit [default: 100, 20 with
    /// --compat=upstream]
    #[arg(long, value_name = "NUMBER", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_CLIENT_QPS", hide_env = true)]
    client_qps: Option<f64>,
    /// Timeout of requests to the API server; 0 means 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_CLIENT_TIMEOUT", hide_short_help = true, hide_env = true)]
    client_timeout: Duration,
}

impl WatermarkClusterArgs {
    /// The kubeconfig file, to run outside the cluster.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        non_empty_path(&self.kubeconfig)
    }

    /// Requests per second. As in upstream's client, 0 or less means no limit.
    pub fn qps(&self, compat: Compat) -> f32 {
        let qps = self.rate(compat);
        if qps > 0.0 { qps as f32 } else { f32::INFINITY }
    }

    /// The burst of requests, at least 1: a burst of 0 would block all requests.
    pub fn burst(&self, compat: Compat) -> u32 {
        ((self.rate(compat) * BURST_FACTOR) as u32).max(1)
    }

    fn rate(&self, compat: Compat) -> f64 {
        let default = if compat == Compat::Upstream { UPSTREAM_QPS } else { DEFAULT_QPS };
        self.client_qps.unwrap_or(default)
    }

    /// The request timeout.
    pub fn timeout(&self) -> Duration {
        if self.client_timeout.is_zero() { DEFAULT_REQUEST_TIMEOUT } else { self.client_timeout }
    }
}

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaseArgs {
    /// Enables leader election; only the leader scales
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = go_values::boolean)]
    #[arg(env = "PLIMSOLL_FLAG_ENABLE_LEADER_ELECTION", hide_env = true)]
    enable_leader_election: bool,
    #[command(flatten)]
    times: LeaseTimes,
    /// Name of the Lease; the same as upstream's, so that only one of the two controllers is active
    #[arg(long, value_name = "NAME", default_value = "watermarkpodautoscaler-lock")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease [default: NAMESPACE, or that of the pod]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAMESPACE")]
    leader_elect_resource_namespace: String,
}

impl LeaseArgs {
    /// Builds the election settings. `home` is the namespace of this process, if it runs in a cluster.
    pub fn election(
        &self,
        typed: &ParsedFlags,
        home: Option<String>,
    ) -> Result<ElectionConfig, &'static str> {
        let configured =
            Some(self.leader_elect_resource_namespace.clone()).filter(|name| !name.is_empty());
        let on = self.enable_leader_election;
        let election = ElectionConfig {
            enabled: on,
            explicitly_disabled: !on && typed.is_set("enable_leader_election"),
            lease_duration: self.times.leader_elect_lease_duration,
            renew_deadline: self.times.leader_elect_renew_deadline,
            retry_period: self.times.leader_elect_retry_period,
            name: self.leader_elect_resource_name.clone(),
            namespace: configured.or(home).unwrap_or_default(),
        };
        if on {
            election.validate()?;
            if election.namespace.is_empty() {
                // With a guessed namespace another replica could use a different Lease, and both would be active.
                return Err(
                    "the namespace of the Lease is unknown outside of a cluster: set --leader-elect-resource-namespace, \
                     or --enable-leader-election=false",
                );
            }
        }
        Ok(election)
    }
}

/// Reads the namespace of the pod from its service account.
pub fn pod_namespace() -> Option<String> {
    let text = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Parses namespaces separated by commas, with a warning about invalid names.
pub fn namespaces(text: &str) -> (Vec<String>, Option<String>) {
    let names: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let is_invalid = !text.is_empty() && names.join(",") != text;
    let shown = if names.is_empty() { "all namespaces".to_owned() } else { names.join(", ") };
    let warning = is_invalid
        .then(|| format!("WATCH_NAMESPACE contains spaces or empty names: watching {shown}"));
    (names, warning)
}
