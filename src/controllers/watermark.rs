//! The watermark controller as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ book: objects, whose turn it is ──▶ look, by several workers
//!   feeds ──▶ pods ─────────────────────────────┐   │
//!   scales: watched, or asked for ──────────────┼─▶ deciding ──▶ booked ──▶ replicas ──▶ status, events
//!   asking: metrics APIs, recommenders, PromQL ─┘                              rows ──▶ metrics
//! ```

mod apply;
mod circuit_breaker;
pub mod config;
pub mod dry_run;
mod exported_state;
mod fetch_metrics;
mod health;
mod metrics_export;
mod object_state;
mod probes;
mod reconcile;
mod reconcile_queue;
pub(in crate::controllers) mod scaling_gates;
mod schedule;
mod status_writer;
mod target;
mod watches;
mod workers;
pub mod wpa_collect;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use tokio::sync::Semaphore;

use self::{
    circuit_breaker::CircuitBreaker,
    config::WatermarkConfig,
    fetch_metrics::{MetricClients, USER_AGENT},
    metrics_export::{RecommenderCallMetrics, WatermarkObjectMetrics},
    reconcile_queue::ReconcileQueue,
    watches::Watches,
};
use super::replicas::Workloads;
use crate::controllers::runtime::{
    client,
    context::ControllerContext,
    liveness::{Clients, Liveness},
    loop_watchdog::LoopWatchdog,
    role_health::HealthReporter,
    shutdown::{ShutdownToken, Signals, TaskGroup, Tasks, run_until_signal},
};
use crate::{
    cluster::{
        cache::{replica_pod::ReplicaPod, selector::Selector},
        clock::Clock,
        leader::{Election, ElectionState, Fence},
        target::scale::{CacheLifetimes, ScaleClient},
        watch::WatchFactory,
        write::{EventRecorder, EventWriter, Permit, RateLimiter, WriteStats, event_recorder},
    },
    telemetry::{
        ApiTrafficMetrics, LoopMetrics, PrometheusQueryMetrics, WatermarkMetrics, WpaObjectMetrics,
    },
};

/// Who says so, in events.
const EVENT_COMPONENT: &str = "wpa_controller";
/// How long events that wait to be written may take at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// All parts of a watermark controller.
pub struct WatermarkController {
    config: WatermarkConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    watch_factory: WatchFactory,
    watches: Watches,
    queue: ReconcileQueue,
    workloads: Arc<Workloads>,
    metric_clients: MetricClients,
    permit: Permit,
    events: EventRecorder,
    traffic: ApiTrafficMetrics,
    loop_metrics: LoopMetrics,
    metrics: WatermarkMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    health_reporter: HealthReporter,
    /// How many may write mere values at once: the others have turns to keep.
    value_writes: Semaphore,
    /// Room for looks that wait for somebody, and whose worker goes on meanwhile.
    parked_permits: Arc<Semaphore>,
    /// Whom values are waited for.
    circuit_breaker: CircuitBreaker,
    /// How the election stands, if there is one.
    election: OnceLock<ElectionState>,
    /// Looks so far.
    reconciles: AtomicU64,
    /// When the server dropped last what a status tells of a decision, in nanoseconds; 0 if it does not.
    decision_dropped_at: AtomicI64,
}

impl fmt::Debug for WatermarkController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("lease", &self.config.election.name).finish_non_exhaustive()
    }
}

/// A watermark controller that runs.
#[derive(Debug)]
pub struct WatermarkHandle {
    role: Arc<WatermarkController>,
    address: SocketAddr,
    health: SocketAddr,
    election: Option<ElectionState>,
    workers: TaskGroup,
    /// What ends last: the lease and the listeners.
    stopped_last: TaskGroup,
}

