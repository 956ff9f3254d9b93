//! The updater settings that decisions depend on.

use std::time::Duration;

use super::guard::GuardSettings;
use crate::types::compat::{Compat, Fixes};

/// The updater settings that decisions depend on.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Settings {
    /// Compatibility mode, for behaviour that no fix covers.
    pub compat: Compat,
    pub fixes: Fixes,
    /// `--min-replicas`: minimum live pods of a group that may be updated, unless the VPA sets minReplicas.
    pub min_replicas: i32,
    /// `--eviction-tolerance`: share of desired pods that may be unavailable.
    pub eviction_tolerance: f64,
    /// `--pod-update-threshold`: minimum difference for which a pod within bounds is updated.
    pub update_threshold: f64,
    /// `--in-recommendation-bounds-eviction-lifetime-threshold`: minimum age of such a pod.
    pub lifetime_threshold: Duration,
    /// `--evict-after-oom-threshold`: an OOM kill within this time after the start is a quick one.
    pub oom_threshold: Duration,
    /// `--in-place-skip-disruption-budget`: non-disruptive resizes ignore budgets.
    pub in_place_skips_budget: bool,
    /// How long a resize may be deferred before the pod is evicted.
    pub deferred_timeout: Duration,
    /// How long a resize may be in progress before the pod is evicted.
    pub in_progress_timeout: Duration,
    /// How long an infeasible resize is not retried.
    pub infeasible_expiry: Duration,
    /// A pod that is not ready for this long counts as dead: its eviction does not reduce availability.
    pub dead_after: Duration,
    /// Feature gate `InPlace`.
    pub in_place: bool,
    /// Feature gate `CPUStartupBoost`.
    pub startup_boost: bool,
    /// Feature gate `PerVPAConfig`.
    pub per_vpa_config: bool,
    pub guards: GuardSettings,
}

impl Settings {
    /// The defaults of a compatibility mode.
    pub fn for_compat(compat: Compat) -> Self {
        let minutes = Duration::from_mins;
        Self {
            compat,
            fixes: Fixes::for_compat(compat),
            min_replicas: 2,
            eviction_tolerance: 0.5,
            update_threshold: 0.1,
            lifetime_threshold: minutes(12 * 60),
            oom_threshold: minutes(10),
            in_place_skips_budget: false,
            deferred_timeout: minutes(5),
            in_progress_timeout: minutes(60),
            infeasible_expiry: minutes(60),
            dead_after: minutes(10),
            in_place: false,
            startup_boost: false,
            per_vpa_config: false,
            guards: GuardSettings::for_compat(compat),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::for_compat(Compat::default())
    }
}
