//! `plimsoll explain pod`: its flags, which include those for the updater's decisions.

use clap::Args;

use super::{ObjectArgs, print, with_cluster};
use crate::{
    cli::{
        Exit, output::CliError, parsed_flags::ParsedFlags, terminal::Terminal,
        updater_policy::UpdaterPolicyArgs,
    },
    cluster::clock::Clock,
    report::{
        collect::pod::{self as explain, ExplainPodConfig},
        explain::pod::text,
    },
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-5d9c-x2x4z           in the context's namespace
  plimsoll explain pod shop/web-5d9c-x2x4z --context prod
  plimsoll explain pod -n shop web-0 -o json | jq .verdict

The updater's own code decides, based on the pod, its workload and its VPA, and
on the stored state of their last changes: pass the flags of the updater (--help
lists all). Nothing is written, and no running updater is contacted. Resources
that you are not allowed to read are assumed healthy, and listed.
Exit code 1: a change is needed but blocked, or the pod does not exist.
The JSON follows docs/schema/explain-pod.v1.json.";

/// Explains whether the updater would change a pod, how, or why not
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PodArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Name of the updater's Lease, which stores its recent changes
    #[arg(long, value_name = "NAME", default_value = "vpa-updater")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: String,
    /// Namespace of that Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAMESPACE")]
    leader_elect_resource_namespace: String,
    #[command(flatten)]
    policy: UpdaterPolicyArgs,
}

impl PodArgs {
    pub(super) fn config(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<ExplainPodConfig, CliError> {
        let (namespace, name) = self.object.resolve_object()?;
        let refuse = |why: String| CliError::new(Exit::Findings, why);
        let policy = &self.policy;
        Ok(ExplainPodConfig {
            namespace,
            name,
            settings: policy.settings(typed).map_err(refuse)?,
            native_sidecars: policy.native_sidecars(),
            limit_policy: policy.limit_policy(),
            admission_check: policy.admission(variable).map_err(refuse)?,
            heartbeat_namespace: policy.heartbeat_namespace(),
            lease_namespace: self.leader_elect_resource_namespace.clone(),
            lease_name: self.leader_elect_resource_name.clone(),
        })
    }
}

/// Explains a pod.
pub(super) fn run(
    arguments: &PodArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (config, object) = (arguments.config(typed, variable)?, &arguments.object);
    let report = with_cluster(object, terminal, async |cluster| {
        explain::explain(&config, &cluster, Clock::wall().now()).await
    })?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
