//! The flags for the usage of pods that replicas follow: from `metrics.k8s.io`, or from a Prometheus.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{
    container_series::ContainerSeriesArgs, go_values, output::CliError, parsed_flags::ParsedFlags,
    prometheus_auth::PrometheusConnectionArgs,
};
use crate::controllers::horizontal::config::{PrometheusUsage, UsageSource};

/// The source of usage.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Usage of pods")]
pub struct PodUsageArgs {
    /// Source of usage: metrics.k8s.io, or a Prometheus that scrapes the kubelets
    #[arg(long, value_name = "SOURCE", default_value = "metrics")]
    usage_source: UsageSourceArg,
    /// Maximum number of concurrent queries; those of slow namespaces use at most a quarter of them
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(hide_short_help = true)]
    prometheus_queries: u32,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    prometheus_query_timeout: Duration,
    #[command(flatten)]
    series: ContainerSeriesArgs,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
}

/// The value of `--usage-source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageSourceArg {
    Metrics,
    Prometheus,
}

impl PodUsageArgs {
    /// Where usage is read from. `variable` reads the environment.
    pub fn source(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<UsageSource, CliError> {
        if self.usage_source == UsageSourceArg::Metrics {
            return Ok(UsageSource::Metrics);
        }
        Ok(UsageSource::Prometheus(Box::new(PrometheusUsage {
            transport: self.connection.transport_config(variable)?,
            series_options: self.series.overrides(typed, self.connection.matchers()),
            query_timeout: self.prometheus_query_timeout,
            max_concurrent_queries: self.prometheus_queries as usize,
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::UsageSource;
    use crate::cli::horizontal_config;

    #[test]
    fn usage_is_read_from_a_prometheus_only_if_it_is_selected() {
        let of = |flags: &[&str]| horizontal_config(flags).expect("valid flags");
        assert_eq!(of(&[]).usage, UsageSource::Metrics);
        // In a process with other roles this flag may be for them.
        let idle = of(&["--prometheus-address=http://prometheus:9090"]);
        assert_eq!((idle.usage, idle.process.warnings.len()), (UsageSource::Metrics, 0));
        let set = of(&[
            "--usage-source=prometheus",
            "--prometheus-address=http://prometheus:9090",
            "--prometheus-matcher=cluster=\"qa\"",
            "--prometheus_query_timeout=3s",
            "--prometheus-queries=20",
            "--container-pod-name-label=pod",
            "--prometheus-cadvisor-job-name=",
        ]);
        assert_eq!(set.process.warnings, [""; 0]);
        let UsageSource::Prometheus(usage) = set.usage else { panic!("another source") };
        assert_eq!(usage.transport.address, "http://prometheus:9090");
        assert_eq!(usage.query_timeout, Duration::from_secs(3));
        assert_eq!(usage.max_concurrent_queries, 20);
        let options = usage.series_options;
        assert_eq!((options.pod.as_deref(), options.job.as_deref()), (Some("pod"), Some("")));
        assert_eq!((options.cpu, options.namespace), (None, None), "detected");
        assert_eq!(options.matchers.to_string(), "cluster=\"qa\"");
        for invalid in [
            &["--usage-source=external"][..],
            &["--usage-source=prometheus", "--prometheus-queries=0"],
            &["--usage-source=prometheus", "--prometheus-client-key-file=/k"],
        ] {
            horizontal_config(invalid).expect_err("invalid flags");
        }
    }
}
