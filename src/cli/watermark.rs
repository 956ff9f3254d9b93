//! `plimsoll watermark`: its flags, with upstream's names where they exist.

pub(super) mod dry_run;
mod dry_run_file;
mod flags;

use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};

use self::{
    dry_run::DryRunArgs,
    flags::{LeaseArgs, LogArgs, RecommenderTlsArgs, WatermarkClusterArgs, namespaces},
};
use super::{
    Exit,
    daemon::run_controller,
    go_values,
    output::{self, CliError},
    parsed_flags::{NoEffect, ParsedFlags},
    prometheus_auth::{self, non_empty},
    prometheus_queries::PrometheusQueryArgs,
    terminal::Terminal,
};
use crate::{
    controllers::{
        ReplicaSettings, WatermarkConfig, runtime::config::Address, updater::config::DryRun,
        watermark::EVENT_COMPONENT,
    },
    telemetry::{Cardinality, LabelSet},
};
use plimsoll_core::types::compat::{Compat, Fix, Fixes};

pub const NAME: &str = "watermark";
pub const PROGRAM: &str = "manager";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll watermark --dry-run                  logs what it would do, and why
  plimsoll watermark --compat=upstream -workers 4
  plimsoll watermark --prometheus-address http://prometheus:9090
  plimsoll watermark dry-run list --all         which objects are in dry run

-h shows common flags only. Flags are parsed like upstream's, by Go's own rules:
-a is --a, boolean flags are set as in -a=false, and parsing stops at the first
argument that is not a flag. See docs/configuration.md for all.";

/// The default number of concurrent reconciles. They mostly wait for responses: with metrics that take 50 ms, 16 workers
/// reconcile 4,800 objects in 15 seconds.
const DEFAULT_WORKERS: u32 = 16;

/// The address at which upstream always serves metrics, regardless of its flags.
const UPSTREAM_METRICS_ADDRESS: Address = Address { host: String::new(), port: 8383 };

/// Scales workloads to keep metrics between two watermarks
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_negates_reqs = true)]
pub struct WatermarkArgs {
    #[command(subcommand)]
    command: Option<WatermarkCommand>,
    /// Compatibility mode: `plimsoll`, or `upstream` including its bugs
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    compat: Compat,
    /// Disables a fix of an upstream bug (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_short_help = true)]
    disable_fix: Vec<Fix>,
    /// Time between the end of one reconcile of an object and the next
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    period: Duration,
    /// Maximum number of concurrent reconciles [default: 16, 1 with --compat=upstream]
    #[arg(long, value_name = "COUNT", value_parser = go_values::integer_between(0_u32, 10_000))]
    workers: Option<u32>,
    /// Minimum time between two status updates in which only values differ [with --compat=upstream: 0s]
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    status_interval: Duration,
    /// Maximum age of a metric value; older values are stale; 0 means any age
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_values::duration)]
    max_metric_age: Duration,
    /// Reports in a condition instead of events that nothing is scaled [default: true, false with --compat=upstream]
    #[arg(long = "skipNotScalingEvents", id = "skipNotScalingEvents", value_name = "BOOL")]
    #[arg(action = ArgAction::Set, hide_short_help = true)]
    skip_not_scaling_events: Option<bool>,
    /// Decides, counts and logs, but writes nothing to the cluster
    #[arg(long)]
    dry_run: bool,
    /// Writes events even in a dry run
    #[arg(long, requires = "dry_run", hide_short_help = true)]
    dry_run_events: bool,
    /// Address on which to serve metrics; always :8383 with --compat=upstream
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8383")]
    metrics_addr: String,
    /// Port on which to serve health
    #[arg(long, value_name = "PORT", default_value = "9440", value_parser = go_values::integer_between(0_u16, u16::MAX))]
    health_port: u16,
    /// Labels of metrics with upstream's names: those of release `v0.10`, `v0.11` or `v0.12`
    #[arg(long, value_name = "RELEASE", default_value = "v0.12", value_parser = label_set)]
    #[arg(hide_short_help = true)]
    metric_labels: LabelSet,
    /// Metrics per object: `standard`, `all`, `restricted` or `off` (docs/metrics.md)
    #[arg(long, value_name = "WHICH", default_value = "standard", hide_short_help = true)]
    object_metrics: Cardinality,
    /// Prints the version and exits
    #[arg(long)]
    version: bool,
    /// Accepted, without effect: there is no periodic resync
    #[arg(long = "syncPeriodSeconds", id = "syncPeriodSeconds", value_name = "SECONDS")]
    #[arg(value_parser = NoEffect::checked(go_values::integer_between(i64::MIN, i64::MAX)))]
    #[arg(default_value = "3600", hide_short_help = true)]
    sync_period_seconds: NoEffect,
    /// Accepted, without effect: there is no profiler
    #[arg(long = "ddProfilingEnabled", id = "ddProfilingEnabled", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean))]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    dd_profiling_enabled: NoEffect,
    /// Accepted, without effect: there is no tracer
    #[arg(long = "ddTracingEnabled", id = "ddTracingEnabled", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean))]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    dd_tracing_enabled: NoEffect,
    #[command(flatten)]
    cluster: WatermarkClusterArgs,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    recommenders: RecommenderTlsArgs,
    #[command(flatten)]
    queries: PrometheusQueryArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
