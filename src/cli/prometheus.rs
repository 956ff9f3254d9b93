//! The flags for history in a Prometheus, with upstream's names where they exist.

use std::time::Duration;

use clap::Args;
use plimsoll_storage::prometheus::{history::PodLabelQuery, promql::Query};

use super::{
    container_series::ContainerSeriesArgs, go_values, output::CliError, parsed_flags::ParsedFlags,
    prometheus_auth::PrometheusConnectionArgs,
};
use crate::controllers::runtime::prometheus::PrometheusConfig;
use plimsoll_core::types::quantity::Quantity;

/// History in a Prometheus.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "History in a Prometheus")]
pub struct PrometheusArgs {
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
    /// With --storage=prometheus: also writes checkpoints, and uses them while the Prometheus is unavailable
    #[arg(long)]
    checkpoint_fallback: bool,
    /// Maximum number of concurrent queries
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(1_u32, 100))]
    prometheus_queries: u32,
    /// Memory limit for buffered history that is not ingested yet
    #[arg(long, value_name = "SIZE", default_value = "24Mi")]
    history_memory: Quantity,
    #[command(flatten)]
    pub series: ContainerSeriesArgs,
    /// How far back to read history
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = go_values::prometheus_duration)]
    history_length: Duration,
    /// Step of the queries [if not set, with --history-weighting=duration: 1m for CPU, 5m for memory]
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = go_values::prometheus_duration)]
    history_resolution: Duration,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::positive_duration)]
    prometheus_query_timeout: Duration,
    /// Prefix of pod label names in --metric-for-pod-labels [if not set: detected]
    #[arg(long, value_name = "PREFIX", default_value = "pod_label_")]
    pod_label_prefix: String,
    /// Query for pod labels, to match past pods to VPAs [if not set: pods are matched by owner]
    #[arg(long, value_name = "QUERY", default_value = "up{job=\"kubernetes-pods\"}")]
    metric_for_pod_labels: String,
    /// Label with the namespace in --metric-for-pod-labels [if not set: detected]
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_namespace")]
    pod_namespace_label: String,
    /// Label with the pod name in --metric-for-pod-labels [if not set: detected]
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_pod_name")]
    pod_name_label: String,
}

impl PrometheusArgs {
    pub fn prometheus(&self, typed: &ParsedFlags) -> Result<PrometheusConfig, CliError> {
        Ok(PrometheusConfig {
            transport: self.connection.transport_config(typed)?,
            series_options: self.series.overrides(typed, self.connection.matchers()),
            pod_labels: self.labels(typed)?,
            history_length: self.history_length,
            resolution: typed.is_set("history_resolution").then_some(self.history_resolution),
            query_timeout: self.prometheus_query_timeout,
            max_concurrent_queries: self.prometheus_queries as usize,
            buffer_bytes: buffer_bytes(&self.history_memory)?,
            has_fallback: self.checkpoint_fallback,
        })
    }

    /// The query for pod labels, if past pods are matched by labels.
    fn labels(&self, typed: &ParsedFlags) -> Result<Option<PodLabelQuery>, CliError> {
        if !typed.is_set("metric_for_pod_labels") {
            return Ok(None);
        }
        let query = self.metric_for_pod_labels.clone();
        Query::from_user(&query, &self.connection.matchers())
            .map_err(|error| CliError::usage(format!("--metric-for-pod-labels: {error}")))?;
        let set = |flag: &str, text: &String| typed.is_set(flag).then(|| text.clone());
        Ok(Some(PodLabelQuery {
            query,
            prefix: set("pod_label_prefix", &self.pod_label_prefix),
            namespace: set("pod_namespace_label", &self.pod_namespace_label),
            pod: set("pod_name_label", &self.pod_name_label),
        }))
    }

    /// Warnings about flags that do not prevent the start.
    pub fn warnings(&self, typed: &ParsedFlags, is_used: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let ineffective = typed.set_among(&POD_LABEL_FLAGS);
        if !ineffective.is_empty() && !typed.is_set("metric_for_pod_labels") {
            warnings.push(format!(
                "no effect without --metric-for-pod-labels: {}: pods are matched by their owners",
                ineffective.join(", ")
            ));
        }
        if self.checkpoint_fallback && !is_used {
            warnings.push(
                "--checkpoint-fallback has no effect without --storage=prometheus".to_owned(),
            );
        }
        warnings
    }
}

/// Flags that apply to the result of `--metric-for-pod-labels`.
const POD_LABEL_FLAGS: [&str; 3] = ["pod_label_prefix", "pod_namespace_label", "pod_name_label"];

/// The minimum memory to read a time slice of two queries.
const MIN_HISTORY_MEMORY: u64 = 1 << 20;

pub fn buffer_bytes(amount: &Quantity) -> Result<u64, CliError> {
    let bytes = amount.as_f64();
    if bytes.is_finite() && bytes >= MIN_HISTORY_MEMORY as f64 {
        return Ok(bytes as u64);
    }
    Err(CliError::usage(format!("--history-memory={amount}: must be at least 1Mi")))
}
