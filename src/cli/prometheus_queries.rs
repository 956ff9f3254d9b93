//! The flags for the Prometheus that PromQL queries of objects are sent to.

use std::time::Duration;

use clap::Args;

use super::{
    go_values, output::CliError, parsed_flags::ParsedFlags,
    prometheus_auth::PrometheusConnectionArgs,
};
use crate::{
    cluster::metric_sources::promql::TenantScope,
    controllers::runtime::prometheus_queries::PrometheusQueries,
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
    /// Builds the Prometheus settings, which are disabled if no address was set. `variable` reads the environment.
    pub fn queries(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusQueries, CliError> {
        let mut queries = self.queries_at_any_address(variable)?;
        if !typed.is_set("prometheus_address") {
            // The default address is only a guess, so do not query it.
            queries.transport.address.clear();
        }
        Ok(queries)
    }

    /// The same with the default address if none was set, for those who read something else from there.
    pub fn queries_at_any_address(
        &self,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusQueries, CliError> {
        Ok(PrometheusQueries {
            transport: self.connection.transport_config(variable)?,
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
