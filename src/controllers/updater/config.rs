//! What the updater runs by: flags and environment, checked once and turned into plain data.

use std::{path::PathBuf, time::Duration};

use crate::{
    cluster::write::RateLimiter,
    controllers::runtime::config::{Address, ElectionConfig, LogConfig, ObjectMetrics},
};
use plimsoll_core::{recommender::NamespaceScope, sizing::LimitPolicy, updater::Settings};

/// Everything about the updater that flags can set.
#[derive(Clone, Debug)]
pub struct UpdaterConfig {
    /// From one pass to the next.
    pub interval: Duration,
    /// What decisions hang on.
    pub settings: Settings,
    /// Whether sidecars among the init containers are sized too.
    pub native_sidecars: bool,
    /// What becomes of limits.
    pub limit_policy: LimitPolicy,
    /// Evictions a second.
    pub eviction_rate: RateLimit,
    /// Resizes a second.
    pub resize_rate: RateLimit,
    /// How many pods lose their boost at once, at least 1.
    pub boost_workers: usize,
    /// What is asked about the admission controller; nothing when it is not.
    pub admission_check: Option<AdmissionCheck>,
    /// Namespace of the heartbeats of recommenders.
    pub heartbeat_namespace: String,
    /// Whether nothing is written, and what is said all the same.
    pub dry_run: Option<DryRun>,
    /// Where metrics and health are served.
    pub address: Address,
    /// Which namespaces are looked after.
    pub scope: NamespaceScope,
    /// How to reach the API server; none is from inside of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Requests a second to the API server; infinite for no limit.
    pub qps: f32,
    /// How many requests may go at once before that.
    pub burst: u32,
    /// Who acts, of several replicas.
    pub election: ElectionConfig,
    /// Of which objects there are series of their own.
    pub object_metrics: ObjectMetrics,
    /// Where words about the work go.
    pub log: LogConfig,
    /// What was given and should be looked at; already logged by the command line.
    pub warnings: Vec<String>,
}

/// How many a second, and at once before that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// A second; negative for no limit.
    pub per_second: f32,
    /// At once.
    pub burst: u32,
}

impl RateLimit {
    /// Whether nothing ever passes: nothing at once is nothing at all, as upstream has it.
    pub const fn blocks_all(self) -> bool {
        self.per_second >= 0.0 && self.per_second.is_finite() && self.burst == 0
    }

    /// What holds to it, where anything passes.
    pub fn limiter(self) -> Option<RateLimiter> {
        (!self.blocks_all()).then(|| RateLimiter::new(self.per_second, self.burst))
    }
}

/// The Lease by which the admission controller says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionCheck {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How old it may be.
    pub timeout: Duration,
}

/// Nothing is written to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// But events are.
    pub events: bool,
}
