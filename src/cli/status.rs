//! `plimsoll status`: shows the status of an installation on one screen.

use std::path::PathBuf;

use clap::Args;

use super::{
    Exit,
    output::{self, CliError, OutputFormat, escape_to_one_line},
    spinner::Spinner,
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::cluster::{self, ClusterOptions, NoCluster},
    report::{
        collect::status,
        explain::status::{build_report, text},
    },
};

/// The user agent of requests to the API server.
const USER_AGENT: &str = concat!("plimsoll-status/", env!("CARGO_PKG_VERSION"));

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll status                  roles, leaders, passes, data, versions
  plimsoll status -n autoscaling   including Leases of this namespace
  plimsoll status --output json | jq '.findings[].code'

It only reads Leases, and pods with the label app.kubernetes.io/name=plimsoll.
Exit code 1: there are findings.
The JSON follows docs/schema/status.v1.json.";

/// Shows the status of the roles in a cluster: leaders, age of passes and data, paused updates
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// Additional namespace with Leases of roles
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: OutputFormat,
}

/// Collects and prints the status. The exit code depends on the findings.
pub fn run(arguments: &StatusArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let spinner = Spinner::start(terminal, "reading the cluster");
    // This fails if a provider is already installed, which is then also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let options = ClusterOptions {
        kubeconfig: arguments.kubeconfig.clone(),
        context: arguments.context.clone(),
    };
    let facts = runtime.block_on(async {
        let cluster = cluster::connect(&options, USER_AGENT).await?;
        Ok::<_, NoCluster>(status::collect(&cluster, arguments.namespace.as_deref()).await)
    });
    drop(spinner);
    let facts = facts.map_err(|error| failed(error.to_string()))?;
    let report = build_report(&facts, env!("CARGO_PKG_VERSION"), Clock::wall().now());
    output::print_result(&match arguments.output {
        OutputFormat::Text => text::render(&report, &terminal.style),
        OutputFormat::Json => output::json(&report)?,
    })?;
    Ok(if report.findings.is_empty() { Exit::Fine } else { Exit::Findings })
}
