//! The watermark controller's flags for recommenders, the API server, leader election and the log, with upstream's
//! names where they exist.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, builder::StringValueParser};
use plimsoll_core::{api::scale_target::TlsConfig, types::compat::Compat};

use crate::{
    cli::{
        cluster::LeaseTimes,
        go_values,
        log::{ERRORS, WARNINGS},
        parsed_flags::{NoEffect, ParsedFlags},
        prometheus_auth::{non_empty, non_empty_path},
    },
    controllers::runtime::config::{Address, ElectionConfig, LogConfig, LogFormat, ProcessConfig},
};

/// The default TLS settings for recommenders.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommenders")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct RecommenderTlsArgs {
    /// File with the CA certificates to trust; without this or a certificate the other flags have no effect
    #[arg(long, value_name = "FILE", default_value = "", hide_short_help = true)]
    tls_ca_file: String,
    /// File with the client certificate
    #[arg(long, value_name = "FILE", default_value = "", hide_short_help = true)]
    tls_cert_file: String,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", default_value = "", hide_short_help = true)]
    tls_key_file: String,
    /// Server name to verify in the certificates of recommenders
    #[arg(long, value_name = "NAME", default_value = "", hide_short_help = true)]
    tls_server_name: String,
    /// Skips verification of recommenders' certificates
    #[arg(long, hide_short_help = true)]
    tls_insecure_skip_verify: bool,
}

impl RecommenderTlsArgs {
    /// Whether upstream uses any of these flags.
    fn is_used(&self) -> bool {
        !self.tls_ca_file.is_empty() || !self.tls_cert_file.is_empty()
    }

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

const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Upstream's default for requests per second.
const UPSTREAM_QPS: f64 = 20.0;
/// Our default: enough to read the scale subresource of 1,500 targets in a period of 15 seconds.
const DEFAULT_QPS: f64 = 100.0;
/// The ratio of burst to requests per second, as in upstream.
const BURST_FACTOR: f64 = 1.5;

/// The API server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct WatermarkClusterArgs {
    /// Path of the kubeconfig file, to run outside the cluster
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    kubeconfig: PathBuf,
    /// Requests per second to the API server, with a burst of 1.5 times that; 0 means no limit [default: 100, 20 with
    /// --compat=upstream]
    #[arg(long, value_name = "NUMBER", value_parser = go_values::number)]
    client_qps: Option<f64>,
    /// Timeout of requests to the API server; 0 means 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    client_timeout: Duration,
}

impl WatermarkClusterArgs {
    /// The settings of a process. As in upstream's client, 0 requests per second or less mean no limit. The burst is at
    /// least 1: a burst of 0 would block all requests.
    pub fn process(
        &self,
        compat: Compat,
        addresses: Vec<Address>,
        log: LogConfig,
        warnings: Vec<String>,
    ) -> ProcessConfig {
        let default = if compat == Compat::Upstream { UPSTREAM_QPS } else { DEFAULT_QPS };
        let rate = self.client_qps.unwrap_or(default);
        ProcessConfig {
            addresses,
            kubeconfig: non_empty_path(&self.kubeconfig),
            qps: if rate > 0.0 { rate as f32 } else { f32::INFINITY },
            burst: ((rate * BURST_FACTOR) as u32).max(1),
            log,
            warnings,
        }
    }

    pub fn timeout(&self) -> Duration {
        if self.client_timeout.is_zero() { DEFAULT_REQUEST_TIMEOUT } else { self.client_timeout }
    }
}

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaseArgs {
    /// Enables leader election; only the leader scales [default: true, false with --dry-run]
    #[arg(long, action = ArgAction::Set, value_name = "BOOL")]
    enable_leader_election: Option<bool>,
    #[command(flatten)]
    times: LeaseTimes,
    /// Name of the Lease; the same as upstream's, so that only one of the two controllers is active
    #[arg(long, value_name = "NAME", default_value = "watermarkpodautoscaler-lock")]
    #[arg(hide_short_help = true)]
    leader_elect_resource_name: String,
    /// Namespace of the Lease [default: NAMESPACE, or that of the pod]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_short_help = true)]
    leader_elect_resource_namespace: String,
}

impl LeaseArgs {
    /// Builds the election settings. `home` is the namespace of this process, if it runs in a cluster. A dry run writes
    /// nothing, so it needs no Lease.
    pub fn election(
        &self,
        is_dry_run: bool,
        home: Option<String>,
    ) -> Result<ElectionConfig, &'static str> {
        let enabled = self.enable_leader_election.unwrap_or(!is_dry_run);
        let configured = non_empty(&self.leader_elect_resource_namespace);
        let namespace = configured.or(home).unwrap_or_default();
        let election = self.times.election(enabled, &self.leader_elect_resource_name, namespace)?;
        if enabled && election.namespace.is_empty() {
            // With a guessed namespace another replica could use a different Lease, and both would be active.
            return Err(
                "the namespace of the Lease is unknown outside of a cluster: set --leader-elect-resource-namespace, \
                 or --enable-leader-election=false",
            );
        }
        Ok(election)
    }
}

/// Parses namespaces separated by commas, with a warning about invalid names.
pub fn namespaces(text: &str) -> (Vec<String>, Option<String>) {
    let names: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let is_invalid = !text.is_empty() && names.join(",") != text;
    let shown = if names.is_empty() { "all namespaces".to_owned() } else { names.join(", ") };
    let warning = is_invalid
        .then(|| format!("WATCH_NAMESPACE contains spaces or empty names: watching {shown}"));
    (names, warning)
}

/// The log flags.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log level: `debug`, `info`, or `warn`, `error` and above for less
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    loglevel: i32,
    /// Log format: `json`, or `console` for text lines
    #[arg(long = "logEncoder", id = "logEncoder", value_name = "FORM", default_value = "json")]
    #[arg(value_parser = form)]
    form: LogFormat,
    /// Accepted, without effect: times are RFC 3339
    #[arg(long, value_name = "FORM", default_value = "millis", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(StringValueParser::new()))]
    log_timestamp_format: NoEffect,
}

impl LogArgs {
    pub const fn log(&self) -> LogConfig {
        LogConfig { verbosity: self.loglevel, format: self.form, file: None, stderr: true }
    }
}

/// Maps a level of upstream's logging library to klog's verbosity.
fn level(text: &str) -> Result<i32, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(5),
        "info" | "" => Ok(4),
        "warn" | "warning" => Ok(WARNINGS),
        "error" | "dpanic" | "panic" | "fatal" => Ok(ERRORS),
        _ => Err("use debug, info, warn, error, dpanic, panic or fatal".to_owned()),
    }
}

fn form(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "console" => Ok(LogFormat::Text),
        _ => Err("use json or console".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ERRORS, WARNINGS};
    use crate::{cli::watermark_config, controllers::runtime::config::LogFormat};

    #[test]
    fn log_levels_and_formats_are_those_of_zap() {
        let of = |flags: &[&str]| {
            let config = watermark_config(flags, |_| String::new()).expect("flags that make sense");
            (config.settings.process.log.verbosity, config.settings.process.log.format)
        };
        assert_eq!(of(&[]), (4, LogFormat::Json));
        assert_eq!(of(&["-loglevel=debug", "-logEncoder=console"]), (5, LogFormat::Text));
        assert_eq!(of(&["-loglevel", "ERROR"]).0, ERRORS);
        assert_eq!(of(&["-loglevel=warn"]).0, WARNINGS);
        for bad in ["-loglevel=2", "-logEncoder=text", "-logencoder=json"] {
            assert!(watermark_config(&[bad], |_| String::new()).is_err(), "{bad}");
        }
    }
}
