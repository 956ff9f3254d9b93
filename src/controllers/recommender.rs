//! The recommender process: its components, startup and shutdown.
//!
//! ```text
//!   watches ──▶ state: VpaIndex + VpaRegistry ◀── pass (usage, OOM kills, decisions) ──▶ StatusQueue ──▶ statuses
//!   targets ──▶ │                          every interval, and at startup
//!               ├──▶ storage_loader, checkpoint_saver: load new VPAs, save due ones, collect garbage ──▶ storage
//!               └──▶ history_loader: reads new VPAs, and merges one VPA at a time ◀── Prometheus
//!   election ──▶ fence ──▶ permit: required for all writes
//! ```

mod backends;
mod checkpoint_saver;
pub(crate) mod config;
mod explanations;
mod history_loader;
mod leadership;
mod node_clock_skew;
mod object_metrics;
mod oom_ingest;
mod pass;
mod probes;
mod run_loop;
mod slow_history;
pub(crate) mod state;
mod status_source;
mod storage_loader;
mod targets;
mod throttling;
mod usage_ingest;
mod watches;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use plimsoll_storage::{Storage, prometheus::history::PrometheusHistory};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use self::pass::PassSummary;
use self::{
    config::RecommenderConfig, explanations::Explanations, history_loader::HistorySource,
    object_metrics::RecommenderObjectMetrics, slow_history::SlowHistory, state::SharedState,
    status_source::RecommendationStatusSource, watches::Watches,
};
use crate::{
    cluster::{
        cache::{controllers::ControllerCache, vpa_index::VpaIndex},
        clock::Clock,
        leader::{Election, Fence, Term},
        target::{
            TargetResolver,
            scale::{CacheLifetimes, low_priority_refresh_gate},
        },
        watch::WatchFactory,
        write::{Permit, RateLimiter, StatusQueue, WriteStats},
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness_thread::Liveness,
        loop_watchdog::LoopWatchdog,
        role_health::HealthReporter,
        shutdown::{ShutdownToken, TaskGroup, Tasks},
        traffic_metrics::{export_watch_metrics, export_write_metrics},
    },
    telemetry::{ApiTrafficMetrics, ObjectMetrics, RecommenderHealthMetrics, RecommenderMetrics},
};
use plimsoll_core::{recommender::VpaRegistry, types::compat::Compat};

/// Backoff while storage is not available.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The factor by which the lifetime of a cached target resolution grows while it stays unchanged: half an hour instead
/// of ten minutes.
const STABLE_TARGET_TTL_FACTOR: u32 = 3;

/// All components of the recommender.
pub struct Recommender {
    config: RecommenderConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    watch_factory: WatchFactory,
    state: SharedState,
    watches: Watches,
    controllers: Arc<ControllerCache>,
    targets: TargetResolver,
    storage: Arc<dyn Storage>,
    /// Prometheus history, if it is read in addition to checkpoints.
    history_source: Option<Arc<HistorySource>>,
    /// The Prometheus server, if usage or history is read from one.
    prometheus: Option<Arc<PrometheusHistory>>,
    permit: Permit,
    status_queue: StatusQueue,
    metrics: RecommenderMetrics,
    health: RecommenderHealthMetrics,
    traffic: ApiTrafficMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    health_reporter: HealthReporter,
    was_ready: AtomicBool,
    /// Wakes the save loop before its interval ends.
    save_trigger: Notify,
    /// Number of pods without usage in the last response.
    missing_pods: AtomicU64,
    /// Explanations to be written as annotations of VPAs.
    explanations: Explanations,
    /// Signalled when a VPA appears whose history must be read.
    history_wanted: Notify,
    /// Signalled when a VPA appears whose target must be resolved.
    target_wanted: Notify,
    history_loaded: Notify,
    /// Whether the last attempt to read history failed.
    history_unreadable: AtomicBool,
    /// The leader term in which the data stored by the previous leader was taken over.
    takeover_term: watch::Sender<Option<Term>>,
    passes: watch::Sender<(u64, PassSummary)>,
}

/// A running recommender.
pub type RecommenderHandle = ControllerHandle<Recommender>;

impl ControllerConfig for RecommenderConfig {
    type Controller = Recommender;

    fn process(&self) -> &ProcessConfig {
        &self.process
    }
}

impl Controller for Recommender {
    type Config = RecommenderConfig;

    const USER_AGENT: &str = concat!("plimsoll-recommender/", env!("CARGO_PKG_VERSION"));

    async fn new(config: RecommenderConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        let registry = &mut context.registry;
        let metrics = RecommenderMetrics::new(registry);
        let health = RecommenderHealthMetrics::new(registry);
        oom_ingest::init_oom_counters(&health);
        let recommender = Self::from_context(config, context, metrics, health)?;
        let source = Arc::new(RecommenderObjectMetrics(Arc::downgrade(&recommender)));
        let cardinality = recommender.config.object_metrics;
        context.registry.add_objects(ObjectMetrics::new(source, cardinality));
        Ok(recommender)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let (version, recommender) = (env!("CARGO_PKG_VERSION"), &*self.config.name);
        let storage = self.storage.name();
        tracing::info!(version, recommender, ?addresses, storage, "starting recommender");
    }

    fn election(&self) -> Option<Election> {
        self.shard_election()
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let recommender = Arc::clone(self);
        tasks.until_end.spawn(|stop| async move {
            recommender.status_queue.run(stop.cancelled()).await;
        });
        let workers = &mut tasks.workers;
        self.watches.start(self, &workers.shutdown_token(), workers.tasks());
        self.start_loops(workers);
    }