enum WatermarkCommand {
    DryRun(Box<DryRunArgs>),
}

/// Parses a release, which determines the labels of metrics.
fn label_set(text: &str) -> Result<LabelSet, String> {
    match text {
        "v0.10" => Ok(LabelSet::V10),
        "v0.11" => Ok(LabelSet::V11),
        "v0.12" => Ok(LabelSet::V12),
        _ => Err("use v0.10 (also for earlier releases), v0.11 or v0.12".to_owned()),
    }
}

impl WatermarkArgs {
    /// Builds the configuration and validates it. `home` is the namespace of this
    /// process.
    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<WatermarkConfig, CliError> {
        let upstream = self.compat == Compat::Upstream;
        let address = if upstream {
            UPSTREAM_METRICS_ADDRESS
        } else {
            let invalid = |why: String| format!("--metrics-addr={}: {why}", self.metrics_addr);
            self.metrics_addr.parse().map_err(invalid)?
        };
        let own_namespace = non_empty(&typed.environment.variable("NAMESPACE"));
        let (namespaces, warning) = namespaces(&typed.environment.variable("WATCH_NAMESPACE"));
        let mut warnings = self.warnings(typed);
        warnings.extend(warning);
        let default_workers = if upstream { 1 } else { DEFAULT_WORKERS };
        let interval_counts = !upstream || typed.is_set("status_interval");
        let health_address = Address { host: String::new(), port: self.health_port };
        let addresses = vec![address, health_address];
        let home = own_namespace.or(typed.environment.pod_namespace());
        let settings = ReplicaSettings {
            process: self.cluster.process(self.compat, addresses, self.log.log(), warnings),
            event_component: EVENT_COMPONENT,
            compat: self.compat,
            period: self.period,
            workers: self.workers.unwrap_or(default_workers).max(1) as usize,
            status_interval: if interval_counts { self.status_interval } else { Duration::ZERO },
            request_timeout: self.cluster.timeout(),
            namespaces,
            dry_run: self.dry_run.then_some(DryRun { events: self.dry_run_events }),
            election: self.lease.election(self.dry_run, home)?,
            object_metrics: self.object_metrics,
        };
        let all_fixes = Fixes::for_compat(self.compat);
        Ok(WatermarkConfig {
            settings,
            fixes: self.disable_fix.iter().copied().fold(all_fixes, Fixes::without),
            skips_idle_events: self.skip_not_scaling_events.unwrap_or(!upstream),
            max_metric_age: Some(self.max_metric_age).filter(|age| !age.is_zero()),
            labels_as_tags: typed
                .environment
                .variable("DD_LABELS_AS_TAGS")
                .split_whitespace()
                .map(ToOwned::to_owned)
                .collect(),
            cluster: typed.environment.variable("K8S_CLUSTER_NAME"),
            recommender_tls: self.recommenders.tls()?,
            label_set: self.metric_labels,
            prometheus: self.queries.queries(typed)?,
        })
    }

