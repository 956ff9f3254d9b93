//! `plimsoll ui`: its flags, and the server of the page.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use http::HeaderName;

use super::{
    Command, Exit,
    config_from_flags::parse_command,
    container_series::ContainerSeriesArgs,
    daemon::Daemon,
    explain,
    klog::LogArgs,
    output::{self, CliError},
    parsed_flags::ParsedFlags,
    prometheus_auth::{self, PrometheusConnectionArgs},
    recommend_options::RecommendCommand,
    ui_server::{UiCommand, UiHandle, start},
    workload_source::{PriceArgs, ViaArg},
};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::{
        command_client::ClusterOptions,
        config::{Address, ProcessConfig},
        shutdown::run_until_signal,
    },
    ui::{
        access::{AuthMode, ProxyHeaders},
        reader::ReaderConfig,
        server::UiServerConfig,
    },
};

pub(super) const NAME: &str = "ui";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll ui                              the cluster of the current context
  plimsoll ui --context prod --prices prices.yaml
  plimsoll ui --prometheus-address http://localhost:9090
  plimsoll ui --address :8950 --auth=token --reports /reports
  plimsoll ui --address :8950 --auth=proxy --proxy-ca-file ca.crt \\
    --tls-cert-file tls.crt --tls-key-file tls.key

Serves a page that shows what is decided and why, and prints its address. It
reads the cluster and changes nothing. Without --address it listens on a free
port of 127.0.0.1 and asks for no login. Users who may list VPAs in a
namespace see the pages of that namespace. See docs/ui.md.
The JSON forms of the pages follow docs/schema/ui.v1.json.";

/// Serves a read-only web page of what is decided and why
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UiArgs {
    /// Address of the page; :PORT means all interfaces
    #[arg(long, value_name = "[HOST]:PORT", default_value = "127.0.0.1:0")]
    address: Address,
    /// How users are identified: `none` only on loopback, `token` by a bearer token of the cluster, `proxy` by headers
    /// of an authenticating proxy [if not set: none on loopback, else token]
    #[arg(long, value_name = "MODE")]
    auth: Option<AuthArg>,
    /// CAs whose client certificates identify the authenticating proxy; one on loopback needs none
    #[arg(long, value_name = "FILE")]
    proxy_ca_file: Option<PathBuf>,
    /// Header with the name of the user
    #[arg(long, value_name = "NAME", default_value = "X-Forwarded-User")]
    proxy_user_header: String,
    /// Header with the groups of the user: repeated, or separated by commas
    #[arg(long, value_name = "NAME", default_value = "X-Forwarded-Groups")]
    proxy_groups_header: String,
    /// Certificate of the page, which is then served over TLS
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// Path below which the page is, such as /plimsoll
    #[arg(long, value_name = "PATH", default_value = "")]
    base_path: String,
    /// Folder with HTML files of backtests to list
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Only workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, short, value_name = "NAMESPACE", action = ArgAction::Append)]
    namespace: Vec<String>,
    /// No workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, value_name = "NAMESPACE", action = ArgAction::Append)]
    exclude_namespace: Vec<String>,
    /// Service of the Prometheus, such as monitoring/prometheus:9090 [if not set: found]
    #[arg(long, value_name = "NS/NAME:PORT")]
    prometheus_service: Option<String>,
    /// How to reach a Service: `direct`, `proxy` for the API server's proxy, or `auto`
    #[arg(long, value_name = "WAY", default_value = "auto")]
    via: ViaArg,
    #[command(flatten)]
    prices: PriceArgs,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
    #[command(flatten)]
    series: ContainerSeriesArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// The value of `--auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AuthArg {
    None,
    Token,
    Proxy,
}

impl UiArgs {
    /// The command without the contents of files, which [`UiCommand::read_files`] adds.
    pub(super) fn command(&self, typed: &ParsedFlags) -> Result<UiCommand, CliError> {
        let is_loopback = is_loopback(&self.address.host);
        let auth = self.auth(is_loopback)?;
        if !self.base_path.is_empty() && !is_base_path(&self.base_path) {
            let path = &self.base_path;
            return Err(CliError::usage(format!(
                "--base-path={path}: give a path such as /tools/plimsoll, without a slash at its end"
            )));
        }
        let recommend = self.recommend(typed)?;
        let (pods, vpas) = explain::defaults(&typed.environment)?;
        Ok(UiCommand {
            address: self.address.clone(),
            cluster: self.cluster.clone(),
            server: UiServerConfig {
                auth,
                is_loopback,
                base_path: self.base_path.clone(),
                reports: self.reports.clone(),
                ..UiServerConfig::default()
            },
            compat: recommend.config.compat,
            reader: ReaderConfig { recommend: recommend.config.clone(), pods, vpas },
            recommend,
            certificate: self.tls_cert_file.clone().zip(self.tls_key_file.clone()),
            proxy_authorities: self.proxy_ca_file.clone(),
            process: ProcessConfig {
                log: self.log.log(),
                warnings: prometheus_auth::exposed_secret_warnings(typed),
                ..ProcessConfig::default()
            },
        })
    }

