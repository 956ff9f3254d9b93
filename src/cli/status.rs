//! `plimsoll status`: shows the status of an installation on one screen.

use clap::Args;

use super::{Exit, one_shot::ReportArgs, output::CliError, terminal::Terminal, watch::WatchArgs};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::command_client::NoCluster,
    report::{
        collect::status,
        status::{StatusReport, build_report, text},
    },
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll status                  roles, leaders, passes, data, versions
  plimsoll status -n autoscaling   including Leases of this namespace
  plimsoll status --output json | jq '.findings[].code'
  plimsoll status --watch=10s      again every 10 seconds, and what changed

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
    watch: WatchArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// Collects and prints the status. The exit code depends on the findings.
pub fn run(arguments: &StatusArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let StatusArgs { namespace, watch, report } = arguments;
    let read = async |cluster| {
        let facts = status::collect(&cluster, namespace.as_deref()).await;
        let now = Clock::wall().now();
        Ok::<_, NoCluster>(build_report(&facts, env!("CARGO_PKG_VERSION"), now))
    };
    let is_fine = |status: &StatusReport| status.findings.is_empty();
    let request = ("plimsoll-status", "reading the cluster");
    report.show(*watch, request, terminal, read, (text::render, is_fine))
}
