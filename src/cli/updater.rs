//! `plimsoll updater`: its flags, with upstream's names where they exist.

use std::time::Duration;

use clap::Args;

use super::{
    Exit,
    cluster::{ClusterArgs, ElectionArgs},
    daemon::run_controller,
    go_values,
    klog::LogArgs,
    output::CliError,
    parsed_flags::ParsedFlags,
    updater_policy::UpdaterPolicyArgs,
};
use crate::{
    controllers::{
        UpdaterConfig,
        runtime::config::Address,
        updater::config::{DryRun, RateLimit},
    },
    telemetry::Cardinality,
};

/// The name of the role, and of upstream's binary.
pub const NAME: &str = "updater";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll updater --dry-run                     logs what it would do, and why
  plimsoll updater --change-window '0 22 * * mon-fri for 6h in +01:00'
  plimsoll updater --max-disruptions-per-hour=20,2% --canary-watch=5m
  plimsoll updater --compat=upstream --eviction-rate-limit=0.5

-h shows common flags only. Flags are parsed like upstream's: --a_b is --a-b,
--leader-elect=false, -v4, 1h30m. See docs/configuration.md for all.";

/// Applies recommendations to running pods: resizes or evicts them, a few at a time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UpdaterArgs {
    /// Time between two passes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::positive_duration)]
    updater_interval: Duration,
    /// Decides, counts and logs, but writes nothing to the cluster
    #[arg(long)]
    dry_run: bool,
    /// Writes events even in a dry run
    #[arg(long, requires = "dry_run", hide_short_help = true)]
    dry_run_events: bool,
    /// Evictions per second, and resizes per second; 0 or less means no limit
    #[arg(long, value_name = "NUMBER", default_value = "-1", value_parser = go_values::number)]
    #[arg(allow_hyphen_values = true)]
    eviction_rate_limit: f64,
    /// Burst of evictions; with a limit, 0 blocks all evictions
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = go_values::integer_between(0_u32, u32::MAX))]
    #[arg(hide_short_help = true)]
    eviction_rate_burst: u32,
    /// Resizes per second, if different from evictions
    #[arg(long, value_name = "NUMBER", value_parser = go_values::number, allow_hyphen_values = true)]
    #[arg(hide_short_help = true)]
    resize_rate_limit: Option<f64>,
    /// Burst of resizes, if different from evictions
    #[arg(long, value_name = "COUNT", value_parser = go_values::integer_between(0_u32, u32::MAX))]
    #[arg(hide_short_help = true)]
    resize_rate_burst: Option<u32>,
    /// Address on which to serve metrics and health
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8943")]
    address: Address,
    /// Maximum number of pods from which to remove the startup boost concurrently
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = go_values::integer_between(1_u32, 10_000))]
    #[arg(hide_short_help = true)]
    concurrent_cpu_startup_boost_syncs: u32,
    /// Metrics per object: `standard`, `all`, `restricted` or `off` (docs/metrics.md)
    #[arg(long, value_name = "WHICH", default_value = "standard", hide_short_help = true)]
    object_metrics: Cardinality,
    #[command(flatten)]
    policy: UpdaterPolicyArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "vpa-updater", hide_short_help = true)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    log: LogArgs,
}

impl UpdaterArgs {
    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<UpdaterConfig, CliError> {
        let policy = &self.policy;
        let compat = policy.sizing.compat;
        let scope = self.cluster.scope()?;
        let admission = policy.admission(typed)?;
        let election = self.election.election(&self.leader_elect_resource_name, compat)?;
        let rate = |per_second: f64, burst: u32| RateLimit {
            per_second: if per_second > 0.0 { per_second as f32 } else { -1.0 },
            burst,
        };
        let evictions = rate(self.eviction_rate_limit, self.eviction_rate_burst);
        let resizes = rate(
            self.resize_rate_limit.unwrap_or(self.eviction_rate_limit),
            self.resize_rate_burst.unwrap_or(self.eviction_rate_burst),
        );
        let mut settings = policy.settings(typed)?;
        if self.dry_run {
            settings.guards = settings.guards.simulated();
        }
        let mut warnings = typed.warnings();
        warnings.extend(ClusterArgs::ignored_namespaces_warning(&scope));
        let rates = [("eviction", evictions), ("resize", resizes)];
        let blocked = rates.into_iter().filter(|(_, rate)| rate.blocks_all());
        warnings.extend(blocked.map(|(action, _)| {
            format!("a burst of 0 blocks every {action}, as in upstream: use a burst of 1 or more")
        }));
        Ok(UpdaterConfig {
            process: self.cluster.server.process(&self.address, &self.log, warnings),
            interval: self.updater_interval,
            settings,
            native_sidecars: policy.native_sidecars(),
            limit_policy: policy.sizing.limit_policy,
            retarget_hpas: policy.sizing.retarget_hpas()?,
            eviction_rate: evictions,
            resize_rate: resizes,
            boost_workers: self.concurrent_cpu_startup_boost_syncs as usize,
            admission_check: admission,
            heartbeat_namespace: policy.recommender_heartbeat_namespace.clone(),
            horizontal_lease_namespace: policy.sizing.horizontal_lease_namespace.clone(),
            dry_run: self.dry_run.then_some(DryRun { events: self.dry_run_events }),
            scope,
            election,
            object_metrics: self.object_metrics,
        })
    }
}

