//! The flags for the Prometheus that PromQL queries of objects are sent to, and for the usage of pods that replicas follow:
//! from `metrics.k8s.io`, or from the same Prometheus.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{
    container_series::ContainerSeriesArgs, go_values, output::CliError, parsed_flags::ParsedFlags,
    prometheus_auth::PrometheusConnectionArgs,
};
use crate::{
    cluster::metric_sources::promql::TenantScope,
    controllers::{
        horizontal::config::{PrometheusUsage, UsageSource},
        runtime::prometheus_queries::PrometheusQueries,
    },
};

/// The Prometheus for PromQL queries of objects.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Queries to a Prometheus")]
pub struct PrometheusQueryArgs {
    /// Maximum number of concurrent queries; those of one namespace use at most a quarter of them
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(hide_short_help = true)]
    prometheus_queries: u32,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    prometheus_query_timeout: Duration,
    /// Label with the namespace of a series: queries of an object can only read series of its own namespace
    #[arg(long, value_name = "LABEL", default_value = "namespace", value_parser = go_values::label_name)]
    #[arg(hide_short_help = true)]
    prometheus_namespace_label: String,
    /// Namespaces whose objects may read all series, separated by commas; * for every namespace
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    prometheus_unrestricted_namespaces: Vec<String>,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
}

impl PrometheusQueryArgs {
    /// Builds the Prometheus settings, which are disabled if no address was set.
    pub fn queries(&self, typed: &ParsedFlags) -> Result<PrometheusQueries, CliError> {
        let mut queries = self.queries_at_any_address(typed)?;
        if !typed.is_set("prometheus_address") {
            // The default address is only a guess, so do not query it.
            queries.transport.address.clear();
        }
        Ok(queries)
    }

    /// The same with the default address if none was set, for those who read something else from there.
    pub fn queries_at_any_address(
        &self,
        typed: &ParsedFlags,
    ) -> Result<PrometheusQueries, CliError> {
        Ok(PrometheusQueries {
            transport: self.connection.transport_config(typed)?,
            matchers: self.connection.matchers(),
            scope: self.scope(),
            max_concurrent: self.prometheus_queries as usize,
            timeout: self.prometheus_query_timeout,
        })
    }

    fn scope(&self) -> TenantScope {
        let names = self.prometheus_unrestricted_namespaces.iter().map(|name| name.trim());
        let unrestricted = names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        TenantScope { label: self.prometheus_namespace_label.clone(), unrestricted }
    }
}

/// The source of usage.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Usage of pods")]
pub struct PodUsageArgs {
    /// Source of usage: metrics.k8s.io, or a Prometheus that scrapes the kubelets
    #[arg(long, value_name = "SOURCE", default_value = "metrics")]
    usage_source: UsageSourceArg,
    #[command(flatten)]
    series: ContainerSeriesArgs,
    #[command(flatten)]
    queries: PrometheusQueryArgs,
}

/// The value of `--usage-source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageSourceArg {
    Metrics,
    Prometheus,
}

impl PodUsageArgs {
    /// Where usage is read from, and where queries are sent to.
    pub fn sources(
        &self,
        typed: &ParsedFlags,
    ) -> Result<(UsageSource, PrometheusQueries), CliError> {
        if self.usage_source == UsageSourceArg::Metrics {
            return Ok((UsageSource::Metrics, self.queries.queries(typed)?));
        }
        let queries = self.queries.queries_at_any_address(typed)?;
        let usage = PrometheusUsage {
            transport: queries.transport.clone(),
            series_options: self.series.overrides(typed, queries.matchers.clone()),
            query_timeout: queries.timeout,
            max_concurrent_queries: queries.max_concurrent,
        };
        Ok((UsageSource::Prometheus(Box::new(usage)), queries))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::UsageSource;
    use crate::{cli::horizontal_config, cluster::metric_sources::promql::TenantScope};

    #[test]
    fn usage_is_read_from_a_prometheus_only_if_it_is_selected() {
        let of = |flags: &[&str]| horizontal_config(flags).expect("valid flags");
        assert_eq!(of(&[]).usage, UsageSource::Metrics);
        let idle = of(&["--prometheus-address=http://prometheus:9090"]);
        assert_eq!((idle.usage, idle.settings.process.warnings.len()), (UsageSource::Metrics, 0));
        let set = of(&[
            "--usage-source=prometheus",
            "--prometheus-address=http://prometheus:9090",
            "--prometheus-matcher=cluster=\"qa\"",
            "--prometheus_query_timeout=3s",
            "--prometheus-queries=20",
            "--container-pod-name-label=pod",
            "--prometheus-cadvisor-job-name=",
        ]);
        assert_eq!(set.settings.process.warnings, [""; 0]);
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
            &["--prometheus-client-key-file=/k"],
            &["--prometheus-namespace-label=a-b"],
            &["--max-metric-age=-1s"],
        ] {
            horizontal_config(invalid).expect_err("invalid flags");
        }
    }
    #[test]
    fn queries_of_objects_are_sent_to_an_address_that_is_set_or_that_has_the_usage() {
        let default = "http://prometheus.monitoring.svc";
        let address = "--prometheus-address=http://prometheus:9090";
        for (flags, expected) in [
            (&[][..], ""),
            (&["--prometheus-queries=20"], ""),
            (&[address], "http://prometheus:9090"),
            (&["--usage-source=prometheus"], default),
            (&["--usage-source=prometheus", address], "http://prometheus:9090"),
        ] {
            let config = horizontal_config(flags).expect("valid flags");
            assert_eq!(config.queries.transport.address, expected, "{flags:?}");
            let scope = TenantScope { label: "namespace".to_owned(), unrestricted: Vec::new() };
            assert_eq!((config.queries.scope, config.max_metric_age), (scope, None));
        }
        let set = horizontal_config(&[
            address,
            "--prometheus-matcher=cluster=\"qa\"",
            "--prometheus-namespace-label=tenant",
            "--prometheus-unrestricted-namespaces=platform, ingress",
            "--prometheus-query-timeout=3s",
            "--prometheus-queries=20",
            "--max-metric-age=1m",
        ]);
        let set = set.expect("valid flags");
        let unrestricted = vec!["platform".to_owned(), "ingress".to_owned()];
        assert_eq!(set.queries.scope, TenantScope { label: "tenant".to_owned(), unrestricted });
        assert_eq!(set.queries.matchers.to_string(), "cluster=\"qa\"");
        assert_eq!((set.queries.timeout, set.queries.max_concurrent), (Duration::from_secs(3), 20));
        assert_eq!(set.max_metric_age, Some(Duration::from_mins(1)));
    }
}
