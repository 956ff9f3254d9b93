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
pub(crate) mod desired_status;
mod explanations;
mod history_loader;
mod history_source;
mod label_selection;
mod leadership;
mod node_clock_skew;
mod object_metrics;
mod oom_ingest;
mod pass;
mod slow_history;
pub(crate) mod state;
mod status_source;
mod storage_loader;
mod target_lookup;
mod throttling;
mod usage_ingest;
mod watches;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use self::pass::PassSummary;
use self::{
    checkpoint_saver::CheckpointSaver,
    config::{RecommenderConfig, StorageChoice},
    explanations::Explanations,
    history_loader::HistoryLoader,
    history_source::HistorySource,
    leadership::{Leadership, history_progress},
    object_metrics::RecommenderObjectMetrics,
    oom_ingest::{ingest_ooms, init_oom_counters},
    pass::PassRunner,
    slow_history::SlowHistory,
    state::SharedState,
    status_source::RecommendationStatusSource,
    storage_loader::StorageLoader,
    target_lookup::TargetLookup,
    throttling::run_throttling_queries,
    usage_ingest::UsageIngest,
    watches::{PODS, VPAS, Watches},
};
use crate::{
    cluster::{
        cache::{controllers::ControllerCache, vpa_index::VpaIndex},
        clock::Clock,
        leader::Election,
        server::{Probes, Stalled},
        target::{
            TargetResolver,
            scale::{CacheLifetimes, low_priority_refresh_gate},
        },
        write::StatusQueue,
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        loop_watchdog::LoopWatchdog,
        role_health::HealthReporter,
        shutdown::TaskGroup,
        traffic_metrics::{
            check_watch_loops, export_watch_metrics, export_write_metrics, unsynced_watches,
        },
    },
    telemetry::{ApiTrafficMetrics, ObjectMetrics, RecommenderHealthMetrics, RecommenderMetrics},
};
use plimsoll_core::{recommender::VpaRegistry, types::compat::Compat};

/// Backoff while storage is not available.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A pass may wait for usage and take long in a large cluster, which is no reason for a restart.
const LOOP_TIMEOUT: Duration = Duration::from_secs(45);

/// The factor by which the lifetime of a cached target resolution grows while it stays unchanged: half an hour instead
/// of ten minutes.
const STABLE_TARGET_TTL_FACTOR: u32 = 3;

/// The recommender: its parts, most of which run a loop each.
pub struct Recommender {
    shared: Arc<Shared>,
    watches: Arc<Watches>,
    loader: Arc<StorageLoader>,
    /// Prometheus history, if it is read in addition to checkpoints.
    history_source: Option<Arc<HistorySource>>,
    saver: Arc<CheckpointSaver>,
    leadership: Arc<Leadership>,
    status_queue: Arc<StatusQueue>,
    explanations: Arc<Explanations>,
    passes: Arc<PassRunner>,
    traffic: ApiTrafficMetrics,
    was_ready: AtomicBool,
}