pub fn run(arguments: &UpdaterArgs, typed: &ParsedFlags) -> Result<Exit, CliError> {
    let config = arguments.config(typed)?;
    run_controller(NAME, None, 1, config.settings.compat, config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::cli::updater_config;
    use plimsoll_core::updater::guard::{GuardSettings, HeartbeatPolicy};

    #[test]
    fn guards_are_enabled_except_in_upstreams_mode_unless_set() {
        let of = |flags: &[&str]| {
            updater_config(flags, |_| String::new()).expect("valid flags").settings.guards
        };
        assert_eq!(of(&[]), GuardSettings::default());
        assert_eq!(of(&["--compat=upstream"]), GuardSettings::NONE);
        let some =
            of(&["--compat=upstream", "--canary-watch=3m", "--recommender-heartbeat=require"]);
        assert_eq!(some.canary.map(|canary| canary.watch), Some(Duration::from_mins(3)));
        assert_eq!((some.heartbeat, some.cool_down), (HeartbeatPolicy::Require, None));
        let none =
            of(&["--cool-down=0", "--circuit-breaker=false", "--max-disruptions-per-hour=off"]);
        assert_eq!((none.cool_down, none.breaker, none.cluster_disruptions), (None, None, None));
    }

    #[test]
    fn invalid_flags_are_rejected() {
        for flags in [
            &["--admission-controller-status-lease-timeout=0"][..],
            &["--concurrent-cpu-startup-boost-syncs=0"],
            &["--change-window=sometimes"],
            &["--dry-run-events"],
            &["--leader-elect-lease-duration=1s"],
            &["--retarget-hpas", "--compat=upstream"],
        ] {
            assert!(updater_config(flags, |_| String::new()).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn resizes_have_the_rate_limit_of_evictions_unless_set() {
        let of = |flags: &[&str]| {
            let config = updater_config(flags, |_| String::new()).expect("valid flags");
            (config.eviction_rate.per_second, config.resize_rate.per_second)
        };
        assert_eq!(of(&[]), (-1.0, -1.0));
        assert_eq!(of(&["--eviction-rate-limit=0"]), (-1.0, -1.0));
        assert_eq!(of(&["--eviction-rate-limit=0.5"]), (0.5, 0.5));
        assert_eq!(of(&["--eviction-rate-limit=0.5", "--resize-rate-limit", "-1"]), (0.5, -1.0));
    }

    #[test]
    fn a_rate_limit_with_a_burst_of_zero_blocks_and_no_limit_needs_no_burst() {
        let of = |flags: &[&str]| {
            let config = updater_config(flags, |_| String::new()).expect("valid flags");
            (!config.eviction_rate.blocks_all(), config.process.warnings.len())
        };
        assert_eq!(of(&["--eviction-rate-limit=0.5"]), (true, 0));
        assert_eq!(of(&["--eviction-rate-burst=0"]), (true, 0));
        let none = ["--eviction-rate-limit=0.5", "--eviction-rate-burst=0"];
        assert_eq!(of(&none), (false, 2), "resizes go by the same");
    }

    #[test]
    fn a_dry_run_disables_guards_that_observe_effects_of_changes() {
        let config = updater_config(&["--dry-run"], |_| String::new()).expect("valid flags");
        let guards = config.settings.guards;
        assert_eq!(
            (guards.breaker, guards.max_unproven_evictions, guards.external_overwrite_pause),
            (None, None, None)
        );
        assert!(guards.cool_down.is_some() && guards.cluster_disruptions.is_some());
    }
}