    /// OOM kills observed since the last pass are counted and saved, because no other process will observe them.
    async fn drain(&self, deadline: Instant) {
        let now = self.clock.now();
        self.ingest_ooms(now, true);
        self.ingest_ooms(now, false);
        if self.may_write() {
            self.status_queue.drain(deadline).await;
            self.save_all().await;
        }
    }

    fn refresh_metrics(&self) {
        export_watch_metrics(&self.traffic, self.watches.all());
        let (vpas, pods, unsaved, held, sources) = {
            let core = self.state.lock();
            // Read-only storage has no unsaved history.
            let unsaved = self.storage.writer().map_or(0, |_| core.vpa_registry.unsaved_stats().0);
            let held = core.vpa_registry.expired_count();
            (
                core.index.vpa_count(),
                core.index.pod_count(),
                unsaved,
                held,
                core.index.request_sources(),
            )
        };
        self.traffic.set_watch_objects(self.watches.vpas.name(), vpas);
        self.traffic.set_watch_objects(self.watches.pods.name(), pods);
        self.metrics.set_requests_read(sources);
        self.health.loop_metrics.set_leader(self.permit.fence().is_granted());
        self.health.set_history_state(self.history_progress());
        self.health.set_write_queue("status", self.status_queue.len());
        self.health.set_write_queue("checkpoint", unsaved);
        self.health.set_write_queue("checkpoint_held", held);
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}

impl Recommender {
    /// Number of passes so far, and the summary of the last one.
    pub fn passes(&self) -> watch::Receiver<(u64, PassSummary)> {
        self.passes.subscribe()
    }

    /// Number of statuses waiting to be written.
    pub fn pending_statuses(&self) -> usize {
        self.status_queue.len()
    }

    /// Number of VPAs whose history has changes that are not saved.
    pub fn unsaved(&self) -> usize {
        self.state.lock().vpa_registry.unsaved_stats().0
    }

    fn start_loops(self: &Arc<Self>, workers: &mut TaskGroup) {
        let this = || Arc::clone(self);
        workers.spawn_cancellable(this().run_target_lookup_loop());
        match &self.history_source {
            Some(source) => {
                workers.spawn_cancellable(this().run_throttling_query_loop(Arc::clone(source)));
                workers.spawn_cancellable(this().run_prometheus_load_loop(Arc::clone(source)));
            }
            None => workers.spawn_cancellable(this().run_storage_load_loop()),
        }
        workers.spawn_cancellable(this().run_save_loop());
        workers.spawn_cancellable(this().run_takeover_loop());
        workers.spawn_cancellable_on(self.liveness.runtime(), this().run_heartbeat_loop());
        if self.config.compat == Compat::Plimsoll && !self.storage.is_in_cluster() {
            let recommender = this();
            workers.spawn_cancellable(async move {
                let Self { explanations, client, config, storage, .. } = &*recommender;
                let namespace = config.scope.only.as_deref();
                explanations.check_allowed(client, namespace, storage.name()).await;
            });
        }
        workers.spawn_cancellable(this().run_loop());
    }

    fn from_context(
        config: RecommenderConfig,
        context: &ControllerContext,
        metrics: RecommenderMetrics,
        health: RecommenderHealthMetrics,
    ) -> Result<Arc<Self>> {
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let limiter = RateLimiter::new(config.process.qps, config.process.burst);
        let fence = if config.election.enabled { Fence::closed() } else { Fence::open() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        // Statuses, checkpoints and the heartbeat go first.
        let gate = low_priority_refresh_gate(limiter);
        let lifetimes = CacheLifetimes {
            max_lifetime_factor: STABLE_TARGET_TTL_FACTOR,
            ..CacheLifetimes::default()
        };
        let controllers_cache = Arc::clone(&controllers);
        let targets = TargetResolver::new(client.clone(), controllers_cache, gate, lifetimes);
        let prometheus = backends::open_prometheus(&config, &clock, &metrics, &health.prometheus)?;
        let storage = backends::open_storage(&config, &client, &clock, prometheus.as_ref())?;
        let history_source = backends::open_history_source(&config, prometheus.as_ref());
        let index = VpaIndex::new(config.scope.clone(), &config.name);
        let mut registry = VpaRegistry::new(config.settings.clone(), config.compat);
        // Until the clock has been checked.
        registry.keep_expired(true);
        let state =
            SharedState::new(index, registry, config.native_sidecars, config.cap_to_largest_node);
        // Upstream does not report this.
        if history_source.is_some() && config.compat == Compat::Plimsoll {
            state.lock().slow_history = SlowHistory::with_threshold(config.interval);
        }
        let write_stats = Arc::clone(&context.write_stats);
        let health_reporter = HealthReporter::new("recommender", config.interval);
        Ok(Arc::new_cyclic(|weak| Self {
            status_queue: StatusQueue::new(
                client.clone(),
                permit.clone(),
                config.workers,
                Arc::new(RecommendationStatusSource(weak.clone())),
                Arc::clone(&write_stats),
            ),
            watches: Watches::new(config.cap_to_largest_node),
            config,
            clock,
            client,
            liveness: context.liveness.clone(),
            watch_factory: context.watch_factory.clone(),
            traffic: context.traffic.clone(),
            state,
            controllers,
            targets,
            storage,
            history_source,
            prometheus,
            permit,
            metrics,
            health,
            write_stats,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter,
            was_ready: AtomicBool::new(false),
            save_trigger: Notify::new(),
            missing_pods: AtomicU64::new(0),
            explanations: Explanations::default(),
            history_wanted: Notify::new(),
            target_wanted: Notify::new(),
            history_loaded: Notify::new(),
            history_unreadable: AtomicBool::new(false),
            takeover_term: watch::Sender::new(None),
            passes: watch::Sender::new((0, PassSummary::default())),
        }))
    }
}
