//! The flags for the updater's decisions, shared by the updater and `explain pod`.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{
    disruption_limits::GuardArgs, feature_gates::FeatureGate, go_values, parsed_flags::ParsedFlags,
    sizing::SizingArgs,
};
use crate::controllers::updater::config::AdmissionCheck;
use plimsoll_core::{sizing::LimitPolicy, types::compat::Compat, updater::Settings};

/// The default namespace.
const DEFAULT_NAMESPACE: &str = "kube-system";

/// The flags for decisions about running pods.
#[derive(Clone, Debug, Args)]
pub struct UpdaterPolicyArgs {
    /// Minimum number of live pods of a workload for updates; `minReplicas` of a VPA takes precedence
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(i32::MIN, i32::MAX))]
    #[arg(env = "PLIMSOLL_FLAG_MIN_REPLICAS", hide_env = true)]
    min_replicas: i32,
    /// Share of the pods of a workload that may be unavailable at once
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_EVICTION_TOLERANCE", hide_env = true)]
    eviction_tolerance: f64,
    #[command(flatten)]
    sizing: SizingArgs,
    /// Minimum difference to update a pod within its bounds
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = go_values::number)]
    #[arg(env = "PLIMSOLL_FLAG_POD_UPDATE_THRESHOLD", hide_env = true)]
    pod_update_threshold: f64,
    /// Minimum age to update a pod within its bounds
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_IN_RECOMMENDATION_BOUNDS_EVICTION_LIFETIME_THRESHOLD")]
    in_recommendation_bounds_eviction_lifetime_threshold: Duration,
    /// An OOM kill within this time after the start of a container is a quick OOM
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    #[arg(
        env = "PLIMSOLL_FLAG_EVICT_AFTER_OOM_THRESHOLD",
        hide_short_help = true,
        hide_env = true
    )]
    evict_after_oom_threshold: Duration,
    /// Lets resizes without restart bypass the disruption budgets of workloads
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = go_values::boolean)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_IN_PLACE_SKIP_DISRUPTION_BUDGET")]
    in_place_skip_disruption_budget: bool,
    /// How long a resize may be deferred before the pod is evicted
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_DEFERRED_RESIZE_TIMEOUT", hide_short_help = true, hide_env = true)]
    deferred_resize_timeout: Duration,
    /// How long a resize may be in progress before the pod is evicted
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_RESIZE_TIMEOUT", hide_short_help = true, hide_env = true)]
    resize_timeout: Duration,
    /// How long an infeasible resize is not retried
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_INFEASIBLE_RESIZE_EXPIRY", hide_short_help = true, hide_env = true)]
    infeasible_resize_expiry: Duration,
    /// A pod that is not ready for this long counts as dead: its eviction is not a disruption
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    #[arg(env = "PLIMSOLL_FLAG_DEAD_AFTER", hide_short_help = true, hide_env = true)]
    dead_after: Duration,
    /// Evicts only while the Lease of the admission controller is fresh
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    #[arg(value_parser = go_values::boolean)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_USE_ADMISSION_CONTROLLER_STATUS")]
    use_admission_controller_status: bool,
    /// Name of the Lease of the admission controller
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_NAME")]
    admission_controller_status_lease_name: String,
    /// Namespace of that Lease [default: NAMESPACE, or kube-system]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_NAMESPACE")]
    admission_controller_status_lease_namespace: String,
    /// Maximum age of that Lease
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_ADMISSION_CONTROLLER_STATUS_LEASE_TIMEOUT")]
    admission_controller_status_lease_timeout: Duration,
    /// Namespace of the recommenders' heartbeat Leases
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_RECOMMENDER_HEARTBEAT_NAMESPACE")]
    recommender_heartbeat_namespace: String,
    #[command(flatten)]
    guards: GuardArgs,
}

impl UpdaterPolicyArgs {
    /// The compatibility mode.
    pub const fn compat(&self) -> Compat {
        self.sizing.compat()
    }

    /// The limit policy.
    pub const fn limit_policy(&self) -> LimitPolicy {
        self.sizing.limit_policy()
    }

    /// Whether native sidecars are sized too.
    pub fn native_sidecars(&self) -> bool {
        self.sizing.is_enabled(FeatureGate::NativeSidecar)
    }

    /// The namespace of the recommenders' heartbeats.
    pub fn heartbeat_namespace(&self) -> String {
        self.recommender_heartbeat_namespace.clone()
    }

    /// How to check the admission controller, if that is enabled. `variable` reads the environment.
    pub fn admission(
        &self,
        variable: impl Fn(&str) -> String,
    ) -> Result<Option<AdmissionCheck>, String> {
        let timeout = self.admission_controller_status_lease_timeout;
        if timeout.is_zero() {
            return Err("--admission-controller-status-lease-timeout must be above 0".to_owned());
        }
        let own = Some(variable("NAMESPACE")).filter(|name| !name.is_empty());
        let configured = Some(&self.admission_controller_status_lease_namespace);
        let configured = configured.filter(|name| !name.is_empty()).cloned();
        let check = AdmissionCheck {
            name: self.admission_controller_status_lease_name.clone(),
            namespace: configured.or(own).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
            timeout,
        };
        Ok(Some(check).filter(|_| self.use_admission_controller_status))
    }

    /// Builds the updater settings.
    pub fn settings(&self, typed: &ParsedFlags) -> Result<Settings, String> {
        let (compat, sizing) = (self.compat(), &self.sizing);
        Ok(Settings {
            fixes: sizing.fixes(),
            min_replicas: self.min_replicas,
            eviction_tolerance: self.eviction_tolerance,
            update_threshold: self.pod_update_threshold,
            lifetime_threshold: self.in_recommendation_bounds_eviction_lifetime_threshold,
            oom_threshold: self.evict_after_oom_threshold,
            in_place_skips_budget: self.in_place_skip_disruption_budget,
            deferred_timeout: self.deferred_resize_timeout,
            in_progress_timeout: self.resize_timeout,
            infeasible_expiry: self.infeasible_resize_expiry,
            dead_after: self.dead_after,
            in_place: sizing.is_enabled(FeatureGate::InPlace),
            startup_boost: sizing.is_enabled(FeatureGate::CpuStartupBoost),
            per_vpa_config: sizing.is_enabled(FeatureGate::PerVpaConfig),
            guards: self.guards.guards(compat, typed)?,
            ..Settings::for_compat(compat)
        })
    }
}
