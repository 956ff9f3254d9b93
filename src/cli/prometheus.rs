//! The flags of history in a Prometheus, by upstream's names. They are read, so that manifests that have them
//! start, and kept for the storage that will use them.

use std::{fs, path::PathBuf};

use clap::Args;
use plimsoll_storage::prometheus::door::Secret;

use super::{Exit, output::Problem, value};
use crate::run::prometheus::{Login, PrometheusConfig};

/// Flags that hold secrets.
pub const SECRETS: [&str; 2] = ["password", "prometheus_bearer_token"];

/// Where history in a Prometheus is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "History in a Prometheus (not used yet)")]
pub struct PrometheusArgs {
    /// URL of the Prometheus
    #[arg(long, value_name = "URL", default_value = "http://prometheus.monitoring.svc")]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_ADDRESS", hide_short_help = true, hide_env = true)]
    prometheus_address: String,
    /// Takes any certificate of it
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_INSECURE", hide_short_help = true, hide_env = true)]
    prometheus_insecure: bool,
    /// Job that scrapes the containers; empty for any
    #[arg(long, value_name = "NAME", default_value = "kubernetes-cadvisor")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_CADVISOR_JOB_NAME")]
    prometheus_cadvisor_job_name: String,
    /// How far to look back
    #[arg(long, value_name = "TIME", default_value = "8d")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_LENGTH", hide_short_help = true, hide_env = true)]
    history_length: String,
    /// Step of the queries
    #[arg(long, value_name = "TIME", default_value = "1h")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_RESOLUTION", hide_short_help = true, hide_env = true)]
    history_resolution: String,
    /// Counter of CPU seconds
    #[arg(long, value_name = "METRIC", default_value = "container_cpu_usage_seconds_total")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_CPU_METRIC", hide_short_help = true, hide_env = true)]
    history_cpu_metric: String,
    /// Gauge of memory
    #[arg(long, value_name = "METRIC", default_value = "container_memory_working_set_bytes")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_MEMORY_METRIC", hide_short_help = true, hide_env = true)]
    history_memory_metric: String,
    /// How long a query may take
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERY_TIMEOUT", hide_short_help = true, hide_env = true)]
    prometheus_query_timeout: String,
    /// What stands before the labels of a pod
    #[arg(long, value_name = "PREFIX", default_value = "pod_label_")]
    #[arg(env = "PLIMSOLL_FLAG_POD_LABEL_PREFIX", hide_short_help = true, hide_env = true)]
    pod_label_prefix: String,
    /// Query that gives labels of pods
    #[arg(long, value_name = "QUERY", default_value = "up{job=\"kubernetes-pods\"}")]
    #[arg(env = "PLIMSOLL_FLAG_METRIC_FOR_POD_LABELS", hide_short_help = true, hide_env = true)]
    metric_for_pod_labels: String,
    /// Label with the namespace beside labels of pods
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_namespace")]
    #[arg(env = "PLIMSOLL_FLAG_POD_NAMESPACE_LABEL", hide_short_help = true, hide_env = true)]
    pod_namespace_label: String,
    /// Label with the pod's name beside labels of pods
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_pod_name")]
    #[arg(env = "PLIMSOLL_FLAG_POD_NAME_LABEL", hide_short_help = true, hide_env = true)]
    pod_name_label: String,
    /// Label with the namespace on series of containers
    #[arg(long, value_name = "LABEL", default_value = "namespace")]
    #[arg(
        env = "PLIMSOLL_FLAG_CONTAINER_NAMESPACE_LABEL",
        hide_short_help = true,
        hide_env = true
    )]
    container_namespace_label: String,
    /// Label with the pod's name on series of containers
    #[arg(long, value_name = "LABEL", default_value = "pod_name")]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_POD_NAME_LABEL", hide_short_help = true, hide_env = true)]
    container_pod_name_label: String,
    /// Label with the container's name on series of containers and on external metrics
    #[arg(long, value_name = "LABEL", default_value = "name")]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_NAME_LABEL", hide_short_help = true, hide_env = true)]
    container_name_label: String,
    /// Name to sign in with; PROMETHEUS_USERNAME does the same
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_USERNAME", hide_short_help = true, hide_env = true)]
    username: String,
    /// Password to sign in with: rather set PROMETHEUS_PASSWORD
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PASSWORD", hide_short_help = true, hide_env = true)]
    password: Secret,
    /// Token to sign in with: rather name a file
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_BEARER_TOKEN", hide_short_help = true, hide_env = true)]
    prometheus_bearer_token: Secret,
    /// File with the token to sign in with, read once
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(value_parser = value::path())]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_BEARER_TOKEN_FILE")]
    prometheus_bearer_token_file: PathBuf,
}

impl PrometheusArgs {
    /// The label with a container's name, which external metrics have too.
    pub fn container_label(&self) -> String {
        self.container_name_label.clone()
    }

    /// The Prometheus that was described. `variable` looks into the environment.
    pub fn prometheus(
        &self,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusConfig, Problem> {
        let own = self.clone();
        Ok(PrometheusConfig {
            login: self.login(variable)?,
            address: own.prometheus_address,
            insecure: own.prometheus_insecure,
            cadvisor_job: own.prometheus_cadvisor_job_name,
            length: own.history_length,
            resolution: own.history_resolution,
            query_timeout: own.prometheus_query_timeout,
            cpu_metric: own.history_cpu_metric,
            memory_metric: own.history_memory_metric,
            pod_labels_query: own.metric_for_pod_labels,
            pod_label_prefix: own.pod_label_prefix,
            pod_namespace_label: own.pod_namespace_label,
            pod_name_label: own.pod_name_label,
            container_namespace_label: own.container_namespace_label,
            container_pod_name_label: own.container_pod_name_label,
            container_name_label: own.container_name_label,
        })
    }

    /// A token goes before a name with its password, and what was typed before the environment: as upstream.
    fn login(&self, variable: impl Fn(&str) -> String) -> Result<Login, Problem> {
        let file = &self.prometheus_bearer_token_file;
        let mut token = self.prometheus_bearer_token.clone();
        if !file.as_os_str().is_empty() {
            if !token.is_empty() && !self.username.is_empty() {
                return Err(Problem::new(
                    Exit::Findings,
                    "--prometheus-bearer-token, --prometheus-bearer-token-file and --username exclude each other: \
                     give one of them",
                ));
            }
            let text = fs::read_to_string(file).map_err(|error| {
                let place = file.display();
                Problem::new(
                    Exit::Findings,
                    format!("--prometheus-bearer-token-file: {place}: {error}"),
                )
            })?;
            token = text.trim().into();
        }
        let basic = |user: String, password: Secret| {
            (!user.is_empty() && !password.is_empty()).then_some(Login::Basic { user, password })
        };
        Ok(if token.is_empty() {
            basic(self.username.clone(), self.password.clone())
                .or_else(|| {
                    basic(variable("PROMETHEUS_USERNAME"), variable("PROMETHEUS_PASSWORD").into())
                })
                .unwrap_or_default()
        } else {
            Login::Bearer(token)
        })
    }
}
