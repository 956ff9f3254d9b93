//! The flags for the names of container usage series in a Prometheus, with upstream's names and defaults.

use clap::Args;
use plimsoll_storage::prometheus::{detect::SchemaOverrides, selector::LabelMatchers};

use super::parsed_flags::ParsedFlags;

/// The names of container usage series.
#[derive(Clone, Debug, Args)]
pub struct ContainerSeriesArgs {
    /// Scrape job of the container series; empty for any [if not set: detected]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kubernetes-cadvisor",
        hide_short_help = true
    )]
    prometheus_cadvisor_job_name: String,
    /// Counter of CPU seconds
    #[arg(long, value_name = "METRIC", default_value = "container_cpu_usage_seconds_total")]
    #[arg(hide_short_help = true)]
    history_cpu_metric: String,
    /// Gauge of memory
    #[arg(long, value_name = "METRIC", default_value = "container_memory_working_set_bytes")]
    #[arg(hide_short_help = true)]
    history_memory_metric: String,
    /// Label with the namespace on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", default_value = "namespace", hide_short_help = true)]
    container_namespace_label: String,
    /// Label with the pod name on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", default_value = "pod_name", hide_short_help = true)]
    container_pod_name_label: String,
    /// Label with the container name on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", default_value = "name", hide_short_help = true)]
    pub container_name_label: String,
}

impl ContainerSeriesArgs {
    /// The names that were set, and these matchers. The others are detected: upstream's defaults match obsolete label names.
    pub fn overrides(&self, typed: &ParsedFlags, matchers: LabelMatchers) -> SchemaOverrides {
        let set = |flag: &str, text: &String| typed.is_set(flag).then(|| text.clone());
        SchemaOverrides {
            job: set("prometheus_cadvisor_job_name", &self.prometheus_cadvisor_job_name),
            cpu: set("history_cpu_metric", &self.history_cpu_metric),
            memory: set("history_memory_metric", &self.history_memory_metric),
            namespace: set("container_namespace_label", &self.container_namespace_label),
            pod: set("container_pod_name_label", &self.container_pod_name_label),
            container: set("container_name_label", &self.container_name_label),
            scrape_interval: None,
            matchers,
        }
    }
}
