//! Configuration of the updater: flags and environment variables, validated once.

use std::time::Duration;

use super::admission_health::AdmissionCheck;
use crate::{
    cluster::write::RateLimiter,
    controllers::runtime::config::{ElectionConfig, ProcessConfig},
    telemetry::Cardinality,
};
use plimsoll_core::{recommender::NamespaceScope, sizing::LimitPolicy, updater::Settings};

/// Everything that flags can configure.
#[derive(Clone, Debug)]
pub struct UpdaterConfig {
    pub process: ProcessConfig,
    /// The time between the starts of two passes.
    pub interval: Duration,
    pub settings: Settings,
    /// Whether native sidecars are sized as well.
    pub native_sidecars: bool,
    /// How limits follow requests.
    pub limit_policy: LimitPolicy,
    /// Whether targets of HorizontalPodAutoscalers change together with requests.
    pub retarget_hpas: bool,
    pub eviction_rate: RateLimit,
    pub resize_rate: RateLimit,
    /// How many workloads are processed concurrently when startup boosts are removed; at least 1.
    pub boost_workers: usize,
    /// The Lease of the admission controller to check; `None` disables the check.
    pub admission_check: Option<AdmissionCheck>,
    /// Namespace of the heartbeat Leases of recommenders.
    pub heartbeat_namespace: String,
    pub horizontal_lease_namespace: String,
    /// Dry run, in which nothing is written to the cluster; `None` if disabled.
    pub dry_run: Option<DryRun>,
    pub scope: NamespaceScope,
    pub election: ElectionConfig,
    pub object_metrics: Cardinality,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Actions per second; negative for no limit.
    pub per_second: f32,
    /// Actions that may happen at once.
    pub burst: u32,
}

impl RateLimit {
    /// Whether the limit blocks every action: as in upstream, a burst of 0 does.
    pub const fn blocks_all(self) -> bool {
        self.per_second >= 0.0 && self.per_second.is_finite() && self.burst == 0
    }

    /// The rate limiter; `None` if the limit blocks every action.
    pub fn limiter(self) -> Option<RateLimiter> {
        (!self.blocks_all()).then(|| RateLimiter::new(self.per_second, self.burst))
    }
}

/// Options of a dry run, in which nothing is written to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Whether events are written nevertheless.
    pub events: bool,
}
