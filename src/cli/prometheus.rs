//! The flags of history in a Prometheus: upstream's by upstream's names, and how much may be asked of it.

use std::time::Duration;

use clap::Args;
use plimsoll_storage::prometheus::{
    detect::SchemaOverrides, history::PodLabelQuery, promql::Query,
};

use super::{
    Exit, go_values, output::CliError, parsed_flags::ParsedFlags,
    prometheus_auth::PrometheusConnectionArgs,
};
use crate::controllers::runtime::prometheus::PrometheusConfig;
use plimsoll_core::types::quantity::Quantity;

/// Where history in a Prometheus is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "History in a Prometheus")]
pub struct PrometheusArgs {
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
    /// With --storage=prometheus: writes checkpoints too, and goes on from them while it is away
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_CHECKPOINT_FALLBACK", hide_short_help = true, hide_env = true)]
    checkpoint_fallback: bool,
    /// How many queries may be under way at once
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERIES", hide_short_help = true, hide_env = true)]
    prometheus_queries: u32,
    /// Memory for history that waits to be taken in
    #[arg(long, value_name = "SIZE", default_value = "24Mi")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_MEMORY", hide_short_help = true, hide_env = true)]
    history_memory: Quantity,
    /// Job that scrapes the containers; empty for any [if not set: found out]
    #[arg(long, value_name = "NAME", default_value = "kubernetes-cadvisor")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_CADVISOR_JOB_NAME")]
    prometheus_cadvisor_job_name: String,
    /// How far to look back
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = go_values::prometheus_duration)]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_LENGTH", hide_short_help = true, hide_env = true)]
    history_length: Duration,
    /// Step of the queries [if not set, with --history-weighting=duration: 1m for CPU, 5m for memory]
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = go_values::prometheus_duration)]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_RESOLUTION", hide_short_help = true, hide_env = true)]
    history_resolution: Duration,
    /// Counter of CPU seconds
    #[arg(long, value_name = "METRIC", default_value = "container_cpu_usage_seconds_total")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_CPU_METRIC", hide_short_help = true, hide_env = true)]
    history_cpu_metric: String,
    /// Gauge of memory
    #[arg(long, value_name = "METRIC", default_value = "container_memory_working_set_bytes")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_MEMORY_METRIC", hide_short_help = true, hide_env = true)]
    history_memory_metric: String,
    /// How long a query may take
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::positive_duration)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERY_TIMEOUT", hide_short_help = true, hide_env = true)]
    prometheus_query_timeout: Duration,
    /// What names of pods' labels begin with in --metric-for-pod-labels [if not set: found out]
    #[arg(long, value_name = "PREFIX", default_value = "pod_label_")]
    #[arg(env = "PLIMSOLL_FLAG_POD_LABEL_PREFIX", hide_short_help = true, hide_env = true)]
    pod_label_prefix: String,
    /// Query with the labels of pods, to tell VPAs' pods of the past by [if not set: owners tell]
    #[arg(long, value_name = "QUERY", default_value = "up{job=\"kubernetes-pods\"}")]
    #[arg(env = "PLIMSOLL_FLAG_METRIC_FOR_POD_LABELS", hide_short_help = true, hide_env = true)]
    metric_for_pod_labels: String,
    /// Label with the namespace in --metric-for-pod-labels [if not set: found out]
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_namespace")]
    #[arg(env = "PLIMSOLL_FLAG_POD_NAMESPACE_LABEL", hide_short_help = true, hide_env = true)]
    pod_namespace_label: String,
    /// Label with the pod's name in --metric-for-pod-labels [if not set: found out]
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_pod_name")]
    #[arg(env = "PLIMSOLL_FLAG_POD_NAME_LABEL", hide_short_help = true, hide_env = true)]
    pod_name_label: String,
    /// Label with the namespace on series of containers [if not set: found out]
    #[arg(long, value_name = "LABEL", default_value = "namespace")]
    #[arg(
        env = "PLIMSOLL_FLAG_CONTAINER_NAMESPACE_LABEL",
        hide_short_help = true,
        hide_env = true
    )]
    container_namespace_label: String,
    /// Label with the pod's name on series of containers [if not set: found out]
    #[arg(long, value_name = "LABEL", default_value = "pod_name")]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_POD_NAME_LABEL", hide_short_help = true, hide_env = true)]
    container_pod_name_label: String,
    /// Label with the container's name on series of containers [if not set: found out] and on external metrics
    #[arg(long, value_name = "LABEL", default_value = "name")]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_NAME_LABEL", hide_short_help = true, hide_env = true)]
    container_name_label: String,
}

