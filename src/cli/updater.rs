//! `plimsoll updater`: its flags, by upstream's names where upstream has them, and the run behind them.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{
    Exit,
    cluster::ClusterArgs,
    election::ElectionArgs,
    gates::{Gate, Gates},
    guards::GuardArgs,
    klog::{self, LogArgs},
    output::Problem,
    role::Start,
    typed::Typed,
    value,
};
use crate::{
    compat::{Compat, Fix, Fixes},
    fit::LimitPolicy,
    recommend::Scope,
    run::{
        self, UpdaterConfig,
        config::{Address, ObjectMetrics},
        updater::config::{AdmissionCheck, DryRun, Rate},
    },
    update::Settings,
};

/// The name of the role, and of upstream's program.
pub const NAME: &str = "updater";

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll updater --dry-run                     says what it would do, and why
  plimsoll updater --change-window '0 22 * * mon-fri for 6h in +01:00'
  plimsoll updater --max-disruptions-per-hour=20,2% --canary-watch=5m
  plimsoll updater --compat=upstream --eviction-rate-limit=0.5

-h keeps to the essentials. Flags are read as upstream's are: --a_b is --a-b,
--leader-elect=false, -v4, 1h30m. All are in docs/configuration.md.";

/// Where things are when nothing else says so.
const NAMESPACE: &str = "kube-system";