/// What the parts of the recommender share.
struct Shared {
    config: RecommenderConfig,
    client: Client,
    clock: Clock,
    state: SharedState,
    metrics: RecommenderMetrics,
    health: RecommenderHealthMetrics,
}

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
        init_oom_counters(&health);
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let (liveness, write_stats) = (context.liveness.clone(), Arc::clone(&context.write_stats));
        let prometheus = backends::open_prometheus(&config, &clock, &metrics, &health.prometheus)?;
        let storage = backends::open_storage(&config, &client, &clock, prometheus.as_ref())?;
        let state = new_state(&config);
        let shared = Arc::new(Shared { config, client, clock, state, metrics, health });
        let (config, client, shared) = (&shared.config, &shared.client, || Arc::clone(&shared));
        let objects = Arc::new(RecommenderObjectMetrics(shared()));
        registry.add_objects(ObjectMetrics::new(objects, config.object_metrics));
        let history = prometheus.clone().filter(|_| config.storage == StorageChoice::Prometheus);
        let new_source = |history| Arc::new(HistorySource { shared: shared(), history });
        let limiter = config.process.rate_limiter();
        let permit = config.election.permit(limiter.clone(), false);
        let controllers = Arc::new(ControllerCache::new());
        let watch_factory = context.watch_factory.clone();
        let watches = Watches::new(&shared(), &controllers, watch_factory);
        let watches = Arc::new(watches);
        // Statuses, checkpoints and the heartbeat go first.
        let gate = low_priority_refresh_gate(limiter);
        let lifetimes = CacheLifetimes {
            max_lifetime_factor: STABLE_TARGET_TTL_FACTOR,
            ..CacheLifetimes::default()
        };
        let resolver = TargetResolver::new(client.clone(), controllers, gate, lifetimes);
        let targets = TargetLookup { shared: shared(), watches: Arc::clone(&watches), resolver };
        let targets = Arc::new(targets);
        let loader = StorageLoader { shared: shared(), targets: Arc::clone(&targets), storage };
        let loader = Arc::new(loader);
        let leadership = Arc::new(Leadership {
            shared: shared(),
            liveness,
            permit: permit.clone(),
            write_stats: Arc::clone(&write_stats),
            health_reporter: HealthReporter::new("recommender", config.interval),
            takeover_term: watch::Sender::new(None),
        });
        let saver = Arc::new(CheckpointSaver {
            shared: shared(),
            loader: Arc::clone(&loader),
            leadership: Arc::clone(&leadership),
            trigger: Notify::new(),
        });
        let explanations = Arc::<Explanations>::default();
        let source = Arc::new(RecommendationStatusSource {
            shared: shared(),
            leadership: Arc::clone(&leadership),
            explanations: Arc::clone(&explanations),
        });
        let status_queue =
            StatusQueue::new(client.clone(), permit, config.workers, source, write_stats);
        let usage = UsageIngest { shared: shared(), prometheus };
        let passes = PassRunner {
            shared: shared(),
            targets,
            usage: Arc::new(usage),
            leadership: Arc::clone(&leadership),
            status_queue: status_queue.clone(),
            saver: Arc::clone(&saver),
            watchdog: LoopWatchdog::default(),
            summaries: watch::Sender::default(),
        };
        Ok(Arc::new(Self {
            shared: shared(),
            watches,
            loader,
            history_source: history.map(new_source),
            saver,
            leadership,
            status_queue,
            explanations,
            passes: Arc::new(passes),
            traffic: context.traffic.clone(),
            was_ready: AtomicBool::new(false),
        }))
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let (version, recommender) = (env!("CARGO_PKG_VERSION"), &*self.shared.config.name);
        let storage = self.loader.storage.name();
        tracing::info!(version, recommender, ?addresses, storage, "starting recommender");
    }

    fn election(&self) -> Option<Election> {
        self.leadership.election()
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let status_queue = self.status_queue.clone();
        tasks.until_end.spawn(|stop| async move { status_queue.run(stop.cancelled()).await });
        let workers = &mut tasks.workers;
        self.watches.set.start(workers);
        self.start_loops(workers);
    }

    /// OOM kills observed since the last pass are counted and saved, because no other process will observe them.
    async fn drain(&self, deadline: Instant) {
        let now = self.shared.clock.now();
        ingest_ooms(&self.shared, now, true);
        ingest_ooms(&self.shared, now, false);
        if self.leadership.may_write() {
            self.status_queue.drain(deadline).await;
            self.saver.save_all().await;
        }
    }

    fn refresh_metrics(&self) {
        let Shared { state, metrics, health, .. } = &*self.shared;
        export_watch_metrics(&self.traffic, self.watches.all());
        {
            let state = state.lock();
            self.traffic.set_watch_objects(VPAS, state.index.vpa_count);
            self.traffic.set_watch_objects(PODS, state.index.pod_count);
            metrics.set_requests_read(state.index.request_sources);
            health.set_history_state(history_progress(&state));
            // Read-only storage has no unsaved history.
            let writer = self.loader.storage.writer();
            let unsaved = writer.map_or(0, |_| state.vpa_registry.unsaved_stats().0);
            health.set_write_queue("checkpoint", unsaved);
            health.set_write_queue("checkpoint_held", state.vpa_registry.expired_count());
        }
        health.set_write_queue("status", self.status_queue.len());
        health.loop_metrics.set_leader(self.leadership.permit.fence.is_granted());
        export_write_metrics(&self.traffic, &self.leadership.write_stats);
    }
}

