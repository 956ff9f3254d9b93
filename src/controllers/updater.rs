//! The updater process: its components, startup and shutdown.
//!
//! ```text
//!   watches: VPAs, pods, LimitRanges ──▶ matching: workloads with their pods ──▶ pass: decides step by step
//!                                                                                  │
//!   heartbeats, admission_health: are the recommender and the webhook healthy? ────┤
//!                                                                                  ▼
//!   persisted_state: record intent ──▶ execute: evict, resize ──▶ status_reporter, events: conditions, events, metrics
//! ```

pub(crate) mod admission_health;
pub(crate) mod config;
pub(crate) mod decision_inputs;
mod events;
mod execute;
pub(crate) mod heartbeats;
pub(crate) mod matching;
pub(crate) mod owner_lookups;
mod pass;
pub(crate) mod permissions;
mod persisted_state;
mod probes;
pub(crate) mod status_reporter;
mod surges;
mod unboost;
mod watches;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use kube::{Api, Client};
use plimsoll_core::types::Time;
use tokio::{sync::watch, time::Instant};

use self::{
    admission_health::AdmissionLog,
    config::UpdaterConfig,
    heartbeats::Heartbeats,
    owner_lookups::OwnerLookups,
    pass::PassState,
    permissions::Permissions,
    status_reporter::{ConditionStatusSource, PausedUpdates, UpdaterObjectMetrics},
    unboost::UnboostTrigger,
    watches::{WatchStores, Watches},
};
pub use self::{config::AdmissionCheck, pass::PassSummary};
use crate::{
    cluster::{
        cache::controllers::ControllerCache,
        clock::Clock,
        leader::{Election, Fence, LeaseAnnotationStore},
        target::{
            TargetResolver,
            scale::{CacheLifetimes, request_gate},
        },
        watch::WatchFactory,
        write::{EventRecorder, Permit, RateLimiter, StatusQueue, WriteStats, event_recorder},
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness_thread::Liveness,
        loop_watchdog::LoopWatchdog,
        quotas::Quotas,
        role_health::HealthReporter,
        shutdown::{ShutdownToken, Tasks},
        traffic_metrics::{export_watch_metrics, export_write_metrics},
    },
    telemetry::{ApiTrafficMetrics, LoopMetrics, ObjectMetrics, UpdaterMetrics},
};
use plimsoll_core::{
    types::compat::Compat,
    updater::guard::{HeartbeatPolicy, disruption_budget},
};

const EVENT_COMPONENT: &str = "vpa-updater";
/// How many conditions are written concurrently.
const STATUS_WORKERS: usize = 4;
/// How often a process that does not lead checks whether it has become the leader.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The updater and all of its components.
pub struct Updater {
    config: UpdaterConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    watch_factory: WatchFactory,
    watches: Watches,
    stores: WatchStores,
    controllers: Arc<ControllerCache>,
    targets: TargetResolver,
    owner_lookups: OwnerLookups,
    boost_owner_lookups: OwnerLookups,
    permit: Permit,
    /// `None` if the configured burst of 0 blocks all evictions.
    eviction_limiter: Option<RateLimiter>,
    resize_limiter: Option<RateLimiter>,
    ledger: LeaseAnnotationStore,
    heartbeats: Heartbeats,
    admission_log: AdmissionLog,
    permissions: Permissions,
    unboost_trigger: UnboostTrigger,
    paused_updates: PausedUpdates,
    status_queue: StatusQueue,
    events: EventRecorder,
    metrics: UpdaterMetrics,
    traffic: ApiTrafficMetrics,
    loop_metrics: LoopMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    health_reporter: HealthReporter,
    quotas: Quotas,
    passes: watch::Sender<(u64, PassSummary)>,
}

/// A running updater.
pub type UpdaterHandle = ControllerHandle<Updater>;

impl ControllerConfig for UpdaterConfig {
    type Controller = Updater;

    fn process(&self) -> &ProcessConfig {
        &self.process
    }
}

impl Controller for Updater {
    type Config = UpdaterConfig;

    const USER_AGENT: &str = concat!("plimsoll-updater/", env!("CARGO_PKG_VERSION"));

    async fn new(config: UpdaterConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        let updater = Self::from_context(config, context);
        let source = Arc::new(UpdaterObjectMetrics(Arc::downgrade(&updater)));
        let cardinality = updater.config.object_metrics;
        context.registry.add_objects(ObjectMetrics::new(source, cardinality));
        Ok(updater)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let version = env!("CARGO_PKG_VERSION");
        let dry_run = self.config.dry_run.is_some();
        tracing::info!(version, ?addresses, dry_run, "starting updater");
    }

    fn election(&self) -> Option<Election> {
        let config = &self.config.election;
        if !config.enabled || self.config.dry_run.is_some() {
            return None;
        }
        let (health, compat) = (self.health_reporter.clone(), self.config.settings.compat);
        let options = config.options(config.name.clone());
        let election = Election::new(
            self.liveness.client(),
            options,
            self.permit.fence().clone(),
            Arc::clone(&self.write_stats),
        )
        .with_lease_lock(self.ledger.lease_lock())
        .with_lease_annotation(move || health.annotation(compat));
        Some(election)
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let this = || Arc::clone(self);
        let updater = this();
        tasks.until_end.spawn(|stop| async move {
            updater.status_queue.run(stop.cancelled()).await;
        });
        let workers = &mut tasks.workers;
        self.watches.start(self, &workers.shutdown_token(), workers.tasks());
        workers.spawn_cancellable(this().discover_permissions());
        if self.config.settings.guards.heartbeat != HeartbeatPolicy::Ignore {
            let (updater, config) = (this(), &self.config);
            let leases = Api::namespaced(self.client.clone(), &config.heartbeat_namespace);
            let interval = config.interval;
            workers.spawn_cancellable(async move {
                updater.heartbeats.run_poll_loop(leases, interval).await;
            });
        }
        workers.spawn(|stop| this().run_unboost_loop(stop));
        workers.spawn(|stop| this().run_loop(stop));
    }

