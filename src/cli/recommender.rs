//! `plimsoll recommender`: its flags, with upstream's names where they exist.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{
    Exit,
    cluster::{ClusterArgs, ElectionArgs},
    daemon::run_controller,
    feature_gates::{FeatureGate, FeatureGates},
    go_values,
    klog::LogArgs,
    output::CliError,
    parsed_flags::{NoEffect, ParsedFlags},
    prometheus::PrometheusArgs,
    prometheus_auth::{self, non_empty},
    recommender_model::{ModelArgs, PodCapArgs},
};
use crate::{
    cluster::container_usage::external_usage::ExternalMetrics,
    controllers::{
        recommender::config::{RecommenderConfig, StorageChoice, UsageSource},
        runtime::config::Address,
    },
    telemetry::Cardinality,
};
use plimsoll_core::{
    recommender::{NamespaceScope, Shard},
    types::compat::Compat,
};

/// The name of the role, and of upstream's binary.
pub const NAME: &str = "recommender";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll recommender --kubeconfig ~/.kube/config --leader-elect=false
  plimsoll recommender --compat=upstream --v=4
  plimsoll recommender --storage=prometheus --checkpoint-fallback \\
    --prometheus-address http://prometheus:9090
  plimsoll recommender --storage=local:/data --shard=1/3

-h shows common flags only. Flags are parsed like upstream's: --a_b is --a-b,
--memory-saver=false, -v4, 0x10, 1h30m. See docs/configuration.md for all.";

/// Computes recommendations and writes them to the status of VPAs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RecommenderArgs {
    /// Name by which VPAs select this recommender; `default` also handles VPAs that select none
    #[arg(long, value_name = "NAME", default_value = "default")]
    recommender_name: String,
    /// Time between two passes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::positive_duration)]
    recommender_interval: Duration,
    /// Address on which to serve metrics and health
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8942")]
    address: Address,
    /// Storage of the history: `checkpoint` in the cluster, `prometheus`, or `local[:DIR]`
    #[arg(long, value_name = "PLACE", default_value = "checkpoint")]
    storage: StorageChoice,
    /// Age at which a changed checkpoint is written [with --compat=upstream: every pass]
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    checkpoint_interval: Duration,
    /// Minimum time between two garbage collections of orphaned checkpoints
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    checkpoints_gc_interval: Duration,
    /// Time limit for writing checkpoints in one pass
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    checkpoints_timeout: Duration,
    /// Starts even if history could not be loaded
    #[arg(long, hide_short_help = true)]
    history_optional: bool,
    /// Accepted, without effect: history is only kept for pods of VPAs
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    memory_saver: NoEffect,
    /// Maximum number of concurrent writes
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = go_values::integer_between(1_u32, 10_000))]
    #[arg(hide_short_help = true)]
    update_worker_count: u32,
    /// Deprecated, without effect: see --update-worker-count
    #[arg(long, value_name = "COUNT", default_value = "10", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::integer_between(i64::MIN, i64::MAX)))]
    min_checkpoints: NoEffect,
    /// Handles one share of the namespaces, such as 1/3 of 1/3, 2/3 and 3/3
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Metrics per object: `standard`, `all`, `restricted` or `off` (docs/metrics.md)
    #[arg(long, value_name = "WHICH", default_value = "standard", hide_short_help = true)]
    object_metrics: Cardinality,
    /// Relative change of bounds below which they are not written [with --compat=upstream: 0]
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = go_values::fraction)]
    #[arg(hide_short_help = true)]
    bounds_dead_band: f64,
    #[command(flatten)]
    caps: PodCapArgs,
    /// Feature gates, such as PerVPAConfig=true,NativeSidecar=false
    #[arg(long, value_name = "GATES")]
    feature_gates: Vec<FeatureGates>,
    /// Source of usage: metrics.k8s.io, external.metrics.k8s.io or a Prometheus
    #[arg(long, value_name = "SOURCE", default_value = "metrics", hide_short_help = true)]
    usage_source: UsageSourceArg,
    /// Reads usage from external.metrics.k8s.io: --usage-source=external does the same
    #[arg(long, hide_short_help = true)]
    use_external_metrics: bool,
    /// External metric for CPU, by container in the label --container-name-label; empty for none
    #[arg(long, value_name = "METRIC", default_value = "", hide_short_help = true)]
    external_metrics_cpu_metric: String,
    /// External metric for memory, by container in the label --container-name-label; empty for none
    #[arg(long, value_name = "METRIC", default_value = "", hide_short_help = true)]
    external_metrics_memory_metric: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "vpa-recommender-lease")]
    #[arg(hide_short_help = true)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prometheus: PrometheusArgs,
}