    fn auth(&self, is_loopback: bool) -> Result<AuthMode, CliError> {
        let default = if is_loopback { AuthArg::None } else { AuthArg::Token };
        let auth = self.auth.unwrap_or(default);
        if auth != AuthArg::Proxy && self.proxy_ca_file.is_some() {
            return Err(CliError::usage("--proxy-ca-file has no effect without --auth=proxy"));
        }
        match auth {
            AuthArg::None if !is_loopback => Err(CliError::usage(format!(
                "--auth=none shows everything to everybody, and is only accepted on a loopback address: \
                 --address={} needs --auth=token or --auth=proxy",
                self.address
            ))),
            AuthArg::None => Ok(AuthMode::None),
            AuthArg::Token => Ok(AuthMode::Token),
            AuthArg::Proxy if !is_loopback && self.proxy_ca_file.is_none() => Err(CliError::usage(
                "--auth=proxy believes headers only from a client certificate or from loopback: set --proxy-ca-file",
            )),
            AuthArg::Proxy if self.proxy_ca_file.is_some() && self.tls_cert_file.is_none() => {
                Err(CliError::usage(
                    "client certificates need TLS: set --tls-cert-file and --tls-key-file",
                ))
            }
            AuthArg::Proxy => {
                let header = |name: &str, flag: &str| {
                    let name = HeaderName::from_bytes(name.as_bytes());
                    name.map_err(|_| {
                        CliError::usage(format!("--{flag}: give the name of a header"))
                    })
                };
                Ok(AuthMode::Proxy(ProxyHeaders {
                    user: header(&self.proxy_user_header, "proxy-user-header")?,
                    groups: header(&self.proxy_groups_header, "proxy-groups-header")?,
                }))
            }
        }
    }

    /// The report on workloads, as `plimsoll recommend` would make it.
    fn recommend(&self, typed: &ParsedFlags) -> Result<RecommendCommand, CliError> {
        let (Command::Recommend(mut arguments), _) =
            parse_command("recommend", &[], &typed.environment)?
        else {
            return Err(CliError::usage("not the flags of recommend"));
        };
        arguments.prices = self.prices.clone();
        let workloads = &mut arguments.workloads;
        workloads.kubeconfig.clone_from(&self.cluster.kubeconfig);
        workloads.context = self.cluster.context.iter().cloned().collect();
        workloads.namespace.clone_from(&self.namespace);
        workloads.exclude_namespace.clone_from(&self.exclude_namespace);
        workloads.prometheus_service.clone_from(&self.prometheus_service);
        workloads.via = self.via;
        workloads.connection = self.connection.clone();
        workloads.series = self.series.clone();
        RecommendCommand::new(*arguments, typed)
    }
}

/// Whether an address is reachable from this machine alone.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_base_path(path: &str) -> bool {
    let is_segment = |segment: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        !segment.is_empty() && !matches!(segment, "." | "..") && segment.bytes().all(is_allowed)
    };
    path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
}

/// Serves the page until a signal.
pub fn run(arguments: &UiArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let mut command = arguments.command(typed)?;
    command.read_files()?;
    let (compat, process) = (command.compat, command.process.clone());
    let daemon = Daemon { role: "ui", name: None, workers: 2, compat, process };
    daemon.run(|signals| async {
        let starting = async {
            let started = Box::pin(start(command, Clock::wall())).await?;
            // The reader of a closed pipe does not want the address.
            let _ = output::print_result(&format!("{}\n", started.url));
            Ok(started)
        };
        Box::pin(run_until_signal(signals, starting, UiHandle::stop)).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[&str]) -> Result<(), String> {
        let line = ["plimsoll", "ui"].iter().chain(flags).map(std::ffi::OsString::from);
        let (cli, typed) = crate::cli::parse(line).map_err(|error| error.to_string())?;
        let Command::Ui(arguments) = cli.command else { return Err("another".to_owned()) };
        arguments.command(&typed).map(drop).map_err(CliError::into_message)
    }

    #[test]
    fn without_a_login_it_listens_on_loopback_only() {
        for flags in [
            &[][..],
            &["--auth=none"],
            &["--address=[::1]:8950"],
            &["--address=localhost:0", "--auth=proxy"],
            &["--address=:8950"],
            &["--address=:8950", "--auth=token", "--base-path=/a/b"],
            &[
                "--address=:1",
                "--auth=proxy",
                "--proxy-ca-file=a",
                "--tls-cert-file=b",
                "--tls-key-file=c",
            ],
        ] {
            assert_eq!(check(flags), Ok(()), "{flags:?}");
        }
        for (flags, remedy) in [
            (&["--address=:8950", "--auth=none"][..], "--auth=token"),
            (&["--address=0.0.0.0:8950", "--auth=none"], "loopback"),
            (&["--address=10.0.0.1:8950", "--auth=proxy"], "--proxy-ca-file"),
            (&["--auth=proxy", "--proxy-ca-file=a"], "--tls-cert-file"),
            (&["--proxy-ca-file=a"], "--auth=proxy"),
            (&["--base-path=a"], "/tools/plimsoll"),
            (&["--base-path=/a/"], "/tools/plimsoll"),
            (&["--base-path=/../a"], "/tools/plimsoll"),
            (&["--auth=proxy", "--proxy-user-header=a b"], "--proxy-user-header"),
            (&["--currency=EUR"], "--prices"),
            (&["--tls-cert-file=a"], "--tls-key-file"),
        ] {
            let error = check(flags).expect_err("rejected");
            assert!(error.contains(remedy), "{flags:?}: {error}");
        }
    }
}
