//! `plimsoll explain vpa`: its flags, and the run.

use clap::{ArgAction, Args};

use super::{ObjectArgs, print, with_cluster};
use crate::{
    cli::{
        Exit,
        feature_gates::{FeatureGate, FeatureGates},
        model::ModelArgs,
        output::CliError,
        pod_caps::PodCapArgs,
        terminal::Terminal,
    },
    cluster::clock::Clock,
    controllers::recommender::config::StorageChoice,
    report::{
        collect::{vpa as explain, vpa::ExplainConfig},
        explain::text,
    },
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa web                      in the context's namespace
  plimsoll explain vpa shop/web --context prod
  plimsoll explain vpa -n shop web -o json | jq .containers

The numbers are recomputed from the stored history, the VPA and its pods, with
the recommender's own code: pass the flags of the recommender (--help lists
those of the model). Without checkpoints, the explanation that the recommender
stored on the VPA is shown. Nothing is written, and no running recommender is
contacted.
Exit code 1: there are findings, or the object does not exist.
The JSON follows docs/schema/explain-vpa.v1.json.";

/// Explains the recommendation of a VPA
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VpaArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Storage of the history: `checkpoint`, or `local[:DIR]` while no recommender uses it
    #[arg(long, value_name = "PLACE", default_value = "checkpoint")]
    #[arg(env = "PLIMSOLL_FLAG_STORAGE", hide_env = true)]
    storage: StorageChoice,
    /// Feature gates of the recommender, such as PerVPAConfig=true
    #[arg(long, value_name = "GATES", action = ArgAction::Append)]
    #[arg(env = "PLIMSOLL_FLAG_FEATURE_GATES", hide_short_help = true, hide_env = true)]
    feature_gates: Vec<FeatureGates>,
    #[command(flatten)]
    caps: PodCapArgs,
    #[command(flatten)]
    model: ModelArgs,
}

impl VpaArgs {
    pub(super) fn config(&self) -> Result<ExplainConfig, CliError> {
        let compat = self.model.compat();
        let gates = FeatureGates::merged(self.feature_gates.iter().cloned());
        let mut settings = self.model.settings();
        settings.per_vpa_config = gates.is_enabled(FeatureGate::PerVpaConfig, compat);
        let (namespace, name) = self.object.resolve_object()?;
        Ok(ExplainConfig {
            namespace,
            name,
            compat,
            settings,
            storage: self.storage.clone(),
            native_sidecars: gates.is_enabled(FeatureGate::NativeSidecar, compat),
            cap_to_largest_node: self.caps.to_largest_node(),
            pod_cap: self.caps.pod(),
        })
    }
}

/// Explains a VPA.
pub(super) fn run(arguments: &VpaArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let (config, object) = (arguments.config()?, &arguments.object);
    let report = with_cluster(object, terminal, async |cluster| {
        explain::explain(&config, &cluster, Clock::wall().now()).await
    })?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