/// The value of `--usage-source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UsageSourceArg {
    Metrics,
    External,
    Prometheus,
}

impl RecommenderArgs {
    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<RecommenderConfig, CliError> {
        let compat = self.model.compat;
        let upstream = compat == Compat::Upstream;
        let scope = NamespaceScope { shard: self.shard, ..self.cluster.scope()? };
        let election = self.election.election(&self.leader_elect_resource_name, compat)?;
        let gates = FeatureGates::merged(self.feature_gates.iter().cloned());
        let mut settings = self.model.settings();
        settings.sampling_interval = self.recommender_interval;
        settings.per_vpa_config = gates.is_enabled(FeatureGate::PerVpaConfig, compat);
        let usage = match self.usage_source {
            UsageSourceArg::Prometheus if self.use_external_metrics => {
                return Err(
                    "--use-external-metrics and --usage-source=prometheus are mutually exclusive: set one of them"
                        .into(),
                );
            }
            UsageSourceArg::Prometheus => UsageSource::Prometheus,
            UsageSourceArg::Metrics if !self.use_external_metrics => UsageSource::Metrics,
            UsageSourceArg::Metrics | UsageSourceArg::External => {
                UsageSource::External(ExternalMetrics {
                    cpu: non_empty(&self.external_metrics_cpu_metric),
                    memory: non_empty(&self.external_metrics_memory_metric),
                    container_label: self.prometheus.series.container_name_label.clone(),
                })
            }
        };
        let warnings = self.warnings(typed, &scope, &usage);
        Ok(RecommenderConfig {
            process: self.cluster.server.process(&self.address, &self.log, warnings),
            name: self.recommender_name.clone(),
            compat,
            settings,
            interval: self.recommender_interval,
            storage: self.storage.clone(),
            checkpoint_interval: if upstream { Duration::ZERO } else { self.checkpoint_interval },
            checkpoints_gc_interval: self.checkpoints_gc_interval,
            checkpoints_timeout: self.checkpoints_timeout,
            workers: self.update_worker_count as usize,
            scope,
            election,
            usage,
            prometheus: self.prometheus.prometheus(typed)?,
            object_metrics: self.object_metrics,
            bounds_dead_band: if upstream { 0.0 } else { self.bounds_dead_band },
            native_sidecars: gates.is_enabled(FeatureGate::NativeSidecar, compat),
            cap_to_largest_node: self.caps.cap_to_largest_node,
            pod_cap: self.caps.pod(),
            history_optional: self.history_optional,
        })
    }

    /// Warnings about flags that do not prevent the start.
    fn warnings(
        &self,
        typed: &ParsedFlags,
        scope: &NamespaceScope,
        usage: &UsageSource,
    ) -> Vec<String> {
        let mut warnings: Vec<String> = typed.stray_arguments_warning().into_iter().collect();
        warnings.extend(prometheus_auth::exposed_secret_warnings(typed));
        let reads_series = self.storage == StorageChoice::Prometheus;
        warnings.extend(self.prometheus.warnings(typed, reads_series));
        warnings.extend(typed.without_effect_warning());
        if self.model.compat == Compat::Upstream {
            let ineffective = typed.set_among(&["bounds_dead_band", "checkpoint_interval"]);
            if !ineffective.is_empty() {
                warnings
                    .push(format!("no effect with --compat=upstream: {}", ineffective.join(", ")));
            }
        }
        warnings.extend(ClusterArgs::ignored_namespaces_warning(scope));
        if matches!(usage, UsageSource::External(ExternalMetrics { cpu: None, memory: None, .. })) {
            warnings.push(
                "--use-external-metrics without a metric reads no usage: set \
                 --external-metrics-cpu-metric or --external-metrics-memory-metric"
                    .to_owned(),
            );
        }
        warnings
    }
}

pub fn run(arguments: &RecommenderArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let config = arguments.config(typed)?;
    run_controller(NAME, Some(config.name.clone()), 2, config.compat, config)
}
