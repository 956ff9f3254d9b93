//! How the watermark controller reaches the cluster, which namespaces it looks after, and who leads.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use crate::{
    cli::{
        election::LeaseTimes, go_values, parsed_flags::ParsedFlags, prometheus_auth::non_empty_path,
    },
    controllers::runtime::config::ElectionConfig,
};
use plimsoll_core::types::compat::Compat;

/// How long a request may take where nobody says so.
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests a second where nobody says so, as upstream has it.
const UPSTREAM_QPS: f64 = 20.0;
/// The same for ours: 1,500 targets of kinds that have to be asked for their scale keep a period of 15 seconds by it.
const DEFAULT_QPS: f64 = 100.0;
/// Where a pod finds the name of its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// More at once than a second, as upstream has it.
const BURST_FACTOR: f64 = 1.5;

/// The API server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct WatermarkClusterArgs {
    /// File that says how to reach the cluster from outside of it
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path())]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: PathBuf,
    /// Requests a second to the API server, and half as many more at once; 0 is no limit [default: 100, 20 with
    /// --compat=upstream]
    #[arg(long, value_name = "NUMBER", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_CLIENT_QPS", hide_env = true)]
    client_qps: Option<f64>,
    /// How long a request to the API server may take; 0 is 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_CLIENT_TIMEOUT", hide_short_help = true, hide_env = true)]
    client_timeout: Duration,
}

impl WatermarkClusterArgs {
    /// How to reach the cluster from outside of it.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        non_empty_path(&self.kubeconfig)
    }

    /// Requests a second; what is not above 0 is no limit, as upstream's client has it.
    pub fn qps(&self, compat: Compat) -> f32 {
        let qps = self.rate(compat);
        if qps > 0.0 { qps as f32 } else { f32::INFINITY }
    }

    /// Requests at once. One at least: none would let nothing through, ever.
    pub fn burst(&self, compat: Compat) -> u32 {
        ((self.rate(compat) * BURST_FACTOR) as u32).max(1)
    }

    fn rate(&self, compat: Compat) -> f64 {
        let usual = if compat == Compat::Upstream { UPSTREAM_QPS } else { DEFAULT_QPS };
        self.client_qps.unwrap_or(usual)
    }

    /// How long a request may take.
    pub fn timeout(&self) -> Duration {
        if self.client_timeout.is_zero() { DEFAULT_REQUEST_TIMEOUT } else { self.client_timeout }
    }
}

/// Who leads, of several replicas.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaseArgs {
    /// Acts only as the leader
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = go_values::boolean)]
    #[arg(env = "PLIMSOLL_FLAG_ENABLE_LEADER_ELECTION", hide_env = true)]
    enable_leader_election: bool,
    #[command(flatten)]
    times: LeaseTimes,
    /// Name of the Lease; upstream's own, so that at most one of the two acts
    #[arg(long, value_name = "NAME", default_value = "watermarkpodautoscaler-lock")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease [default: NAMESPACE, else that of the pod]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAMESPACE")]
    leader_elect_resource_namespace: String,
}

impl LeaseArgs {
    /// The election that was asked for. `home` is the namespace that this process is in, where it is in one.
    pub fn election(
        &self,
        typed: &ParsedFlags,
        home: Option<String>,
    ) -> Result<ElectionConfig, &'static str> {
        let said = Some(self.leader_elect_resource_namespace.clone()).filter(|it| !it.is_empty());
        let on = self.enable_leader_election;
        let election = ElectionConfig {
            enabled: on,
            explicitly_disabled: !on && typed.is_set("enable_leader_election"),
            lease_duration: self.times.leader_elect_lease_duration,
            renew_deadline: self.times.leader_elect_renew_deadline,
            retry_period: self.times.leader_elect_retry_period,
            name: self.leader_elect_resource_name.clone(),
            namespace: said.or(home).unwrap_or_default(),
        };
        if on {
            election.validate()?;
            if election.namespace.is_empty() {
                // Any guess could be one where nobody else looks, and then two would act.
                return Err(
                    "outside of a cluster nobody knows where the Lease is: give --leader-elect-resource-namespace, \
                     or --enable-leader-election=false",
                );
            }
        }
        Ok(election)
    }
}

/// The namespace that a pod is in, as it is told.
pub fn pod_namespace() -> Option<String> {
    let told = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
    Some(told.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Namespaces parted by commas, and what is odd about them.
pub fn namespaces(text: &str) -> (Vec<String>, Option<String>) {
    let names: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let is_odd = !text.is_empty() && names.join(",") != text;
    let shown = if names.is_empty() { "all of them".to_owned() } else { names.join(", ") };
    let odd = is_odd.then(|| {
        format!("WATCH_NAMESPACE has spaces or empty names, which no namespace has: looked after are {shown}")
    });
    (names, odd)
}