/// Brings what is recommended to running pods: resizes or evicts them, a few at a time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct UpdaterArgs {
    /// Time from one pass to the next
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = value::some_time)]
    #[arg(env = "PLIMSOLL_FLAG_UPDATER_INTERVAL", hide_env = true)]
    updater_interval: Duration,
    /// Decides, counts and logs, and writes nothing to the cluster
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_DRY_RUN", hide_env = true)]
    dry_run: bool,
    /// Writes events all the same
    #[arg(long, requires = "dry_run")]
    #[arg(env = "PLIMSOLL_FLAG_DRY_RUN_EVENTS", hide_short_help = true, hide_env = true)]
    dry_run_events: bool,
    /// Fewest live pods of a workload that may be changed; `minReplicas` of a VPA goes before
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = value::whole(i32::MIN, i32::MAX))]
    #[arg(env = "PLIMSOLL_FLAG_MIN_REPLICAS", hide_env = true)]
    min_replicas: i32,
    /// Share of the pods of a workload that may be down at once
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = value::number)]
    #[arg(env = "PLIMSOLL_FLAG_EVICTION_TOLERANCE", hide_env = true)]
    eviction_tolerance: f64,
    /// Evictions a second, and resizes; 0 or less is no limit
    #[arg(long, value_name = "NUMBER", default_value = "-1", value_parser = value::number)]
    #[arg(allow_hyphen_values = true)]
    #[arg(env = "PLIMSOLL_FLAG_EVICTION_RATE_LIMIT", hide_env = true)]
    eviction_rate_limit: f64,
    /// How many may go at once before that
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value::whole(0_u32, u32::MAX))]
    #[arg(env = "PLIMSOLL_FLAG_EVICTION_RATE_BURST", hide_short_help = true, hide_env = true)]
    eviction_rate_burst: u32,
    /// Resizes a second, if not as many as evictions
    #[arg(long, value_name = "NUMBER", value_parser = value::number, allow_hyphen_values = true)]
    #[arg(env = "PLIMSOLL_FLAG_RESIZE_RATE_LIMIT", hide_short_help = true, hide_env = true)]
    resize_rate_limit: Option<f64>,
    /// How many may go at once before that, if not as many as evictions
    #[arg(long, value_name = "COUNT", value_parser = value::whole(0_u32, u32::MAX))]
    #[arg(env = "PLIMSOLL_FLAG_RESIZE_RATE_BURST", hide_short_help = true, hide_env = true)]
    resize_rate_burst: Option<u32>,
    /// Where metrics and health are served
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8943")]
    #[arg(env = "PLIMSOLL_FLAG_ADDRESS", hide_env = true)]
    address: Address,
    /// Whose decisions: `plimsoll`, or `upstream` with its defects
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    #[arg(env = "PLIMSOLL_FLAG_COMPAT", hide_env = true)]
    compat: Compat,
    /// Switches one named fix off (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(env = "PLIMSOLL_FLAG_DISABLE_FIX", hide_short_help = true, hide_env = true)]
    disable_fix: Vec<Fix>,
    /// Features by name, as in InPlace=true,CPUStartupBoost=true
    #[arg(long, value_name = "GATES")]
    #[arg(env = "PLIMSOLL_FLAG_FEATURE_GATES", hide_env = true)]
    feature_gates: Vec<Gates>,
    /// Limits: `ratio`, `requestsOnly`, `fixed:FACTOR` or `max`; as the admission controller has it
    #[arg(long, value_name = "POLICY", default_value = "ratio")]
    #[arg(env = "PLIMSOLL_FLAG_LIMIT_POLICY", hide_short_help = true, hide_env = true)]
    limit_policy: LimitPolicy,
    /// Least difference for which a pod within its bounds is changed
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = value::number)]
    #[arg(env = "PLIMSOLL_FLAG_POD_UPDATE_THRESHOLD", hide_env = true)]
    pod_update_threshold: f64,
    /// Age from which on a pod within its bounds is changed
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = value::duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_IN_RECOMMENDATION_BOUNDS_EVICTION_LIFETIME_THRESHOLD")]
    in_recommendation_bounds_eviction_lifetime_threshold: Duration,
    /// A kill for memory sooner than this after the start is a quick one
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = value::duration)]
    #[arg(
        env = "PLIMSOLL_FLAG_EVICT_AFTER_OOM_THRESHOLD",
        hide_short_help = true,
        hide_env = true
    )]
    evict_after_oom_threshold: Duration,
    /// Lets resizes that restart nothing pass the budgets of workloads by
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = value::switch)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_IN_PLACE_SKIP_DISRUPTION_BUDGET")]
    in_place_skip_disruption_budget: bool,
    /// How long a resize that waits for room is waited for before the pod is evicted
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = value::duration)]
    #[arg(env = "PLIMSOLL_FLAG_DEFERRED_RESIZE_TIMEOUT", hide_short_help = true, hide_env = true)]
    deferred_resize_timeout: Duration,
    /// The same for a resize that is being made
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = value::duration)]
    #[arg(env = "PLIMSOLL_FLAG_RESIZE_TIMEOUT", hide_short_help = true, hide_env = true)]
    resize_timeout: Duration,
    /// How long a resize that was found impossible is not tried again
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = value::duration)]
    #[arg(env = "PLIMSOLL_FLAG_INFEASIBLE_RESIZE_EXPIRY", hide_short_help = true, hide_env = true)]
    infeasible_resize_expiry: Duration,
    /// A pod that does not serve for so long counts as dead: its eviction costs nothing
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = value::duration)]
    #[arg(env = "PLIMSOLL_FLAG_DEAD_AFTER", hide_short_help = true, hide_env = true)]
    dead_after: Duration,
    /// How many pods lose their startup boost at once
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value::whole(1_u32, 10_000))]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_CONCURRENT_CPU_STARTUP_BOOST_SYNCS")]
    concurrent_cpu_startup_boost_syncs: u32,
    /// Evicts only while the admission controller says that it is there
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = value::switch)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_USE_ADMISSION_CONTROLLER_STATUS")]
    use_admission_controller_status: bool,
    /// The Lease by which it does
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_NAME")]
    admission_controller_status_lease_name: String,
    /// Namespace of that Lease [default: NAMESPACE, else kube-system]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_NAMESPACE")]
    admission_controller_status_lease_namespace: String,
    /// How old it may be
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = value::duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_TIMEOUT")]
    admission_controller_status_lease_timeout: Duration,
    /// Namespace of the recommenders' heartbeats, where their own Leases are
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_RECOMMENDER_HEARTBEAT_NAMESPACE")]
    recommender_heartbeat_namespace: String,
    /// Objects with series of their own: `all`, `restricted` or `off`
    #[arg(long, value_name = "WHICH", default_value = "all")]
    #[arg(env = "PLIMSOLL_FLAG_OBJECT_METRICS", hide_short_help = true, hide_env = true)]
    object_metrics: ObjectMetrics,
    #[command(flatten)]
    guards: GuardArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "vpa-updater")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAME")]
    leader_elect_resource_name: String,
    #[command(flatten)]
    log: LogArgs,
}

