//! `plimsoll status`: how an installation is, on one screen.

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

/// Who asks.
const USER_AGENT: &str = concat!("plimsoll-status/", env!("CARGO_PKG_VERSION"));

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll status                  roles, leaders, loops, data, versions
  plimsoll status -n autoscaling   with Leases of a namespace of your own
  plimsoll status --output json | jq '.findings[].code'

It reads Leases, and pods with the label app.kubernetes.io/name=plimsoll,
and no other object. Exit code 1: there is something to look at.
The JSON follows docs/schema/status.v1.json.";

/// Shows how the roles in a cluster are: who leads, how old loops and data are, what is held
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// One more namespace in which Leases of roles are
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// File that says how to reach the cluster
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of that file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// What to print
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: OutputFormat,
}

/// Looks, and exits by whether there is anything to look at.
pub fn run(arguments: &StatusArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let waiting = Spinner::start(terminal, "asking the cluster");
    // Somebody else may have installed one, and then it is the same: there is only ring in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let reach = ClusterOptions {
        kubeconfig: arguments.kubeconfig.clone(),
        context: arguments.context.clone(),
    };
    let facts = runtime.block_on(async {
        let cluster = cluster::connect(&reach, USER_AGENT).await?;
        Ok::<_, NoCluster>(status::collect(&cluster, arguments.namespace.as_deref()).await)
    });
    drop(waiting);
    let facts = facts.map_err(|error| failed(error.to_string()))?;
    let report = build_report(&facts, env!("CARGO_PKG_VERSION"), Clock::wall().now());
    output::print_result(&match arguments.output {
        OutputFormat::Text => text::render(&report, &terminal.style),
        OutputFormat::Json => output::json(&report)?,
    })?;
    Ok(if report.findings.is_empty() { Exit::Fine } else { Exit::Findings })
}