    async fn drain(&self, deadline: Instant) {
        if self.permit.fence().is_granted() {
            tokio::join!(self.status_queue.drain(deadline), self.events.drain(deadline));
        }
    }

    fn refresh_metrics(&self) {
        export_watch_metrics(&self.traffic, self.watches.all().chain(self.quotas.watch_status()));
        let (vpas, pods) = self.stores.counts();
        self.traffic.set_watch_objects(self.watches.vpas.name(), vpas);
        self.traffic.set_watch_objects(self.watches.pods.name(), pods);
        self.loop_metrics.set_leader(self.permit.fence().is_granted());
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}

impl Updater {
    /// Number of passes so far, and the summary of the last one.
    pub fn passes(&self) -> watch::Receiver<(u64, PassSummary)> {
        self.passes.subscribe()
    }

    fn from_context(config: UpdaterConfig, context: &mut ControllerContext) -> Arc<Self> {
        let metrics = UpdaterMetrics::new(&mut context.registry);
        let loop_metrics = LoopMetrics::new(&mut context.registry, "updater");
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let limiter = RateLimiter::new(config.process.qps, config.process.burst);
        let is_dry = config.dry_run.is_some();
        // A dry run holds no lease and writes nothing but events.
        let needs_no_lease = is_dry || !config.election.enabled;
        let fence = if needs_no_lease { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        let gate = request_gate(limiter);
        let lifetimes = CacheLifetimes::default();
        let targets =
            TargetResolver::new(client.clone(), Arc::clone(&controllers), gate, lifetimes);
        let write_stats = Arc::clone(&context.write_stats);
        let health_reporter = HealthReporter::new("updater", config.interval);
        let (events, writer) = event_recorder(
            client.clone(),
            permit.clone(),
            Arc::clone(&write_stats),
            EVENT_COMPONENT,
        );
        let lease = (&config.election.namespace, &config.election.name);
        let ledger = LeaseAnnotationStore::new(
            context.liveness.client(),
            lease.0,
            lease.1,
            disruption_budget::ANNOTATION,
            Arc::clone(&write_stats),
        )
        .with_runtime(context.liveness.runtime().clone());
        context.tasks.until_end.spawn(|stop| writer.run(stop.cancelled()));
        Arc::new_cyclic(|updater| Self {
            status_queue: StatusQueue::new(
                client.clone(),
                permit.clone(),
                STATUS_WORKERS,
                Arc::new(ConditionStatusSource(updater.clone())),
                Arc::clone(&write_stats),
            ),
            eviction_limiter: config.eviction_rate.limiter(),
            resize_limiter: config.resize_rate.limiter(),
            config,
            clock,
            client,
            liveness: context.liveness.clone(),
            watch_factory: context.watch_factory.clone(),
            watches: Watches::new(),
            stores: WatchStores::default(),
            controllers,
            targets,
            owner_lookups: OwnerLookups::default(),
            boost_owner_lookups: OwnerLookups::default(),
            permit,
            ledger,
            heartbeats: Heartbeats::default(),
            admission_log: AdmissionLog::default(),
            permissions: Permissions::default(),
            unboost_trigger: UnboostTrigger::default(),
            paused_updates: PausedUpdates::default(),
            events,
            metrics,
            traffic: context.traffic.clone(),
            loop_metrics,
            write_stats,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter,
            quotas: Quotas::default(),
            passes: watch::Sender::new((0, PassSummary::default())),
        })
    }

    /// The main loop. Upstream makes its first pass one interval after the start; Plimsoll makes it at once.
    async fn run_loop(self: Arc<Self>, stop: ShutdownToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.watches.wait_for_sync() => {}
        }
        if self.config.settings.compat == Compat::Upstream {
            let first = self.clock.now().later(self.config.interval);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(first) => {}
            }
        }
        let mut passes = PassState::default();
        let mut planned_start: Option<Time> = None;
        loop {
            self.loop_watchdog.tick();
            let started = self.clock.now();
            let lag =
                planned_start.map_or(0, |planned_start| started.nanos_since(planned_start).max(0));
            self.loop_metrics.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            // A pass is never aborted in the middle of a step: it finishes the current one and starts no other.
            let summary = self.pass(&mut passes, &stop).await;
            self.loop_watchdog.tick();
            tracing::debug!(?summary, "completed pass");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            let (now, interval) = (self.clock.now(), self.config.interval);
            let next = started.later(interval);
            // After a clock jump the next pass is due at once, so there is neither a burst of passes nor a long gap.
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned_start = Some(next);
            if !summary.could_not_start {
                self.loop_metrics.set_last_success(now);
            }
            let could_act = self.may_act();
            let leadership_change = async {
                while could_act || !self.may_act() {
                    tokio::time::sleep(LEADER_POLL_INTERVAL).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(next) => {}
                () = leadership_change => {}
            }
        }
    }
}