impl PrometheusArgs {
    /// The label with a container's name, which external metrics have too.
    pub fn container_label(&self) -> String {
        self.container_name_label.clone()
    }

    /// The Prometheus that was described. `variable` looks into the environment.
    pub fn prometheus(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusConfig, CliError> {
        // What was not set is found out: upstream's defaults fit series that nobody has any more.
        let set = |flag: &str, text: &String| typed.is_set(flag).then(|| text.clone());
        Ok(PrometheusConfig {
            transport: self.connection.transport_config(variable)?,
            series_options: SchemaOverrides {
                job: set("prometheus_cadvisor_job_name", &self.prometheus_cadvisor_job_name),
                cpu: set("history_cpu_metric", &self.history_cpu_metric),
                memory: set("history_memory_metric", &self.history_memory_metric),
                namespace: set("container_namespace_label", &self.container_namespace_label),
                pod: set("container_pod_name_label", &self.container_pod_name_label),
                container: set("container_name_label", &self.container_name_label),
                scrape_interval: None,
                matchers: self.connection.matchers(),
            },
            pod_labels: self.labels(typed)?,
            history_length: self.history_length,
            resolution: typed.is_set("history_resolution").then_some(self.history_resolution),
            query_timeout: self.prometheus_query_timeout,
            max_concurrent_queries: self.prometheus_queries as usize,
            buffer_bytes: bytes(&self.history_memory)?,
            has_fallback: self.checkpoint_fallback,
        })
    }

    /// Where labels of pods are, if they are to tell whose pods there were.
    fn labels(&self, typed: &ParsedFlags) -> Result<Option<PodLabelQuery>, CliError> {
        if !typed.is_set("metric_for_pod_labels") {
            return Ok(None);
        }
        let query = self.metric_for_pod_labels.clone();
        if let Err(wrong) = Query::from_user(&query, &self.connection.matchers()) {
            let told = format!("--metric-for-pod-labels: {wrong}");
            return Err(CliError::new(Exit::Usage, told));
        }
        let set = |flag: &str, text: &String| typed.is_set(flag).then(|| text.clone());
        Ok(Some(PodLabelQuery {
            query,
            prefix: set("pod_label_prefix", &self.pod_label_prefix),
            namespace: set("pod_namespace_label", &self.pod_namespace_label),
            pod: set("pod_name_label", &self.pod_name_label),
        }))
    }

    /// What should be looked at, though it keeps nothing from starting.
    pub fn warnings(&self, typed: &ParsedFlags, is_used: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let idle = typed.set_among(&POD_LABEL_FLAGS);
        if !idle.is_empty() && !typed.is_set("metric_for_pod_labels") {
            warnings.push(format!(
                "without effect: {}: without --metric-for-pod-labels pods are found by their owners",
                idle.join(", ")
            ));
        }
        if self.checkpoint_fallback && !is_used {
            warnings
                .push("--checkpoint-fallback has no use without --storage=prometheus".to_owned());
        }
        warnings
    }
}

/// Flags about what `--metric-for-pod-labels` answers.
const POD_LABEL_FLAGS: [&str; 3] = ["pod_label_prefix", "pod_namespace_label", "pod_name_label"];

/// The least that a slice of two queries can be read in.
const MIN_HISTORY_MEMORY: u64 = 1 << 20;

fn bytes(amount: &Quantity) -> Result<u64, CliError> {
    let bytes = amount.as_f64();
    if bytes.is_finite() && bytes >= MIN_HISTORY_MEMORY as f64 {
        return Ok(bytes as u64);
    }
    Err(CliError::new(Exit::Usage, format!("--history-memory={amount}: give 1Mi at least")))
}
