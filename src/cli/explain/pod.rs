//! `plimsoll explain pod`: its flags, which are those by which the updater decides, and the question behind them.

use std::time::Duration;

use clap::Args;

use super::{ObjectArgs, ask, print};
use crate::{
    cli::{Exit, decisions::DecisionArgs, output::Problem, terminal::Terminal, typed::Typed},
    explain::pod::text,
    run::{
        UpdaterConfig,
        config::{Address, Election, LogConfig, LogFormat, ObjectMetrics},
        updater::{
            self, PodConfig,
            config::{DryRun, Rate},
        },
    },
};
use plimsoll_core::recommender::Scope;

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
    decisions: DecisionArgs,
}

impl PodArgs {
    pub(super) fn config(
        &self,
        typed: &Typed,
        variable: impl Fn(&str) -> String,
    ) -> Result<PodConfig, Problem> {
        let (namespace, name) = self.object.object()?;
        let refuse = |why: String| Problem::new(Exit::Findings, why);
        let decisions = &self.decisions;
        let none = Rate { per_second: 0.0, burst: 0 };
        Ok(PodConfig {
            namespace,
            name,
            reach: self.object.reach(),
            updater: UpdaterConfig {
                settings: decisions.settings(typed).map_err(refuse)?,
                native_sidecars: decisions.native_sidecars(),
                limit_policy: decisions.limit_policy(),
                admission: decisions.admission(variable).map_err(refuse)?,
                heartbeats: decisions.heartbeats(),
                election: Election {
                    on: false,
                    explicit: false,
                    lease_duration: Duration::ZERO,
                    renew_deadline: Duration::ZERO,
                    retry_period: Duration::ZERO,
                    name: self.leader_elect_resource_name.clone(),
                    namespace: self.leader_elect_resource_namespace.clone(),
                },
                // It makes no pass, changes nothing and serves nobody.
                interval: Duration::ZERO,
                evictions: none,
                resizes: none,
                boost_workers: 1,
                dry_run: Some(DryRun::default()),
                address: Address { host: String::new(), port: 0 },
                scope: Scope::default(),
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
    typed: &Typed,
    terminal: &Terminal,
) -> Result<Exit, Problem> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (config, object) = (arguments.config(typed, variable)?, &arguments.object);
    let report = ask(object, terminal, async |cluster| updater::explain(&config, &cluster).await)?;
    print(object, terminal, &report, text::render, report.findings.is_empty())
}
