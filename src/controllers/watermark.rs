//! The watermark controller process: its components, startup and shutdown.
//!
//! ```text
//!   watches ──▶ reconcile_queue: objects by due time ──▶ workers ──▶ reconcile
//!   watches ──▶ pods ──────────────────────────────────────┐            │
//!   target: scale, watched or fetched ─────────────────────┼─▶ apply: decides ──▶ pending scale ──▶ scale ──▶ status_writer
//!   fetch_metrics: metrics APIs, recommenders, Prometheus ─┘                 exported_state ──▶ metrics_export
//! ```

mod apply;
mod circuit_breaker;
pub mod config;
pub mod dry_run;
mod fetch_metrics;
mod health;
mod metrics_export;
mod object_state;
mod probes;
mod reconcile;
mod reconcile_queue;
pub(crate) mod scaling_gates;
mod schedule;
mod status_writer;
mod target;
mod watches;
mod workers;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use anyhow::Result;
use kube::Client;
use tokio::{sync::Semaphore, time::Instant};

use self::{
    circuit_breaker::CircuitBreaker,
    config::WatermarkConfig,
    fetch_metrics::{MetricClients, USER_AGENT},
    metrics_export::{RecommenderCallMetrics, WatermarkObjectMetrics},
    reconcile_queue::ReconcileQueue,
    watches::Watches,
};
use super::replicas::Workloads;
use crate::{
    cluster::{
        cache::{replica_pod::ReplicaPod, selector::Selector},
        clock::Clock,
        leader::{Election, ElectionState, Fence},
        target::scale::{CacheLifetimes, ScaleClient, request_gate},
        watch::WatchFactory,
        write::{EventRecorder, Permit, RateLimiter, WriteStats, event_recorder},
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness::Liveness,
        loop_watchdog::LoopWatchdog,
        role_health::HealthReporter,
        shutdown::{ShutdownToken, Tasks},
        traffic_metrics::{export_watch_metrics, export_write_metrics},
    },
    telemetry::{
        ApiTrafficMetrics, LoopMetrics, PrometheusQueryMetrics, WatermarkMetrics, WpaObjectMetrics,
    },
};

/// The reporting component of events.
const EVENT_COMPONENT: &str = "wpa_controller";

/// The watermark controller and all of its components.
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
    /// Limits how many workers may write status updates that only change values, so that the others can reconcile.
    value_writes: Semaphore,
    /// Permits of slow reconciles that are parked while their worker continues with other objects.
    parked_permits: Arc<Semaphore>,
    /// Limits the requests that wait for metric services.
    circuit_breaker: CircuitBreaker,
    /// The state of the leader election; unset if it is disabled.
    election: OnceLock<ElectionState>,
    /// The number of reconciles so far.
    reconciles: AtomicU64,
    /// When the API server last dropped `status.decision`, in nanoseconds; 0 if it stores the field.
    decision_dropped_at: AtomicI64,
}

impl fmt::Debug for WatermarkController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatermarkController")
            .field("lease", &self.config.election.name)
            .finish_non_exhaustive()
    }
}

/// A watermark controller that runs.
pub type WatermarkHandle = ControllerHandle<WatermarkController>;

impl ControllerConfig for WatermarkConfig {
    type Controller = WatermarkController;

    fn process(&self) -> &ProcessConfig {
        &self.process
    }
}

impl Controller for WatermarkController {
    type Config = WatermarkConfig;

    const USER_AGENT: &str = USER_AGENT;

    async fn new(config: WatermarkConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        let controller = Arc::new(Self::from_context(config, context)?);
        let config = &controller.config;
        context.registry.add_watermarks(WpaObjectMetrics::new(
            Arc::new(WatermarkObjectMetrics(Arc::downgrade(&controller))),
            config.object_metrics,
            config.label_set,
            &config.labels_as_tags,
        ));
        Ok(controller)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let version = env!("CARGO_PKG_VERSION");
        let dry_run = self.config.dry_run.is_some();
        tracing::info!(version, ?addresses, dry_run, "watermark controller starts");
    }

