//! How much each guard allows. In `plimsoll` mode all are on, but surges; in `upstream` mode all are off.

use std::time::Duration;

use super::{freshness::HeartbeatPolicy, maintenance_window::MaintenanceWindows};
use crate::types::compat::Compat;

/// What keeps surprises away.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardSettings {
    /// Whether the recommender has to show signs of life.
    pub heartbeat: HeartbeatPolicy,
    /// Evictions, and resizes that restart containers, within an hour in the cluster.
    pub cluster_disruptions: Option<Allowance>,
    /// The same in one namespace.
    pub namespace_disruptions: Option<Allowance>,
    /// Resizes that restart nothing, within an hour in the cluster.
    pub cluster_resizes: Option<Allowance>,
    /// The same in one namespace.
    pub namespace_resizes: Option<Allowance>,
    /// How long a workload rests between two changes.
    pub cool_down: Option<CoolDown>,
    /// When workloads may be changed that say nothing of it.
    pub maintenance_windows: MaintenanceWindows,
    /// When to stop because pods got worse.
    pub breaker: Option<BreakerSettings>,
    /// Whether one pod goes first.
    pub canary: Option<CanarySettings>,
    /// Evictions in a row that may be under way without a sign that they change anything.
    pub max_unproven_evictions: Option<u32>,
    /// Whether a single replica is made two before it is evicted.
    pub surge: bool,
    /// How long a workload is left alone whose values somebody else writes.
    pub external_overwrite_pause: Option<Duration>,
}

/// So many, or that share of all pods that VPAs are for: whichever is more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// So many in any case.
    pub at_least: u32,
    /// Share of the pods.
    pub share: f64,
}

/// How long a workload rests between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolDown {
    /// After the first one. It doubles with each that follows soon.
    pub base: Duration,
    /// The same for a pod that keeps running out of memory, or does not serve at all.
    pub urgent: Duration,
    /// The longest.
    pub max: Duration,
    /// After so long without a change, beyond the rest, the next one is a first one again.
    pub forget_after: Duration,
}

/// When to stop because pods got worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Share of the pods that were changed that may be worse than pods were before.
    pub share: f64,
    /// A pod may take so long to be ready.
    pub ready_within: Duration,
    /// How long nothing is changed. It doubles each time.
    pub open_for: Duration,
    /// The longest.
    pub max_open_for: Duration,
    /// When so many workloads got worse within an hour, none is changed any more.
    pub cluster_trips: u32,
}

/// One pod goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanarySettings {
    /// How long it is watched before the others follow.
    pub watch: Duration,
}

impl Allowance {
    /// Of so many pods.
    pub fn limit_for(self, pods: u32) -> u32 {
        self.at_least.max((f64::from(pods) * self.share) as u32)
    }
}

impl GuardSettings {
    /// What a mode starts from.
    pub fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::NONE,
            Compat::Plimsoll => Self::default(),
        }
    }

    /// Whether anything has to be remembered: some guard is on.
    pub fn needs_state(&self) -> bool {
        *self != Self::NONE
    }

    /// For a dry run: budgets and rests count as if changes were made, but nobody looks for what came of them.
    #[must_use]
    pub fn simulated(self) -> Self {
        Self { breaker: None, max_unproven_evictions: None, external_overwrite_pause: None, ..self }
    }

    /// No guard at all.
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
    /// Ten per cent of all pods an hour renews a cluster within a working day, and is about what a careful person would
    /// do by hand; small clusters may do as much as they need. A namespace may have twice that share, so that one
    /// team's change need not wait for a day, and a minute of watching is what a pod takes to fall over at its start.
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