    /// Warnings about flags that do not prevent the start.
    fn warnings(&self, typed: &ParsedFlags) -> Vec<String> {
        let mut warnings: Vec<String> = typed.ignored_flags_warning().into_iter().collect();
        warnings.extend(typed.without_effect_warning());
        if self.compat == Compat::Upstream && typed.is_set("metrics_addr") {
            warnings.push(
                "no effect with --compat=upstream: --metrics-addr: metrics are served on :8383"
                    .to_owned(),
            );
        }
        warnings.extend(self.recommenders.warning(typed));
        warnings.extend(prometheus_auth::exposed_secret_warnings(typed));
        warnings
    }

    pub(super) fn check_subcommand(&self) -> Option<Result<(), CliError>> {
        self.command.as_ref().map(|WatermarkCommand::DryRun(arguments)| arguments.check())
    }
}

/// Runs the controller until a termination signal, or the subcommand.
pub fn run(
    arguments: &WatermarkArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    if let Some(WatermarkCommand::DryRun(arguments)) = &arguments.command {
        return dry_run::run(arguments, terminal);
    }
    if arguments.version {
        output::print_result(concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n"))?;
        return Ok(Exit::Fine);
    }
    let config = arguments.config(typed)?;
    run_controller("watermark controller", None, 2, config.settings.compat, config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::watermark_config;

    fn of(flags: &[&str]) -> WatermarkConfig {
        watermark_config(flags, |_| String::new()).expect("flags that make sense")
    }

    #[test]
    fn defaults_follow_the_compat_mode() {
        let ours = of(&[]);
        assert_eq!((ours.settings.workers, ours.skips_idle_events), (16, true));
        assert_eq!((ours.settings.process.qps, ours.settings.process.burst), (100.0, 150));
        assert_eq!(ours.settings.status_interval, Duration::from_mins(1));
        assert_eq!((ours.max_metric_age, ours.prometheus.transport.address.as_str()), (None, ""));
        assert_eq!(
            ours.settings.process.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [":8383", ":9440"]
        );
        assert!(
            ours.settings.election.enabled
                && ours.settings.election.name == "watermarkpodautoscaler-lock"
        );
        let upstream = of(&["-compat=upstream"]);
        assert_eq!((upstream.settings.workers, upstream.skips_idle_events), (1, false));
        assert_eq!((upstream.settings.process.qps, upstream.settings.process.burst), (20.0, 30));
        assert_eq!(
            (upstream.settings.status_interval, upstream.settings.election.enabled),
            (Duration::ZERO, true)
        );
        let set = of(&[
            "--compat=upstream",
            "-workers=7",
            "-skipNotScalingEvents",
            "-status-interval",
            "5s",
            "-client-qps=0",
            "-metric-labels=v0.10",
        ]);
        assert_eq!(
            (set.settings.workers, set.skips_idle_events, set.settings.process.qps),
            (7, true, f32::INFINITY)
        );
        assert_eq!(set.settings.status_interval, Duration::from_secs(5));
        assert_eq!(set.label_set, LabelSet::V10);
    }

    #[test]
    fn in_upstreams_mode_metrics_are_served_on_its_fixed_address_with_a_warning() {
        assert_eq!(
            of(&["-metrics-addr=127.0.0.1:80"]).settings.process.addresses[0].to_string(),
            "127.0.0.1:80"
        );
        let upstream = of(&["-metrics-addr=0", "-compat=upstream"]);
        assert_eq!(
            (
                upstream.settings.process.addresses[0].to_string(),
                upstream.settings.process.warnings.len()
            ),
            (":8383".to_owned(), 1)
        );
        let refused = watermark_config(&["-metrics-addr=0"], |_| String::new());
        let error = refused.expect_err("is no address");
        assert!(error.starts_with("--metrics-addr=0: use [HOST]:PORT"), "{error}");
    }

    #[test]
    fn recommender_tls_flags_have_an_effect_only_with_a_ca_or_a_certificate() {
        let idle = of(&["-tls-server-name=x", "-tls-insecure-skip-verify"]);
        assert_eq!(idle.recommender_tls, plimsoll_core::api::scale_target::TlsConfig::default());
        assert!(
            idle.settings.process.warnings[0]
                .contains("--tls-server-name, --tls-insecure-skip-verify")
        );
        let tls = of(&["-tls-ca-file=/ca", "-tls-server-name=x"]).recommender_tls;
        assert_eq!((&*tls.ca_file, &*tls.server_name), ("/ca", "x"));
        let refused = watermark_config(&["-tls-cert-file=/c"], |_| String::new());
        assert!(refused.is_err_and(|error| error.contains("--tls-key-file")));
    }

    #[test]
    fn the_environment_sets_watched_namespaces_and_exported_labels() {
        let with = |name: &'static str, value: &'static str| {
            let variable = move |asked: &str| {
                if asked == name { value.to_owned() } else { String::new() }
            };
            watermark_config(&[], variable).expect("valid variables")
        };
        assert_eq!(with("WATCH_NAMESPACE", "a,b").settings.namespaces, ["a", "b"]);
        assert!(with("WATCH_NAMESPACE", "a,b").settings.process.warnings.is_empty());
        let odd = with("WATCH_NAMESPACE", "a, b,");
        assert_eq!((odd.settings.namespaces.len(), odd.settings.process.warnings.len()), (2, 1));
        assert_eq!(with("DD_LABELS_AS_TAGS", " team  tier\n").labels_as_tags, ["team", "tier"]);
        assert_eq!(with("K8S_CLUSTER_NAME", "eu").cluster, "eu");
        assert_eq!(with("NAMESPACE", "datadog").settings.election.namespace, "datadog");
    }

    #[test]
    fn flags_without_effect_and_stray_arguments_give_one_warning_each() {
        let config = of(&["-ddTracingEnabled", "-syncPeriodSeconds", "60", "-workers=2"]);
        assert_eq!(
            config.settings.process.warnings,
            ["accepted, without effect: --ddTracingEnabled, --syncPeriodSeconds"]
        );
        let config = of(&["-enable-leader-election", "false", "-workers=2"]);
        assert_eq!((config.settings.workers, config.settings.election.enabled), (16, true));
        assert!(
            config.settings.process.warnings[0].ends_with("as in -ddTracingEnabled=false"),
            "{config:?}"
        );
    }

    #[test]
    fn a_lease_without_a_known_namespace_requires_the_flag() {
        let outside = |flags: &[&str]| {
            let words = ["plimsoll", NAME].iter().chain(flags).map(std::ffi::OsString::from);
            let (cli, typed) = crate::cli::parse(words).expect("parses");
            let crate::cli::Command::Watermark(arguments) = cli.command else {
                panic!("another role")
            };
            arguments.config(&typed).map_err(CliError::into_message)
        };
        for flags in [&[][..], &["-dry-run", "-enable-leader-election"]] {
            let error = outside(flags).expect_err("has no namespace");
            assert!(error.contains("--leader-elect-resource-namespace"), "{error}");
        }
        // As in the example of --help.
        assert!(!outside(&["--dry-run"]).expect("needs no Lease").settings.election.enabled);
        assert!(!of(&["-dry-run"]).settings.election.enabled && of(&[]).settings.election.enabled);
    }

    #[test]
    fn invalid_flags_are_rejected() {
        for flags in [
            &["-dry-run-events"][..],
            &["-period=0"],
            &["-metric-labels=0.10"],
            &["-workers=-1"],
            &["-leader-elect-lease-duration=1s"],
            &["-skipnotscalingevents"],
            &["-workers=1", "dry-run", "list"],
        ] {
            assert!(watermark_config(flags, |_| String::new()).is_err(), "{flags:?}");
        }
    }
}