    fn election(&self) -> Option<Election> {
        let config = &self.config.election;
        if !config.enabled || self.config.dry_run.is_some() {
            return None;
        }
        let (health, compat) = (self.health_reporter.clone(), self.config.compat);
        let options = config.options(config.name.clone());
        let election = Election::new(self.liveness.client(), options, self.permit.fence().clone())
            .with_stats(Arc::clone(&self.write_stats))
            .with_lease_annotation(move || health.annotation(compat));
        self.election.get_or_init(|| election.state());
        Some(election)
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let this = || Arc::clone(self);
        let workers = &mut tasks.workers;
        let stop = workers.shutdown_token();
        self.start_watches(&stop, workers.tasks());
        workers.spawn(|stop| this().run_health_loop(stop));
        self.workloads.start_scale_watches(&stop, workers.tasks());
        for worker in 0..self.config.workers.max(1) {
            workers.spawn(|stop| this().run_worker(worker, stop));
        }
    }

    async fn drain(&self, deadline: Instant) {
        if self.permit.fence().is_granted() {
            self.events.drain(deadline).await;
        }
    }

    fn refresh_metrics(&self) {
        export_watch_metrics(
            &self.traffic,
            self.watches.all().chain(self.workloads.scopes.scale_watches()),
        );
        self.traffic.set_watch_objects("watermarkpodautoscalers", self.queue.len());
        self.traffic.set_watch_objects("pods", self.workloads.scopes.pod_count());
        for (name, count) in self.workloads.scopes.scale_counts() {
            self.traffic.set_watch_objects(name, count);
        }
        export_write_metrics(&self.traffic, &self.write_stats);
        self.loop_metrics.set_leader(self.permit.fence().is_granted());
        self.loop_metrics.set_lag(self.queue.longest_wait(self.clock.now()));
        self.metrics.set_queue_depth(self.queue.overdue(self.clock.now()));
        self.retain_recommender_series();
    }
}

impl WatermarkController {
    /// Number of reconciles so far.
    pub fn reconciles(&self) -> u64 {
        self.reconciles.load(Ordering::Acquire)
    }

    /// Whether no object is due.
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle(self.clock.now())
    }

    /// How many pods of a namespace are ready and not terminating, according to the watch.
    pub fn ready_pods(&self, namespace: &str) -> usize {
        let is_ready =
            |kept: &ReplicaPod| matches!(kept.pod.ready, Some((true, _))) && !kept.pod.terminating;
        let all = self.workloads.scopes.pods(namespace, &Selector::everything(), is_ready);
        all.into_iter().filter(|ready| *ready).count()
    }

    fn from_context(config: WatermarkConfig, context: &mut ControllerContext) -> Result<Self> {
        let metrics = WatermarkMetrics::new(&mut context.registry);
        metrics.set_workers(config.workers);
        let loop_metrics = LoopMetrics::new(&mut context.registry, "watermark");
        let query_metrics = PrometheusQueryMetrics::new(&mut context.registry, "watermark");
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let limiter = RateLimiter::new(config.process.qps, config.process.burst);
        // A dry run holds no lease and writes nothing but events.
        let needs_no_lease = config.dry_run.is_some() || !config.election.enabled;
        let fence = if needs_no_lease { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        // As with upstream, reads of scales do not wait for writes.
        let gate = request_gate(RateLimiter::new(config.process.qps, config.process.burst));
        let lifetimes =
            CacheLifetimes { request_timeout: config.request_timeout, ..CacheLifetimes::default() };
        let write_stats = Arc::clone(&context.write_stats);
        let (events, writer) = event_recorder(
            client.clone(),
            permit.clone(),
            Arc::clone(&write_stats),
            EVENT_COMPONENT,
        );
        let workloads = Workloads::new(
            &config.namespaces,
            ScaleClient::new(client.clone(), gate, lifetimes),
            client.clone(),
            context.watch_factory.clone(),
            config.compat,
        );
        let watches = Watches::new(Arc::clone(&workloads));
        context.tasks.until_end.spawn(|stop| writer.run(stop.cancelled()));
        Ok(Self {
            queue: ReconcileQueue::new(watches.scopes().len()),
            watches,
            workloads,
            metric_clients: MetricClients::new(
                &config,
                &clock,
                Arc::new(RecommenderCallMetrics::new(metrics.clone())),
                query_metrics,
            )?,
            permit,
            events,
            traffic: context.traffic.clone(),
            liveness: context.liveness.clone(),
            watch_factory: context.watch_factory.clone(),
            loop_metrics,
            metrics,
            write_stats,
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
        })
    }

    fn may_act(&self) -> bool {
        self.permit.fence().is_granted()
    }
}
