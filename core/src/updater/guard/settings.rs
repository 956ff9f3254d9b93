//! How much each guard allows. In `plimsoll` mode all are on, but surges; in `upstream` mode all are off.

use std::time::Duration;

use super::{freshness::HeartbeatRule, window::Windows};
use crate::types::compat::Compat;

/// What keeps surprises away.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardSettings {
    /// Whether the recommender has to show signs of life.
    pub heartbeat: HeartbeatRule,
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
    pub windows: Windows,
    /// When to stop because pods got worse.
    pub breaker: Option<BreakerSettings>,
    /// Whether one pod goes first.
    pub canary: Option<CanarySettings>,
    /// Evictions in a row that may be under way without a sign that they change anything.
    pub unproven: Option<u32>,
    /// Whether a single replica is made two before it is evicted.
    pub surge: bool,
    /// How long a workload is left alone whose values somebody else writes.
    pub rewritten: Option<Duration>,
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
    pub longest: Duration,
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
    pub longest: Duration,
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
    pub fn of(self, pods: u32) -> u32 {
        self.at_least.max((f64::from(pods) * self.share) as u32)
    }
}

impl GuardSettings {
    /// What a mode starts from.
    pub fn of(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::NONE,
            Compat::Plimsoll => Self::default(),
        }
    }

    /// Whether anything has to be remembered: some guard is on.
    pub fn remembers(&self) -> bool {
        *self != Self::NONE
    }

    /// For a dry run: budgets and rests count as if changes were made, but nobody looks for what came of them.
    #[must_use]
    pub fn simulated(self) -> Self {
        Self { breaker: None, unproven: None, rewritten: None, ..self }
    }

    /// No guard at all.
    pub const NONE: Self = Self {
        heartbeat: HeartbeatRule::Ignore,
        cluster_disruptions: None,
        namespace_disruptions: None,
        cluster_resizes: None,
        namespace_resizes: None,
        cool_down: None,
        windows: Windows::ALWAYS,
        breaker: None,
        canary: None,
        unproven: None,
        surge: false,
        rewritten: None,
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
            heartbeat: HeartbeatRule::Auto,
            cluster_disruptions: allowance(100, 0.1),
            namespace_disruptions: allowance(30, 0.2),
            cluster_resizes: allowance(500, 0.5),
            namespace_resizes: allowance(150, 1.0),
            cool_down: Some(CoolDown {
                base: minutes(10),
                urgent: minutes(1),
                longest: minutes(8 * 60),
                forget_after: minutes(6 * 60),
            }),
            windows: Windows::ALWAYS,
            breaker: Some(BreakerSettings {
                share: 0.1,
                ready_within: minutes(10),
                open_for: minutes(60),
                longest: minutes(24 * 60),
                cluster_trips: 5,
            }),
            canary: Some(CanarySettings { watch: minutes(2) }),
            unproven: Some(10),
            surge: false,
            rewritten: Some(minutes(24 * 60)),
        }
    }
}
