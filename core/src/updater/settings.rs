//! What the updater is told by its flags, as far as decisions hang on it.

use std::time::Duration;

use super::guard::GuardSettings;
use crate::types::compat::{Compat, Fixes};

/// What decisions of the updater hang on.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Settings {
    /// Whose ways are wanted where no fix has a name.
    pub compat: Compat,
    /// The fixes that are on.
    pub fixes: Fixes,
    /// `--min-replicas`: the least live pods of a group that may be touched, unless the VPA says otherwise.
    pub min_replicas: i32,
    /// `--eviction-tolerance`: share of the wanted pods that may be down.
    pub eviction_tolerance: f64,
    /// `--pod-update-threshold`: the least difference for which a pod within bounds is touched.
    pub update_threshold: f64,
    /// `--in-recommendation-bounds-eviction-lifetime-threshold`: the age before that.
    pub lifetime_threshold: Duration,
    /// `--evict-after-oom-threshold`: a kill for memory sooner than this after the start is a quick one.
    pub oom_threshold: Duration,
    /// `--in-place-skip-disruption-budget`: resizes that restart nothing may pass budgets by.
    pub in_place_skips_budget: bool,
    /// How long a deferred resize is waited for before the pod is evicted.
    pub deferred_timeout: Duration,
    /// How long a resize under way is waited for before the pod is evicted.
    pub in_progress_timeout: Duration,
    /// How long a resize that was found impossible is not tried again.
    pub infeasible_expiry: Duration,
    /// A pod that does not serve for this long counts as dead: its eviction costs nothing.
    pub dead_after: Duration,
    /// Feature gate `InPlace`.
    pub in_place: bool,
    /// Feature gate `CPUStartupBoost`.
    pub startup_boost: bool,
    /// Feature gate `PerVPAConfig`.
    pub per_vpa_config: bool,
    /// What keeps surprises away.
    pub guards: GuardSettings,
}

impl Settings {
    /// What a mode starts from.
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