/// Runs until one of these signals.
pub async fn run(config: WatermarkConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    run_until_signal(signals, starting, WatermarkHandle::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &WatermarkConfig) -> Result<Clients> {
    client::connect(config.kubeconfig.as_deref(), USER_AGENT).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: WatermarkConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<WatermarkHandle> {
    let mut desk = ControllerContext::for_single_controller(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let health = desk.liveness.bind(&config.health_address).await?;
    let mut running = prepare(config, &mut desk)?.begin(admin.address(), health.address());
    let stop = running.stopped_last.shutdown_token();
    desk.serve(vec![admin, health], &stop, running.stopped_last.tasks());
    Ok(running)
}

/// A watermark controller that does nothing yet.
pub(super) struct PreparedWatermark(Arc<WatermarkController>, EventWriter);

/// Puts the parts together.
pub(super) fn prepare(
    config: WatermarkConfig,
    desk: &mut ControllerContext,
) -> Result<PreparedWatermark> {
    let (role, writer) = WatermarkController::new(config, desk)?;
    let config = &role.config;
    let objects = WpaObjectMetrics::new(
        Arc::new(WatermarkObjectMetrics(Arc::downgrade(&role))),
        config.object_metrics.cardinality(),
        config.label_set,
        &config.labels_as_tags,
    );
    desk.registry.add_watermarks(objects);
    desk.register(Arc::clone(&role) as _);
    Ok(PreparedWatermark(role, writer))
}

impl PreparedWatermark {
    /// Starts its tasks. It is scraped there, and probed there.
    pub fn begin(self, address: SocketAddr, health: SocketAddr) -> WatermarkHandle {
        let Self(role, writer) = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            %health,
            dry_run = role.config.dry_run.is_some(),
            "watermark controller starts"
        );
        let (mut workers, mut holders) = (TaskGroup::new(), TaskGroup::new());
        let (work_stop, hold_stop) = (workers.shutdown_token(), holders.shutdown_token());
        let election = role.start_election(&hold_stop, holders.tasks());
        holders.tasks().spawn(writer.run(hold_stop.cancelled()));
        role.start_watches(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).run_health_loop(work_stop.clone()));
        role.workloads.start_scale_watches(&work_stop, workers.tasks());
        for worker in 0..role.config.workers.max(1) {
            workers.tasks().spawn(Arc::clone(&role).run_worker(worker, work_stop.clone()));
        }
        WatermarkHandle { role, address, health, election, workers, stopped_last: holders }
    }
}

impl WatermarkHandle {
    /// Where it serves metrics.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves health.
    pub const fn health(&self) -> SocketAddr {
        self.health
    }

    /// How often an object was looked at.
    pub fn reconciles(&self) -> u64 {
        self.role.reconciles.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Whether nobody has a turn that has come.
    pub fn is_idle(&self) -> bool {
        self.role.queue.is_idle(self.role.clock.now())
    }

    /// How many pods of a namespace are ready and not on their way out, as the watch tells.
    pub fn ready_pods(&self, namespace: &str) -> usize {
        let counts =
            |kept: &ReplicaPod| matches!(kept.pod.ready, Some((true, _))) && !kept.pod.terminating;
        let all = self.role.workloads.scopes.pods(namespace, &Selector::everything(), counts);
        all.into_iter().filter(|counted| *counted).count()
    }

    /// How the election stands, if there is one.
    pub const fn election(&self) -> Option<&ElectionState> {
        self.election.as_ref()
    }

    /// Whether it is ready, or what is missing.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        crate::cluster::server::Probes::check_readiness(&*self.role)
    }

    /// Ends it in order: looks under way are finished, what is known is told, and then the lease is handed over.
    pub async fn stop(mut self) {
        self.workers.shut_down().await;
        if self.role.permit.fence().is_granted() {
            self.role.events.drain(tokio::time::Instant::now() + FLUSH_TIMEOUT).await;
        }
        self.stopped_last.shut_down().await;
    }
}

impl WatermarkController {
    fn new(
        config: WatermarkConfig,
        desk: &mut ControllerContext,
    ) -> Result<(Arc<Self>, EventWriter)> {
        let metrics = WatermarkMetrics::new(&mut desk.registry);
        metrics.set_workers(config.workers);
        let pace = LoopMetrics::new(&mut desk.registry, "watermark");
        let queries = PrometheusQueryMetrics::new(&mut desk.registry, "watermark");
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = RateLimiter::new(config.qps, config.burst);
        // Nobody leads in a dry run, and nothing is written but events.
        let alone = config.dry_run.is_some() || !config.election.enabled;
        let fence = if alone { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        // As with upstream, whoever reads scales does not wait for whoever writes.
        let reads = RateLimiter::new(config.qps, config.burst);
        let gate = Arc::new(move || {
            let reads = reads.clone();
            Box::pin(async move { reads.acquire().await }) as _
        });
        let lifetimes =
            CacheLifetimes { request_timeout: config.request_timeout, ..CacheLifetimes::default() };
        let stats = Arc::clone(&desk.write_stats);
        let (told, writer) =
            event_recorder(client.clone(), permit.clone(), Arc::clone(&stats), EVENT_COMPONENT);
        let workloads = Workloads::new(
            &config.namespaces,
            ScaleClient::new(client.clone(), gate, lifetimes),
            client.clone(),
            desk.watch_factory.clone(),
            config.compat,
        );
        let feeds = Watches::new(Arc::clone(&workloads));
        let role = Self {
            queue: ReconcileQueue::new(feeds.scopes().len()),
            watches: feeds,
            workloads,
            metric_clients: MetricClients::new(
                &config,
                &clock,
                Arc::new(RecommenderCallMetrics::new(metrics.clone())),
                queries,
            )?,
            permit,
            events: told,
            traffic: desk.traffic.clone(),
            liveness: desk.liveness.clone(),
            watch_factory: desk.watch_factory.clone(),
            loop_metrics: pace,
            metrics,
            write_stats: stats,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter: HealthReporter::new("watermark", config.period),
            value_writes: Semaphore::new((config.workers / 4).max(1)),
            parked_permits: Arc::new(Semaphore::new(workers::max_parked(&config))),
            circuit_breaker: CircuitBreaker::new(config.workers),
            election: OnceLock::new(),
            reconciles: AtomicU64::new(0),
            decision_dropped_at: AtomicI64::new(0),
            config,
            clock,
            client,
        };
        Ok((Arc::new(role), writer))
    }

    fn start_election(
        self: &Arc<Self>,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
    ) -> Option<ElectionState> {
        let wanted = &self.config.election;
        if !wanted.enabled || self.config.dry_run.is_some() {
            return None;
        }
        let options = wanted.options(wanted.name.clone());
        let fence = self.permit.fence().clone();
        let (condition, compat) = (self.health_reporter.clone(), self.config.compat);
        let election = Election::new(self.liveness.client(), options, fence)
            .with_stats(Arc::clone(&self.write_stats))
            .with_lease_annotation(move || condition.annotation(compat));
        let state = self.election.get_or_init(|| election.state()).clone();
        tasks.spawn_on(election.run(stop.cancelled()), self.liveness.runtime());
        Some(state)
    }

    fn may_act(&self) -> bool {
        self.permit.fence().is_granted()
    }
}
