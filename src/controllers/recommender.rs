//! The recommender as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ state: index + fleet ◀── pass (usage, kills, decisions) ──▶ outbox ──▶ statuses
//!   targets ──▶ │                          every interval, at once at first
//!               ├──▶ history: load on first sight, save when due, collect orphans ──▶ storage
//!               └──▶ series: read on first sight, taken in a VPA at a time ◀── Prometheus
//!   election ──▶ fence ──▶ permit: without it nothing is written
//! ```

mod backends;
mod checkpoint_saver;
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
    fmt,
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
use tokio::sync::{Notify, watch};

pub use self::pass::PassSummary;
use self::{
    explanations::Explanations, history_loader::HistorySource,
    object_metrics::RecommenderObjectMetrics, slow_history::SlowHistory, state::SharedState,
    status_source::RecommendationStatusSource, watches::Watches,
};
use crate::controllers::runtime::{
    client,
    config::RecommenderConfig,
    context::{Controller, ControllerContext},
    liveness::{Clients, Liveness},
    loop_watchdog::LoopWatchdog,
    role_health::HealthReporter,
    shutdown::{ShutdownToken, Signals, TaskGroup, Tasks, run_until_signal},
    traffic_metrics::{export_watch_metrics, export_write_metrics},
};
use crate::{
    cluster::{
        cache::{controllers::ControllerCache, vpa_index::VpaIndex},
        clock::Clock,
        leader::{ElectionState, Fence, Term},
        target::{TargetResolver, scale::CacheLifetimes},
        watch::WatchFactory,
        write::{Permit, RateLimiter, StatusQueue, WriteStats},
    },
    telemetry::{ApiTrafficMetrics, ObjectMetrics, RecommenderHealthMetrics, RecommenderMetrics},
};
use plimsoll_core::{recommender::VpaRegistry, types::compat::Compat};

/// Pauses after a storage that cannot be reached.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How long statuses that wait to be written may take at the end.
const STATUS_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// So many times as long is an answer about a target good for that stays the same: half an hour in place of ten minutes.
const STABLE_TARGET_TTL_FACTOR: u32 = 3;

/// All parts of a recommender.
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
    /// Where history comes from beside that, if it does.
    history_source: Option<Arc<HistorySource>>,
    /// A Prometheus, where usage or history is read from one.
    prometheus: Option<Arc<PrometheusHistory>>,
    permit: Permit,
    /// Where statuses go to be written.
    status_queue: StatusQueue,
    metrics: RecommenderMetrics,
    health: RecommenderHealthMetrics,
    traffic: ApiTrafficMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    health_reporter: HealthReporter,
    /// Whether it was ready once.
    was_ready: AtomicBool,
    save_trigger: SaveTrigger,
    /// How many pods the last answer about usage lacked.
    missing_pods: AtomicU64,
    /// Why numbers are what they are, on the way to VPAs that say it themselves.
    explanations: Explanations,
    /// A VPA appeared whose history has to be read.
    history_wanted: Notify,
    /// A VPA appeared whose workload has to be found.
    target_wanted: Notify,
    /// Stored history was read.
    history_loaded: Notify,
    /// Whether the latest attempt to read it failed.
    history_unreadable: AtomicBool,
    /// The term of leading in which what another writer stored was taken over.
    takeover_term: watch::Sender<Option<Term>>,
    passes: watch::Sender<(u64, PassSummary)>,
}

/// Wakes the saver before its time.
#[derive(Debug, Default)]
struct SaveTrigger(Notify);

impl SaveTrigger {
    fn wake(&self) {
        self.0.notify_one();
    }

    async fn triggered(&self) {
        self.0.notified().await;
    }
}

/// A recommender that runs.
#[derive(Debug)]
pub struct RecommenderHandle {
    role: Arc<Recommender>,
    address: SocketAddr,
    election: Option<ElectionState>,
    workers: TaskGroup,
    /// What ends last: the lease and the listener.
    stopped_last: TaskGroup,
}

