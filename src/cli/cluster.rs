//! The flags for the API server and namespaces, with upstream's names.

use std::path::PathBuf;

use clap::Args;

use super::{Exit, go_values, klog::LogArgs, output::CliError, prometheus_auth::non_empty_path};
use crate::controllers::runtime::config::{Address, ProcessConfig};
use plimsoll_core::recommender::NamespaceScope;

/// The API server and the namespaces to handle.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Path of the kubeconfig file, to run outside the cluster
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = go_values::path())]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: PathBuf,
    /// Requests per second to the API server; 0 means 5, a negative number means no limit
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_KUBE_API_QPS", hide_short_help = true, hide_env = true)]
    kube_api_qps: f64,
    /// Burst of requests to the API server; 0 means 10
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_KUBE_API_BURST", hide_short_help = true, hide_env = true)]
    kube_api_burst: f64,
    /// Accepted, without effect: there is no pprof
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_PROFILING", hide_short_help = true, hide_env = true)]
    profiling: bool,
    /// Handles only this namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_VPA_OBJECT_NAMESPACE", hide_env = true)]
    vpa_object_namespace: String,
    /// Ignores these namespaces, separated by commas
    #[arg(long, value_name = "NAMESPACES", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_IGNORED_VPA_OBJECT_NAMESPACES", hide_env = true)]
    ignored_vpa_object_namespaces: String,
}

impl ClusterArgs {
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

    /// The namespaces to handle. As in upstream, spaces in names are not trimmed.
    pub fn scope(&self) -> Result<NamespaceScope, CliError> {
        let ignored = self.ignored_vpa_object_namespaces.split(',');
        let scope = NamespaceScope {
            only: Some(self.vpa_object_namespace.clone()).filter(|name| !name.is_empty()),
            ignored: ignored.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect(),
            ..NamespaceScope::default()
        };
        if scope.only.is_some() && !scope.ignored.is_empty() {
            return Err(CliError::new(
                Exit::Findings,
                "--vpa-object-namespace and --ignored-vpa-object-namespaces are mutually exclusive: set one of them",
            ));
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
