//! `plimsoll explain wpa`: its flags, and the question behind them.

use clap::Args;

use super::{ObjectArgs, print, with_cluster};
use crate::{
    cli::{Exit, output::CliError, terminal::Terminal},
    report::{collect::wpa as wpa_collect, explain::wpa::text},
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll explain wpa web                      in the context's namespace
  plimsoll explain wpa shop/web --context prod
  plimsoll explain wpa -n shop web -o json | jq .decision

Tells what the watermark controller last decided, step by step, as it wrote it
to the object: what metrics were at that moment nobody can ask again.
Exit code 1: something is to be looked at, or there is no such object.
The JSON follows docs/schema/explain-wpa.v1.json.";

/// Says why a workload has the replicas that it has
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

/// Explains a watermark autoscaler.
pub(super) fn run(arguments: &WpaArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let object = &arguments.object;
    let (namespace, name) = object.resolve_object()?;
    let report = with_cluster(object, terminal, async |cluster| {
        wpa_collect::explain(&cluster, namespace.as_deref(), &name).await
    })?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