impl UpdaterArgs {
    /// What was asked for, checked as a whole. `variable` looks into the environment.
    pub(super) fn config(
        &self,
        typed: &Typed,
        variable: impl Fn(&str) -> String,
    ) -> Result<UpdaterConfig, Problem> {
        let refuse = |why: &str| Problem::new(Exit::Findings, why);
        let compat = self.compat;
        let scope = Scope {
            only: self.cluster.only(),
            ignored: self.cluster.ignored(),
            ..Scope::default()
        };
        if scope.only.is_some() && !scope.ignored.is_empty() {
            return Err(refuse(
                "--vpa-object-namespace and --ignored-vpa-object-namespaces exclude each other: give one of them",
            ));
        }
        let timeout = self.admission_controller_status_lease_timeout;
        if timeout.is_zero() {
            return Err(refuse("--admission-controller-status-lease-timeout must be above 0"));
        }
        let election = self.election.election(&self.leader_elect_resource_name, compat);
        if election.on {
            election.check().map_err(refuse)?;
        }
        let own = Some(variable("NAMESPACE")).filter(|name| !name.is_empty());
        let own = own.unwrap_or_else(|| NAMESPACE.to_owned());
        let namespace = &self.admission_controller_status_lease_namespace;
        let admission = AdmissionCheck {
            name: self.admission_controller_status_lease_name.clone(),
            namespace: if namespace.is_empty() { own } else { namespace.clone() },
            timeout,
        };
        let gates = Gates::all(self.feature_gates.iter().cloned());
        let rate = |per_second: f64, burst: u32| Rate {
            per_second: if per_second > 0.0 { per_second as f32 } else { -1.0 },
            burst,
        };
        let guards = self.guards.guards(compat, typed).map_err(|why| refuse(&why))?;
        Ok(UpdaterConfig {
            interval: self.updater_interval,
            settings: Settings { guards, ..self.settings(&gates) },
            native_sidecars: gates.open(Gate::NativeSidecar, compat),
            limit_policy: self.limit_policy,
            evictions: rate(self.eviction_rate_limit, self.eviction_rate_burst),
            resizes: rate(
                self.resize_rate_limit.unwrap_or(self.eviction_rate_limit),
                self.resize_rate_burst.unwrap_or(self.eviction_rate_burst),
            ),
            boost_workers: self.concurrent_cpu_startup_boost_syncs as usize,
            admission: Some(admission).filter(|_| self.use_admission_controller_status),
            heartbeats: self.recommender_heartbeat_namespace.clone(),
            dry_run: self.dry_run.then_some(DryRun { events: self.dry_run_events }),
            address: self.address.clone(),
            warnings: Self::warnings(typed, &scope),
            scope,
            kubeconfig: self.cluster.kubeconfig(),
            qps: self.cluster.qps(),
            burst: self.cluster.burst(),
            election,
            object_metrics: self.object_metrics,
            log: self.log.log(),
        })
    }

