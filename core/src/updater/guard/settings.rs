//! Settings of the guards. In `plimsoll` mode all are enabled except surges; in `upstream` mode all are disabled.

use std::time::Duration;

use super::{freshness::HeartbeatPolicy, maintenance_window::MaintenanceWindows};
use crate::types::compat::Compat;

/// Twelve doublings suffice for any cool-down: a minute becomes three days.
pub(super) const MAX_DOUBLINGS: u32 = 12;

#[derive(Clone, Debug, PartialEq)]
pub struct GuardSettings {
    /// Whether a fresh heartbeat of the recommender is required.
    pub heartbeat: HeartbeatPolicy,
    /// Disruptive changes per hour in the cluster: evictions, and resizes that restart containers.
    pub cluster_disruptions: Option<Allowance>,
    /// Disruptive changes per hour in one namespace.
    pub namespace_disruptions: Option<Allowance>,
    /// Non-disruptive resizes per hour in the cluster.
    pub cluster_resizes: Option<Allowance>,
    /// Non-disruptive resizes per hour in one namespace.
    pub namespace_resizes: Option<Allowance>,
    /// Cool-down of a workload between two rollouts.
    pub cool_down: Option<CoolDown>,
    /// Default maintenance windows of workloads without their own.
    pub maintenance_windows: MaintenanceWindows,
    /// Circuit breaker for regressions.
    pub breaker: Option<BreakerSettings>,
    /// Whether one pod is changed first and observed.
    pub canary: Option<CanarySettings>,
    /// Maximum number of evictions in a row without an observed effect.
    pub max_unproven_evictions: Option<u32>,
    /// Whether a single replica gets a second one before it is evicted.
    pub surge: bool,
    /// How long a workload is not changed after another writer overwrote the recommended values.
    pub external_overwrite_pause: Option<Duration>,
}

/// A number of changes: a minimum or a share of all pods that VPAs control, whichever is more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    pub at_least: u32,
    /// Share of the pods, as a fraction.
    pub share: f64,
}

/// Cool-down of a workload between two rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolDown {
    /// Cool-down after the first rollout. It doubles with each that follows soon.
    pub base: Duration,
    /// Initial cool-down for a pod that was OOM killed quickly, or is dead.
    pub urgent: Duration,
    pub max: Duration,
    /// After this time without a change, in addition to the cool-down, the doubling starts over.
    pub forget_after: Duration,
}

/// Settings of the circuit breaker for regressions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Share of the changed pods that may be worse than pods were before.
    pub share: f64,
    /// How long a pod may take to become ready.
    pub ready_within: Duration,
    /// How long the breaker stays open. It doubles each time.
    pub open_for: Duration,
    /// Maximum time that the breaker stays open.
    pub max_open_for: Duration,
    /// Number of regressed workloads within an hour that opens the breaker of the cluster.
    pub cluster_trips: u32,
}

/// Settings of the canary: one pod is changed first and observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanarySettings {
    /// How long it is observed before the others follow.
    pub watch: Duration,
}

impl CoolDown {
    /// Returns the cool-down after a number of rollouts in quick succession.
    pub fn duration(self, streak: u32, urgent: bool) -> Duration {
        let base = if urgent { self.urgent } else { self.base };
        base.saturating_mul(1 << streak.min(MAX_DOUBLINGS)).min(self.max)
    }
}

impl Allowance {
    pub fn limit_for(self, pods: u32) -> u32 {
        self.at_least.max((f64::from(pods) * self.share) as u32)
    }
}

impl GuardSettings {
    /// The defaults of a compatibility mode.
    pub fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::NONE,
            Compat::Plimsoll => Self::default(),
        }
    }

    /// Whether any guard is enabled, so that state must be persisted.
    pub fn needs_state(&self) -> bool {
        *self != Self::NONE
    }

    /// Settings for a dry run: budgets and cool-downs count as if changes were made, but effects are not checked.
    #[must_use]
    pub fn simulated(self) -> Self {
        Self { breaker: None, max_unproven_evictions: None, external_overwrite_pause: None, ..self }
    }

    /// All guards disabled.
    pub const NONE: Self = Self {
        heartbeat: HeartbeatPolicy::Ignore,
        cluster_disruptions: None,
        namespace_disruptions: None,
        cluster_resizes: None,
        namespace_resizes: None,
        cool_down: None,
        maintenance_windows: MaintenanceWindows::ALWAYS,
        breaker: None,
        canary: None,
        max_unproven_evictions: None,
        surge: false,
        external_overwrite_pause: None,
    };
}

impl Default for GuardSettings {
    /// Ten percent of all pods per hour updates a cluster within a working day, which is about what a careful operator
    /// would do by hand; the minimum lets small clusters update at once. A namespace may use twice that share, so that
    /// the change of one team does not take a day. A canary shows failures at startup within a minute or two.
    fn default() -> Self {
        let minutes = Duration::from_mins;
        let allowance = |at_least, share| Some(Allowance { at_least, share });
        Self {
            heartbeat: HeartbeatPolicy::Auto,
            cluster_disruptions: allowance(100, 0.1),
            namespace_disruptions: allowance(30, 0.2),
            cluster_resizes: allowance(500, 0.5),
            namespace_resizes: allowance(150, 1.0),
            cool_down: Some(CoolDown {
                base: minutes(10),
                urgent: minutes(1),
                max: minutes(8 * 60),
                forget_after: minutes(6 * 60),
            }),
            maintenance_windows: MaintenanceWindows::ALWAYS,
            breaker: Some(BreakerSettings {
                share: 0.1,
                ready_within: minutes(10),
                open_for: minutes(60),
                max_open_for: minutes(24 * 60),
                cluster_trips: 5,
            }),
            canary: Some(CanarySettings { watch: minutes(2) }),
            max_unproven_evictions: Some(10),
            surge: false,
            external_overwrite_pause: Some(minutes(24 * 60)),
        }
    }
}
