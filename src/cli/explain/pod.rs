//! `plimsoll explain pod`: its flags, which are those by which the updater decides, and the question behind them.

use std::time::Duration;

use clap::Args;

use super::{ObjectArgs, print, with_cluster};
use crate::{
    cli::{
        Exit, output::CliError, parsed_flags::ParsedFlags, terminal::Terminal,
        updater_policy::UpdaterPolicyArgs,
    },
    controllers::{
        UpdaterConfig,
        runtime::config::{Address, ElectionConfig, LogConfig, LogFormat, ObjectMetrics},
        updater::{
            self, ExplainPodConfig,
            config::{DryRun, RateLimit},
        },
    },
    report::explain::pod::text,
};
use plimsoll_core::recommender::NamespaceScope;

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-5d9c-x2x4z           in the context's namespace
  plimsoll explain pod shop/web-5d9c-x2x4z --context prod
  plimsoll explain pod -n shop web-0 -o json | jq .verdict

The updater's own code decides, on the pod, its workload and its VPA as they
are, and on what is stored about their last changes: give the flags that the
updater has (--help lists all). Nothing is written, and no updater is asked.
What you may not read is taken to be well, and named.
Exit code 1: a change is wanted and held back, or there is no such pod.
The JSON follows docs/schema/explain-pod.v1.json.";

/// Says whether the updater would change a pod, how, or why not
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PodArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Name of the updater's Lease, where it keeps what it changed of late
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
        let decisions = &self.policy;
        let none = RateLimit { per_second: 0.0, burst: 0 };
        Ok(ExplainPodConfig {
            namespace,
            name,
            cluster_options: self.object.cluster_options(),
            updater: UpdaterConfig {
                settings: decisions.settings(typed).map_err(refuse)?,
                native_sidecars: decisions.native_sidecars(),
                limit_policy: decisions.limit_policy(),
                admission_check: decisions.admission(variable).map_err(refuse)?,
                heartbeat_namespace: decisions.heartbeat_namespace(),
                election: ElectionConfig {
                    enabled: false,
                    explicitly_disabled: false,
                    lease_duration: Duration::ZERO,
                    renew_deadline: Duration::ZERO,
                    retry_period: Duration::ZERO,
                    name: self.leader_elect_resource_name.clone(),
                    namespace: self.leader_elect_resource_namespace.clone(),
                },
                // It makes no pass, changes nothing and serves nobody.
                interval: Duration::ZERO,
                eviction_rate: none,
                resize_rate: none,
                boost_workers: 1,
                dry_run: Some(DryRun::default()),
                address: Address { host: String::new(), port: 0 },
                scope: NamespaceScope::default(),
                kubeconfig: None,
                qps: f32::INFINITY,
                burst: u32::MAX,
                object_metrics: ObjectMetrics::Off,
                log: LogConfig { verbosity: 0, format: LogFormat::Text, file: None, stderr: false },
                warnings: Vec::new(),
            },
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
    let report =
        with_cluster(object, terminal, async |cluster| updater::explain(&config, &cluster).await)?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
