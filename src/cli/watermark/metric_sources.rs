//! The flags about services that the watermark controller asks: recommenders, by upstream's names, and a Prometheus.

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

/// How recommenders are reached over TLS where an object says nothing of it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommenders")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct RecommenderTlsArgs {
    /// File with the authorities to trust; without this or a certificate the other four mean nothing
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CA_FILE", hide_short_help = true, hide_env = true)]
    tls_ca_file: String,
    /// File with the certificate that is shown
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_CERT_FILE", hide_short_help = true, hide_env = true)]
    tls_cert_file: String,
    /// File with the key of that certificate
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_KEY_FILE", hide_short_help = true, hide_env = true)]
    tls_key_file: String,
    /// Name that the certificates of recommenders have to have
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_SERVER_NAME", hide_short_help = true, hide_env = true)]
    tls_server_name: String,
    /// Takes any certificate of recommenders
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_TLS_INSECURE_SKIP_VERIFY", hide_short_help = true, hide_env = true)]
    tls_insecure_skip_verify: bool,
}

impl RecommenderTlsArgs {
    /// Whether upstream looks at any of them.
    fn is_used(&self) -> bool {
        !self.tls_ca_file.is_empty() || !self.tls_cert_file.is_empty()
    }

    /// The TLS that was described.
    pub fn tls(&self) -> Result<TlsConfig, &'static str> {
        if !self.is_used() {
            return Ok(TlsConfig::default());
        }
        if !self.tls_cert_file.is_empty() && self.tls_key_file.is_empty() {
            return Err("--tls-cert-file is nothing without its key: give --tls-key-file too");
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

    /// What was given for nothing.
    pub fn warning(&self, typed: &ParsedFlags) -> Option<String> {
        let idle =
            typed.set_among(&["tls_key_file", "tls_server_name", "tls_insecure_skip_verify"]);
        let is_idle = !self.is_used() && !idle.is_empty();
        is_idle.then(|| {
            let idle = idle.join(", ");
            format!("without effect, as upstream has it: {idle}: they go with --tls-ca-file or --tls-cert-file")
        })
    }
}

/// A Prometheus that queries of objects are put to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Queries to a Prometheus")]
pub struct PrometheusQueryArgs {
    /// How many queries may be under way at once; those of one namespace are a quarter of that at most
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERIES", hide_short_help = true, hide_env = true)]
    prometheus_queries: u32,
    /// How long a query may take
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERY_TIMEOUT", hide_short_help = true, hide_env = true)]
    prometheus_query_timeout: Duration,
    /// Label of series with their namespace: queries of an object read only series of its own namespace
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

/// The name of a label.
fn label(text: &str) -> Result<String, String> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(is_inside)
        && text != "__name__";
    if fits { Ok(text.to_owned()) } else { Err("give the name of a label".to_owned()) }
}

impl PrometheusQueryArgs {
    /// The Prometheus that was described. `variable` looks into the environment.
    pub fn queries(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<PrometheusQueries, CliError> {
        let mut door = self.connection.transport_config(variable)?;
        if !typed.is_set("prometheus_address") {
            // The usual address is a guess, and nobody is asked on one.
            door.address.clear();
        }
        Ok(PrometheusQueries {
            transport: door,
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

    /// What should be looked at, though it keeps nothing from starting.
    pub fn warnings(typed: &ParsedFlags) -> Vec<String> {
        prometheus_auth::exposed_secret_warnings(typed)
    }
}