/// Runs until one of these signals.
pub async fn run(config: RecommenderConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    run_until_signal(signals, starting, RecommenderHandle::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &RecommenderConfig) -> Result<Clients> {
    let agent = concat!("plimsoll-recommender/", env!("CARGO_PKG_VERSION"));
    client::connect(config.kubeconfig.as_deref(), agent).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: RecommenderConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<RecommenderHandle> {
    let mut desk = ControllerContext::for_single_controller(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk)?.begin(admin.address());
    let stop = running.stopped_last.shutdown_token();
    desk.serve(vec![admin], &stop, running.stopped_last.tasks());
    Ok(running)
}

/// A recommender that does nothing yet.
pub(super) struct PreparedRecommender(Arc<Recommender>);

/// Puts the parts together.
pub(super) fn prepare(
    config: RecommenderConfig,
    desk: &mut ControllerContext,
) -> Result<PreparedRecommender> {
    let registry = &mut desk.registry;
    let (metrics, health) =
        (RecommenderMetrics::new(registry), RecommenderHealthMetrics::new(registry));
    oom_ingest::init_oom_counters(&health);
    let role = Recommender::new(config, desk, metrics, health)?;
    let cardinality = role.config.object_metrics.cardinality();
    let rows = Arc::new(RecommenderObjectMetrics(Arc::downgrade(&role)));
    desk.registry.add_objects(ObjectMetrics::new(rows, cardinality));
    desk.register(Arc::clone(&role) as _);
    Ok(PreparedRecommender(role))
}

impl PreparedRecommender {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> RecommenderHandle {
        let role = self.0;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            recommender = role.config.name,
            %address,
            storage = role.storage.name(),
            "recommender starts"
        );
        let (mut workers, mut holders) = (TaskGroup::new(), TaskGroup::new());
        let (work_stop, hold_stop) = (workers.shutdown_token(), holders.shutdown_token());
        let election = role.start_election(&hold_stop, holders.tasks());
        role.start_watches(&work_stop, workers.tasks());
        role.start_loops(&work_stop, workers.tasks());
        {
            let (role, hold_stop) = (Arc::clone(&role), hold_stop.clone());
            holders
                .tasks()
                .spawn(async move { role.status_queue.run(hold_stop.cancelled()).await });
        }
        RecommenderHandle { role, address, election, workers, stopped_last: holders }
    }
}

impl fmt::Debug for Recommender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl RecommenderHandle {
    /// Where it serves metrics and health.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of passes so far, and what the last one did.
    pub fn passes(&self) -> watch::Receiver<(u64, PassSummary)> {
        self.role.passes.subscribe()
    }

    /// How the election stands, if there is one.
    pub const fn election(&self) -> Option<&ElectionState> {
        self.election.as_ref()
    }

    /// Number of statuses that wait to be written.
    pub fn pending_statuses(&self) -> usize {
        self.role.status_queue.len()
    }

    /// Number of VPAs whose history has changes that are not saved.
    pub fn unsaved(&self) -> usize {
        self.role.state.lock().vpa_registry.unsaved_stats().0
    }

    /// Ends it in order: the loops first, then everything that is known is written, then the lease is
    /// handed over.
    pub async fn stop(mut self) {
        self.workers.shut_down().await;
        let role = &self.role;
        role.ingest_remaining_ooms();
        // Who may not write waits for nobody.
        if role.may_write() {
            role.status_queue.drain(tokio::time::Instant::now() + STATUS_FLUSH_TIMEOUT).await;
            role.save_all().await;
        }
        self.stopped_last.shut_down().await;
    }
}

impl Recommender {
    fn start_loops(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        tasks.spawn(Arc::clone(self).run_target_lookup_loop(stop.clone()));
        match &self.history_source {
            Some(series) => {
                let of = || (Arc::clone(self), Arc::clone(series), stop.clone());
                let (own, from, until) = of();
                tasks.spawn(own.run_throttling_query_loop(from, until));
                let (own, from, until) = of();
                tasks.spawn(own.run_prometheus_load_loop(from, until))
            }
            None => tasks.spawn(Arc::clone(self).run_storage_load_loop(stop.clone())),
        };
        tasks.spawn(Arc::clone(self).run_save_loop(stop.clone()));
        tasks.spawn(Arc::clone(self).run_takeover_loop(stop.clone()));
        let beating = Arc::clone(self).run_heartbeat_loop(stop.clone());
        tasks.spawn_on(beating, self.liveness.runtime());
        tasks.spawn(Arc::clone(self).check_explanations_allowed(stop.clone()));
        tasks.spawn(Arc::clone(self).run_loop(stop.clone()));
    }

    fn new(
        config: RecommenderConfig,
        desk: &ControllerContext,
        metrics: RecommenderMetrics,
        health: RecommenderHealthMetrics,
    ) -> Result<Arc<Self>> {
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = RateLimiter::new(config.qps, config.burst);
        let fence = if config.election.enabled { Fence::closed() } else { Fence::open() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        let spare = limiter.clone();
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        // Statuses, checkpoints and the heartbeat go before questions that nobody waits for.
        let spare = Arc::new(move || {
            let limiter = spare.clone();
            Box::pin(async move { limiter.acquire_low_priority().await }) as _
        });
        let lifetimes = CacheLifetimes {
            max_lifetime_factor: STABLE_TARGET_TTL_FACTOR,
            ..CacheLifetimes::default()
        };
        let controllers_known = Arc::clone(&controllers);
        let targets = TargetResolver::new(client.clone(), controllers_known, gate, lifetimes)
            .with_low_priority_gate(spare);
        let prometheus = backends::open_prometheus(&config, &clock, &metrics, health.queries())?;
        let storage = backends::open_storage(&config, &client, &clock, prometheus.as_ref())?;
        let series = backends::open_history_source(&config, prometheus.as_ref());
        let index = VpaIndex::new(config.scope.clone(), &config.name);
        let mut fleet = VpaRegistry::new(config.settings.clone(), config.compat);
        // Until it is known whether the clock can be right.
        fleet.keep_expired(true);
        let state =
            SharedState::new(index, fleet, config.native_sidecars, config.cap_to_largest_node);
        // Upstream's never says so.
        if series.is_some() && config.compat == Compat::Plimsoll {
            state.lock().slow_history = SlowHistory::with_threshold(config.interval);
        }
        let counts = Arc::clone(&desk.write_stats);
        let condition = HealthReporter::new("recommender", config.interval);
        Ok(Arc::new_cyclic(|role| Self {
            status_queue: StatusQueue::new(
                client.clone(),
                permit.clone(),
                config.workers,
                Arc::new(RecommendationStatusSource(role.clone())),
            )
            .with_stats(Arc::clone(&counts)),
            watches: Watches::new(config.cap_to_largest_node),
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            watch_factory: desk.watch_factory.clone(),
            traffic: desk.traffic.clone(),
            state,
            controllers,
            targets,
            storage,
            history_source: series,
            prometheus,
            permit,
            metrics,
            health,
            write_stats: counts,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter: condition,
            was_ready: AtomicBool::new(false),
            save_trigger: SaveTrigger::default(),
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

    /// Counts what was found since the last pass: nobody else may see it any more.
    fn ingest_remaining_ooms(&self) {
        let now = self.clock.now();
        self.ingest_ooms(now, true);
        self.ingest_ooms(now, false);
    }
}

impl Controller for Recommender {
    fn refresh_metrics(&self) {
        export_watch_metrics(&self.traffic, self.watches.all());
        let (vpas, pods, unsaved, held, sources) = {
            let core = self.state.lock();
            // Where nothing is written, nothing waits to be.
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
        self.health.loop_metrics().set_leader(self.permit.fence().is_granted());
        self.health.set_history_state(self.history_progress());
        self.health.set_write_queue("status", self.status_queue.len());
        self.health.set_write_queue("checkpoint", unsaved);
        self.health.set_write_queue("checkpoint_held", held);
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}
