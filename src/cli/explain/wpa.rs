//! `plimsoll explain wpa`: its flags, and the run.

use clap::Args;

use super::{ObjectArgs, print, with_cluster};
use crate::{
    cli::{Exit, output::CliError, terminal::Terminal},
    cluster::clock::Clock,
    report::{collect::wpa as explain, explain::wpa::text},
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll explain wpa web                      in the context's namespace
  plimsoll explain wpa shop/web --context prod
  plimsoll explain wpa -n shop web -o json | jq .decision

Shows the last decision of the watermark controller step by step, from the
status of the object: past metric values cannot be queried again.
Exit code 1: there are findings, or the object does not exist.
The JSON follows docs/schema/explain-wpa.v1.json.";

/// Explains the number of replicas of a workload
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WpaArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

impl WpaArgs {
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.object.resolve_object().map(drop)
    }
}

/// Explains a WatermarkPodAutoscaler.
pub(super) fn run(arguments: &WpaArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let object = &arguments.object;
    let (namespace, name) = object.resolve_object()?;
    let report = with_cluster(object, terminal, async |cluster| {
        explain::explain(&cluster, namespace.as_deref(), &name, Clock::wall().now()).await
    })?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
