//! The flags for the updater's decisions, shared by the updater and `explain pod`.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{
    feature_gates::FeatureGate, go_values, parsed_flags::ParsedFlags, prometheus_auth::non_empty,
    sizing::SizingArgs, updater_guards::GuardArgs,
};
use crate::controllers::updater::AdmissionCheck;
use plimsoll_core::updater::Settings;

const DEFAULT_NAMESPACE: &str = "kube-system";

/// The flags for decisions about running pods.
#[derive(Clone, Debug, Args)]
pub struct UpdaterPolicyArgs {
    /// Minimum number of live pods of a workload for updates; `minReplicas` of a VPA takes precedence
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(i32::MIN, i32::MAX))]
    min_replicas: i32,
    /// Share of the pods of a workload that may be unavailable at once
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = go_values::number)]
    eviction_tolerance: f64,
    #[command(flatten)]
    pub sizing: SizingArgs,
    /// Minimum difference to update a pod within its bounds
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = go_values::number)]
    pod_update_threshold: f64,
    /// Minimum age to update a pod within its bounds
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    in_recommendation_bounds_eviction_lifetime_threshold: Duration,
    /// An OOM kill within this time after the start of a container is a quick OOM
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    evict_after_oom_threshold: Duration,
    /// Lets resizes without restart bypass the disruption budgets of workloads
    #[arg(long, action = ArgAction::Set, default_value = "false", value_name = "BOOL")]
    #[arg(hide_short_help = true)]
    in_place_skip_disruption_budget: bool,
    /// How long a resize may be deferred before the pod is evicted
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    deferred_resize_timeout: Duration,
    /// How long a resize may be in progress before the pod is evicted
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    resize_timeout: Duration,
    /// How long an infeasible resize is not retried
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    infeasible_resize_expiry: Duration,
    /// A pod that is not ready for this long counts as dead: its eviction is not a disruption
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    dead_after: Duration,
    /// Evicts only while the Lease of the admission controller is fresh
    #[arg(long, action = ArgAction::Set, default_value = "true", value_name = "BOOL")]
    #[arg(hide_short_help = true)]
    use_admission_controller_status: bool,
    /// Name of the Lease of the admission controller
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    #[arg(hide_short_help = true)]
    admission_controller_status_lease_name: String,
    /// Namespace of that Lease [default: NAMESPACE, or kube-system]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_short_help = true)]
    admission_controller_status_lease_namespace: String,
    /// Maximum age of that Lease
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    admission_controller_status_lease_timeout: Duration,
    /// Namespace of the recommenders' heartbeat Leases
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", hide_short_help = true)]
    pub recommender_heartbeat_namespace: String,
    #[command(flatten)]
    guards: GuardArgs,
}

impl UpdaterPolicyArgs {
    pub fn native_sidecars(&self) -> bool {
        self.sizing.is_enabled(FeatureGate::NativeSidecar)
    }

    /// How to check the admission controller, if that is enabled.
    pub fn admission(&self, typed: &ParsedFlags) -> Result<Option<AdmissionCheck>, String> {
        let timeout = self.admission_controller_status_lease_timeout;
        if timeout.is_zero() {
            return Err("--admission-controller-status-lease-timeout must be above 0".to_owned());
        }
        let own = non_empty(&typed.environment.variable("NAMESPACE"));
        let configured = non_empty(&self.admission_controller_status_lease_namespace);
        let check = AdmissionCheck {
            name: self.admission_controller_status_lease_name.clone(),
            namespace: configured.or(own).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
            timeout,
        };
        Ok(Some(check).filter(|_| self.use_admission_controller_status))
    }

    pub fn settings(&self, typed: &ParsedFlags) -> Result<Settings, String> {
        let (compat, sizing) = (self.sizing.compat, &self.sizing);
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
