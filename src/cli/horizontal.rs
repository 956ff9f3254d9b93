//! `plimsoll horizontal`: its flags, with upstream's names where they exist.

use std::time::Duration;

use clap::Args;
use plimsoll_core::{
    hpa::{Fixes, sentinel::SentinelRules},
    types::compat::Compat,
};

use super::{
    Exit,
    cluster::{ApiServerArgs, ElectionArgs},
    daemon::run_controller,
    go_values,
    hpa_controller::HpaControllerArgs,
    klog::LogArgs,
    output::CliError,
    parsed_flags::ParsedFlags,
    prometheus_auth,
    prometheus_queries::PodUsageArgs,
};
use crate::{
    controllers::{
        HorizontalConfig, ReplicaSettings,
        horizontal::config::{HorizontalMode, SentinelConfig},
        runtime::config::Address,
    },
    telemetry::Cardinality,
};

pub const NAME: &str = "horizontal";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll horizontal                          compares every HPA with what
                                               the cluster's controller did
  plimsoll horizontal --namespaces=shop,api --kubeconfig ~/.kube/config
  plimsoll horizontal --horizontal-pod-autoscaler-sync-period=10s
  plimsoll horizontal --usage-source=prometheus \\
    --prometheus-address http://prometheus:9090
  plimsoll horizontal --mode=adopted           also scales the targets of HPAs
                                               that were adopted
  plimsoll horizontal --mode=replace           scales the targets of all HPAs:
                                               the cluster's controller is off

In shadow mode nothing is written but its Lease. See docs/horizontal.md.
-h shows common flags only. Flags are parsed like upstream's: --a_b is --a-b,
--leader-elect=false, -v4, 1h30m. See docs/configuration.md for all.";

/// Decides for every HorizontalPodAutoscaler, and compares with the cluster's controller
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HorizontalArgs {
    /// What to do with objects: `shadow` decides and compares, and writes nothing; `adopted` also changes the replicas of
    /// objects that were adopted; `replace` changes those of all, once it has seen that the HPA controller of the cluster is
    /// off
    #[arg(long, value_name = "MODE", default_value = "shadow")]
    mode: HorizontalMode,
    /// Compatibility mode: `plimsoll`, or `upstream` including its bugs
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    compat: Compat,
    /// Time between two reconciles of an object; the same as in the cluster
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// Maximum number of concurrent reconciles
    #[arg(long, value_name = "COUNT", default_value = "16", value_parser = go_values::integer_between(1_u32, 10_000))]
    #[arg(hide_short_help = true)]
    concurrent_horizontal_pod_autoscaler_syncs: u32,
    /// Namespaces to watch, separated by commas; all if not set
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Address on which to serve metrics and health
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8945")]
    address: Address,
    /// Metrics per object: `standard`, `all`, `restricted` or `off` (docs/metrics.md)
    #[arg(long, value_name = "WHICH", default_value = "standard", hide_short_help = true)]
    object_metrics: Cardinality,
    /// Maximum age of the result of a query of an object; an older one is stale; 0 means any age
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    max_metric_age: Duration,
    #[command(flatten)]
    controller: HpaControllerArgs,
    #[command(flatten)]
    sentinel: SentinelArgs,
    #[command(flatten)]
    usage: PodUsageArgs,
    #[command(flatten)]
    cluster: ApiServerArgs,
    /// Timeout of requests to the API server
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    request_timeout: Duration,
    #[command(flatten)]
    election: ElectionArgs,
    /// Name of the Lease
    #[arg(
        long,
        value_name = "NAME",
        default_value = "plimsoll-horizontal",
        hide_short_help = true
    )]
    leader_elect_resource_name: String,
    #[command(flatten)]
    log: LogArgs,
}

impl HorizontalArgs {
    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<HorizontalConfig, CliError> {
        let election = self.election.election(&self.leader_elect_resource_name, self.compat)?;
        if self.mode == HorizontalMode::Replace && !election.enabled {
            return Err(CliError::usage(
                "--mode=replace needs leader election, which --leader-elect=false disables: two controllers would scale the \
                 same objects",
            ));
        }
        let mut warnings = typed.warnings();
        warnings.extend(prometheus_auth::exposed_secret_warnings(typed));
        let names = self.namespaces.iter().map(|name| name.trim());
        let mut namespaces: Vec<_> =
            names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        namespaces.sort();
        namespaces.dedup();
        let fixes = match self.compat {
            Compat::Plimsoll => Fixes::ALL,
            Compat::Upstream => Fixes::UPSTREAM,
        };
        let (usage, queries) = self.usage.sources(typed)?;
        let settings = ReplicaSettings {
            process: self.cluster.process(&self.address, &self.log, warnings),
            event_component: self.mode.event_component(),
            // Scales are read from watches: upstream reads each before it may write it.
            compat: Compat::Plimsoll,
            period: self.horizontal_pod_autoscaler_sync_period,
            workers: self.concurrent_horizontal_pod_autoscaler_syncs as usize,
            status_interval: self.mode.status_interval(),
            request_timeout: self.request_timeout,
            namespaces,
            dry_run: None,
            election,
            object_metrics: self.object_metrics,
        };
        Ok(HorizontalConfig {
            settings,
            mode: self.mode,
            compat: self.compat,
            fixes,
            hpa: self.controller.config(),
            sentinel: self.sentinel.config(),
            usage,
            queries,
            max_metric_age: Some(self.max_metric_age).filter(|age| !age.is_zero()),
        })
    }
}

/// The longest and the shortest time between two reads of the sentinel.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Reads of the sentinel in each period of the HPA controller.
const POLLS_PER_PERIOD: u32 = 8;

/// How it is found out that the HPA controller of the cluster is off.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "HPA controller of the cluster")]
struct SentinelArgs {
    /// The period of the HPA controller that `--mode=replace` replaces: for four of them, and at least a minute, it must not
    /// write the status of an object that is made for this
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    builtin_sync_period: Duration,
    /// The minimum of that time
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::positive_duration)]
    #[arg(hide = true)]
    sentinel_proof: Duration,
    /// How long after the HPA controller was found to be active it is checked again
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::positive_duration)]
    #[arg(hide = true)]
    sentinel_rearm: Duration,
}

impl SentinelArgs {
    fn config(&self) -> SentinelConfig {
        let (shortest, longest) = POLL_INTERVALS;
        let poll_interval = (self.builtin_sync_period / POLLS_PER_PERIOD).clamp(shortest, longest);
        let rules =
            SentinelRules::new(self.sentinel_proof, self.builtin_sync_period, self.sentinel_rearm);
        SentinelConfig { rules, poll_interval }
    }
}

pub fn run(arguments: &HorizontalArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let config = arguments.config(typed)?;
    run_controller("horizontal controller", None, 2, config.compat, config)
}