impl Recommender {
    /// Number of passes so far, and the summary of the last one.
    pub fn passes(&self) -> watch::Receiver<(u64, PassSummary)> {
        self.passes.summaries.subscribe()
    }

    /// Number of statuses waiting to be written.
    pub fn pending_statuses(&self) -> usize {
        self.status_queue.len()
    }

    /// Number of VPAs whose history has changes that are not saved.
    pub fn unsaved(&self) -> usize {
        self.shared.state.lock().vpa_registry.unsaved_stats().0
    }

    fn start_loops(&self, workers: &mut TaskGroup) {
        let loader = || Arc::clone(&self.loader);
        workers.spawn_cancellable(Arc::clone(&self.loader.targets).run());
        match &self.history_source {
            Some(source) => {
                let source = || Arc::clone(source);
                workers.spawn_cancellable(run_throttling_queries(source()));
                workers.spawn_cancellable(HistoryLoader::new(source(), loader()).run());
            }
            None => workers.spawn_cancellable(loader().run()),
        }
        workers.spawn_cancellable(Arc::clone(&self.saver).run());
        let leadership = || Arc::clone(&self.leadership);
        let (saver, status_queue) = (Arc::clone(&self.saver), self.status_queue.clone());
        workers.spawn_cancellable(leadership().run_takeover_loop(saver, status_queue));
        let heartbeat = leadership().run_heartbeat_loop(self.passes());
        workers.spawn_cancellable_on(self.leadership.liveness.runtime(), heartbeat);
        let config = &self.shared.config;
        if config.compat == Compat::Plimsoll && !self.loader.storage.is_in_cluster() {
            let explanations = Arc::clone(&self.explanations);
            let (client, namespace) = (self.shared.client.clone(), config.scope.only.clone());
            let storage = self.loader.storage.name();
            workers.spawn_cancellable(explanations.check_allowed(client, namespace, storage));
        }
        workers.spawn_cancellable(Arc::clone(&self.passes).run());
    }
}

fn new_state(config: &RecommenderConfig) -> SharedState {
    let index = VpaIndex::new(config.scope.clone(), &config.name);
    let mut registry = VpaRegistry::new(config.settings.clone(), config.compat);
    // Until the clock has been checked.
    registry.keep_expired(true);
    let (native_sidecars, nodes) = (config.native_sidecars, config.cap_to_largest_node);
    let state = SharedState::new(index, registry, native_sidecars, nodes);
    // Upstream does not report this.
    if config.storage == StorageChoice::Prometheus && config.compat == Compat::Plimsoll {
        state.lock().slow_history = SlowHistory::with_threshold(config.interval);
    }
    state
}

impl Probes for Recommender {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        let limit = self.shared.config.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        self.passes.watchdog.check_by(&self.shared.clock, limit, "the recommender's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(&self.watches.set.required);
        // VPAs that are created later are loaded on the fly, and do not affect readiness.
        if missing.is_empty() && !self.was_ready.load(Ordering::Acquire) {
            let waiting = self.shared.state.lock().vpa_registry.waiting_for_history().count();
            if waiting > 0 {
                missing.push(format!("the stored history of {waiting} VPAs is not loaded yet"));
            } else {
                self.was_ready.store(true, Ordering::Release);
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
