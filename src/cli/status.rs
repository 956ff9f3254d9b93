//! `plimsoll status`: shows the status of an installation on one screen.

use clap::Args;

use super::{Exit, one_shot::ReportArgs, output::CliError, terminal::Terminal};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::command_client::NoCluster,
    report::{
        collect::status,
        status::{build_report, text},
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
    namespace: Option<String>,
    #[command(flatten)]
    report: ReportArgs,
}

/// Collects and prints the status. The exit code depends on the findings.
pub fn run(arguments: &StatusArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let StatusArgs { namespace, report } = arguments;
    let facts = report.read(USER_AGENT, terminal, "reading the cluster", async |cluster| {
        Ok::<_, NoCluster>(status::collect(&cluster, namespace.as_deref()).await)
    })?;
    let status = build_report(&facts, env!("CARGO_PKG_VERSION"), Clock::wall().now());
    report.print(terminal, &status, text::render, status.findings.is_empty())
}