    fn settings(&self, gates: &Gates) -> Settings {
        let open = |gate| gates.open(gate, self.compat);
        let fixes = Fixes::of(self.compat);
        Settings {
            fixes: self.disable_fix.iter().copied().fold(fixes, Fixes::without),
            min_replicas: self.min_replicas,
            eviction_tolerance: self.eviction_tolerance,
            update_threshold: self.pod_update_threshold,
            lifetime_threshold: self.in_recommendation_bounds_eviction_lifetime_threshold,
            oom_threshold: self.evict_after_oom_threshold,
            skips_budget_in_place: self.in_place_skip_disruption_budget,
            deferred_timeout: self.deferred_resize_timeout,
            in_progress_timeout: self.resize_timeout,
            infeasible_expiry: self.infeasible_resize_expiry,
            dead_after: self.dead_after,
            in_place: open(Gate::InPlace),
            startup_boost: open(Gate::CpuStartupBoost),
            per_vpa_config: open(Gate::PerVpaConfig),
            ..Settings::of(self.compat)
        }
    }

    /// What should be looked at, though it keeps nothing from starting.
    fn warnings(typed: &Typed, scope: &Scope) -> Vec<String> {
        let mut warnings: Vec<String> = typed.stray_words().into_iter().collect();
        let mut idle = typed.among(&klog::WITHOUT_EFFECT);
        idle.extend(typed.among(&["profiling"]));
        if !idle.is_empty() {
            warnings.push(format!("accepted, without effect here: {}", idle.join(", ")));
        }
        if scope.ignored.iter().any(|name| name.trim() != name) {
            warnings.push(
                "--ignored-vpa-object-namespaces has names with spaces, which no namespace has: leave the spaces out"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// Runs the updater until it is told to end.
pub fn run(arguments: &UpdaterArgs, typed: &Typed) -> Result<Exit, Problem> {
    let config = arguments.config(typed, |name| std::env::var(name).unwrap_or_default())?;
    let start = Start {
        role: "updater",
        name: None,
        compat: config.settings.compat,
        log: config.log.clone(),
        warnings: config.warnings.clone(),
    };
    start.run(run::updater::run(config))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        cli::updater_config,
        update::guard::{GuardSettings, HeartbeatRule},
    };

    #[test]
    fn guards_are_on_unless_upstreams_ways_are_wanted_and_then_those_that_were_set() {
        let of = |flags: &[&str]| {
            updater_config(flags, |_| String::new()).expect("flags that make sense").settings.guards
        };
        assert_eq!(of(&[]), GuardSettings::default());
        assert_eq!(of(&["--compat=upstream"]), GuardSettings::NONE);
        let some =
            of(&["--compat=upstream", "--canary-watch=3m", "--recommender-heartbeat=require"]);
        assert_eq!(some.canary.map(|canary| canary.watch), Some(Duration::from_mins(3)));
        assert_eq!((some.heartbeat, some.cool_down), (HeartbeatRule::Require, None));
        let none =
            of(&["--cool-down=0", "--circuit-breaker=false", "--max-disruptions-per-hour=off"]);
        assert_eq!((none.cool_down, none.breaker, none.cluster_disruptions), (None, None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for flags in [
            &["--admission-controller-status-lease-timeout=0"][..],
            &["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"],
            &["--concurrent-cpu-startup-boost-syncs=0"],
            &["--change-window=sometimes"],
            &["--dry-run-events"],
            &["--leader-elect-lease-duration=1s"],
        ] {
            assert!(updater_config(flags, |_| String::new()).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn resizes_go_as_fast_as_evictions_unless_it_is_said() {
        let of = |flags: &[&str]| {
            let config = updater_config(flags, |_| String::new()).expect("flags that make sense");
            (config.evictions.per_second, config.resizes.per_second)
        };
        assert_eq!(of(&[]), (-1.0, -1.0));
        assert_eq!(of(&["--eviction-rate-limit=0"]), (-1.0, -1.0));
        assert_eq!(of(&["--eviction-rate-limit=0.5"]), (0.5, 0.5));
        assert_eq!(of(&["--eviction-rate-limit=0.5", "--resize-rate-limit", "-1"]), (0.5, -1.0));
    }
}
