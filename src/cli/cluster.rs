//! The flags for the API server, for namespaces and for leader election, with upstream's names. Each role defines the flag for
//! the Lease name itself.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use plimsoll_core::{recommender::NamespaceScope, types::compat::Compat};

use super::{
    go_values, klog::LogArgs, output::CliError, parsed_flags::NoEffect,
    prometheus_auth::non_empty_path,
};
use crate::controllers::runtime::config::{Address, ElectionConfig, ProcessConfig};

/// The API server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ApiServerArgs {
    /// Path of the kubeconfig file, to run outside the cluster
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    kubeconfig: PathBuf,
    /// Requests per second to the API server; 0 means 5, a negative number means no limit
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = go_values::number)]
    #[arg(hide_short_help = true)]
    kube_api_qps: f64,
    /// Burst of requests to the API server; 0 means 10
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = go_values::number)]
    #[arg(hide_short_help = true)]
    kube_api_burst: f64,
    /// Accepted, without effect: there is no pprof
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    profiling: NoEffect,
}

/// The API server and the namespaces to handle.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    #[command(flatten)]
    pub server: ApiServerArgs,
    /// Handles only this namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "")]
    vpa_object_namespace: String,
    /// Ignores these namespaces, separated by commas
    #[arg(long, value_name = "NAMESPACES", default_value = "")]
    ignored_vpa_object_namespaces: String,
}

impl ApiServerArgs {
    /// The settings of a process that serves metrics at this address. Rates of 0 and below mean the same as in
    /// upstream's client.
    pub fn process(
        &self,
        address: &Address,
        log: &LogArgs,
        warnings: Vec<String>,
    ) -> ProcessConfig {
        ProcessConfig {
            addresses: vec![address.clone()],
            kubeconfig: non_empty_path(&self.kubeconfig),
            qps: match self.kube_api_qps {
                qps if qps < 0.0 => f32::INFINITY,
                0.0 => 5.0,
                qps => qps as f32,
            },
            burst: match self.kube_api_burst.max(0.0) as u32 {
                0 => 10,
                burst => burst,
            },
            log: log.log(),
            warnings,
        }
    }
}

impl ClusterArgs {
    /// The namespaces to handle. As in upstream, spaces in names are not trimmed.
    pub fn scope(&self) -> Result<NamespaceScope, CliError> {
        let ignored = self.ignored_vpa_object_namespaces.split(',');
        let scope = NamespaceScope {
            only: Some(self.vpa_object_namespace.clone()).filter(|name| !name.is_empty()),
            ignored: ignored.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect(),
            ..NamespaceScope::default()
        };
        if scope.only.is_some() && !scope.ignored.is_empty() {
            return Err(
                "--vpa-object-namespace and --ignored-vpa-object-namespaces are mutually exclusive: set one of them"
                    .into(),
            );
        }
        Ok(scope)
    }

    /// A warning about namespaces that cannot be ignored.
    pub fn ignored_namespaces_warning(scope: &NamespaceScope) -> Option<String> {
        scope.ignored.iter().any(|name| name.trim() != name).then(|| {
            "--ignored-vpa-object-namespaces contains names with spaces, which match no namespace: remove the spaces"
                .to_owned()
        })
    }
}

/// The timing of leader election.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Leader election")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct LeaseTimes {
    /// Duration of the lease without renewal
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew the lease before it gives up
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    leader_elect_renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    leader_elect_retry_period: Duration,
}

impl LeaseTimes {
    /// Leader election with the Lease of this name.
    pub fn election(
        &self,
        enabled: bool,
        name: &str,
        namespace: String,
    ) -> Result<ElectionConfig, &'static str> {
        let election = ElectionConfig {
            enabled,
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
            name: name.to_owned(),
            namespace,
        };
        if enabled {
            election.validate()?;
        }
        Ok(election)
    }
}

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Enables leader election; only the leader writes [default: true, false with --compat=upstream]
    #[arg(long, action = ArgAction::Set, value_name = "BOOL")]
    leader_elect: Option<bool>,
    #[command(flatten)]
    times: LeaseTimes,
    /// Kind of the lock object; only `leases` is supported
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    leader_elect_resource_lock: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", hide_short_help = true)]
    leader_elect_resource_namespace: String,
}

impl ElectionArgs {
    pub fn election(&self, name: &str, compat: Compat) -> Result<ElectionConfig, CliError> {
        let enabled = self.leader_elect.unwrap_or(compat == Compat::Plimsoll);
        let namespace = self.leader_elect_resource_namespace.clone();
        Ok(self.times.election(enabled, name, namespace)?)
    }
}
