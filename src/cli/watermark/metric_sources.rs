//! The watermark controller's flags for recommenders, with upstream's names, and for a Prometheus.

use std::time::Duration;

use clap::Args;

use crate::{
    cli::{
        go_values,
        output::CliError,
        parsed_flags::ParsedFlags,
        prometheus_auth::{self, PrometheusConnectionArgs},
    },
    cluster::metrics_api::source::promql::TenantScope,
    controllers::watermark::config::PrometheusQueries,
};
use plimsoll_core::api::scale_target::TlsConfig;

/// The default TLS settings for recommenders.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommenders")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct RecommenderTlsArgs {
    /// File with the CA certificates to trust; without this or a certificate the other flags have no effect
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CA_FILE", hide_short_help = true, hide_env = true)]
    tls_ca_file: String,
    /// File with the client certificate
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CERT_FILE", hide_short_help = true, hide_env = true)]
    tls_cert_file: String,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_KEY_FILE", hide_short_help = true, hide_env = true)]
    tls_key_file: String,
    /// Server name to verify in the certificates of recommenders
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_SERVER_NAME", hide_short_help = true, hide_env = true)]
    tls_server_name: String,
    /// Skips verification of recommenders' certificates
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_INSECURE_SKIP_VERIFY", hide_short_help = true, hide_env = true)]
    tls_insecure_skip_verify: bool,
}

impl RecommenderTlsArgs {
    /// Whether upstream uses any of these flags.
    fn is_used(&self) -> bool {
        !self.tls_ca_file.is_empty() || !self.tls_cert_file.is_empty()
    }

    /// Builds the TLS settings.
    pub fn tls(&self) -> Result<TlsConfig, &'static str> {
        if !self.is_used() {
            return Ok(TlsConfig::default());
        }
        if !self.tls_cert_file.is_empty() && self.tls_key_file.is_empty() {
            return Err("--tls-cert-file requires --tls-key-file");
        }
        Ok(TlsConfig {
            ca_file: self.tls_ca_file.clone(),
            cert_file: self.tls_cert_file.clone(),
            key_file: self.tls_key_file.clone(),
            server_name: self.tls_server_name.clone(),
            insecure_skip_verify: self.tls_insecure_skip_verify,
            ..TlsConfig::default()
        })
    }

    /// A warning about flags that have no effect.
    pub fn warning(&self, typed: &ParsedFlags) -> Option<String> {
        let ineffective =
            typed.set_among(&["tls_key_file", "tls_server_name", "tls_insecure_skip_verify"]);
        let is_ineffective = !self.is_used() && !ineffective.is_empty();
        is_ineffective.then(|| {
            let flags = ineffective.join(", ");
            format!("no effect without --tls-ca-file or --tls-cert-file, as in upstream: {flags}")
        })
    }
}

/// The Prometheus for PromQL queries of objects.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Queries to a Prometheus")]
pub struct PrometheusQueryArgs {
    /// Maximum number of concurrent queries; those of one namespace use at most a quarter of them
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERIES", hide_short_help = true, hide_env = true)]
    prometheus_queries: u32,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERY_TIMEOUT", hide_short_help = true, hide_env = true)]
    prometheus_query_timeout: Duration,
    /// Label with the namespace of a series: queries of an object can only read series of its own namespace
    #[arg(long, value_name = "LABEL", default_value = "namespace", value_parser = label)]
    #[arg(
        env = "PLIMSOLL_FLAG_PROMETHEUS_NAMESPACE_LABEL",
        hide_short_help = true,
        hide_env = true
    )]
    prometheus_namespace_label: String,
    /// Namespaces whose objects may read all series, separated by commas; * for every namespace
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_UNRESTRICTED_NAMESPACES")]
    prometheus_unrestricted_namespaces: Vec<String>,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
}

/// Parses a label name.
fn label(text: &str) -> Result<String, String> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(is_inside)
        && text != "__name__";
    if fits { Ok(text.to_owned()) } else { Err("give a valid label name".to_owned()) }
}

impl PrometheusQueryArgs {
    /// Builds the Prometheus settings. `variable` reads the environment.
    pub fn queries(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusQueries, CliError> {
        let mut transport = self.connection.transport_config(variable)?;
        if !typed.is_set("prometheus_address") {
            // The default address is only a guess, so do not query it.
            transport.address.clear();
        }
        Ok(PrometheusQueries {
            transport,
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

    /// Warnings about flags that do not prevent the start.
    pub fn warnings(typed: &ParsedFlags) -> Vec<String> {
        prometheus_auth::exposed_secret_warnings(typed)
    }
}
