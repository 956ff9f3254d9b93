//! The updater process: its components, startup and shutdown.
//!
//! ```text
//!   watches: VPAs, HPAs, pods, … ──────▶ matching: workloads with their pods ──▶ pass: decides step by step
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
pub(crate) mod status_reporter;
mod surges;
mod unboost;
mod watches;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use kube::Api;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

pub use self::{admission_health::AdmissionCheck, pass::PassSummary};
use self::{
    admission_health::AdmissionMonitor, config::UpdaterConfig, events::EventReporter,
    execute::ActionWriter, execute::StepExecutor, heartbeats::Heartbeats,
    owner_lookups::OwnerLookups, pass::PassRunner, pass::WorkloadUpdater, permissions::Permissions,
    persisted_state::StateStore, status_reporter::PausedUpdates, status_reporter::StatusReporter,
    surges::SurgeCleanup, unboost::BoostRemover, watches::WatchStores, watches::Watches,
};
use crate::{
    cluster::{
        clock::Clock,
        leader::{Election, LeaseAnnotationStore},
        server::{Probes, Stalled},
        target::{
            TargetResolver,
            scale::{CacheLifetimes, request_gate},
        },
        write::{StatusQueue, event_recorder},
    },
    controllers::runtime::{
        config::{ProcessConfig, new_election},
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness_thread::Liveness,
        loop_watchdog::LoopWatchdog,
        role_health::HealthReporter,
        traffic_metrics::{check_watch_loops, export_write_metrics, unsynced_watches},
    },
    telemetry::{ApiTrafficMetrics, LoopMetrics, ObjectMetrics, UpdaterMetrics},
};
use plimsoll_core::updater::guard::{HeartbeatPolicy, disruption_budget};

const EVENT_COMPONENT: &str = "vpa-updater";
/// How many conditions are written concurrently.
const STATUS_WORKERS: usize = 4;
/// Upstream's limit: intervals without a pass after which the updater is not live.
const MAX_MISSED_INTERVALS: u32 = 5;

/// What most parts of the updater need.
struct Shared {
    config: Arc<UpdaterConfig>,
    clock: Clock,
    permissions: Permissions,
    stores: Arc<WatchStores>,
    metrics: UpdaterMetrics,
    watchdog: LoopWatchdog,
}

pub struct Updater {
    shared: Arc<Shared>,
    liveness: Liveness,
    traffic: ApiTrafficMetrics,
    watches: Watches,
    store: Arc<StateStore>,
    reporter: Arc<StatusReporter>,
    boosts: BoostRemover,
    passes: PassRunner,
}

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
        let config = Arc::new(config);
        let metrics = UpdaterMetrics::new(&mut context.registry);
        let loop_metrics = LoopMetrics::new(&mut context.registry, "updater");
        let client = context.client.clone();
        let (liveness, stats) = (context.liveness.clone(), Arc::clone(&context.write_stats));
        let limiter = config.process.rate_limiter();
        let permit = config.election.permit(limiter.clone(), config.dry_run.is_some());
        let watches = Watches::new(&config, context.watch_factory.clone());
        let shared = Arc::new(Shared {
            permissions: Permissions::new(
                Arc::clone(&config),
                client.clone(),
                permit.fence.clone(),
            ),
            config: Arc::clone(&config),
            clock: context.clock.clone(),
            stores: Arc::clone(&watches.stores),
            metrics,
            watchdog: LoopWatchdog::default(),
        });
        let share = || Arc::clone(&shared);
        let targets = TargetResolver::new(
            client.clone(),
            Arc::clone(&watches.stores.sizing.controllers),
            request_gate(limiter),
            CacheLifetimes::default(),
        );
        let (recorder, event_writer) =
            event_recorder(client.clone(), permit.clone(), Arc::clone(&stats), EVENT_COMPONENT);
        context.tasks.until_end.spawn(|stop| event_writer.run(stop.cancelled_owned()));
        let events = Arc::new(EventReporter { shared: share(), recorder });
        let paused = Arc::new(PausedUpdates::new(share()));
        let object_metrics = ObjectMetrics::new(Arc::clone(&paused) as _, config.object_metrics);
        context.registry.add_objects(object_metrics);
        let queue = StatusQueue::new(
            client.clone(),
            permit.clone(),
            STATUS_WORKERS,
            Arc::clone(&paused) as _,
            Arc::clone(&stats),
        );
        let reporter =
            StatusReporter { shared: share(), paused, queue, events: Arc::clone(&events) };
        let reporter = Arc::new(reporter);
        let ledger = LeaseAnnotationStore::new(
            liveness.client(),
            &config.election.namespace,
            &config.election.name,
            disruption_budget::ANNOTATION,
            Arc::clone(&stats),
        )
        .with_runtime(liveness.runtime().clone());
        let writer = ActionWriter {
            compat: config.settings.compat,
            client: client.clone(),
            permit,
            stats,
            eviction_limiter: config.eviction_rate.limiter(),
            resize_limiter: config.resize_rate.limiter(),
        };
        let store = Arc::new(StateStore { shared: share(), ledger, writer });
        let executor =
            Arc::new(StepExecutor { shared: share(), store: Arc::clone(&store), events });
        let boosts = BoostRemover {
            shared: share(),
            targets: targets.clone(),
            lookups: OwnerLookups::default(),
            executor: Arc::clone(&executor),
            dry_run_logged: Mutex::default(),
        };
        let updater = WorkloadUpdater {
            shared: share(),
            heartbeats: Heartbeats::default(),
            executor,
            reporter: Arc::clone(&reporter),
        };
        let last_logged = Mutex::default();
        let passes = PassRunner {
            shared: share(),
            admission: AdmissionMonitor { shared: share(), client, last_logged },
            targets,
            lookups: OwnerLookups::default(),
            surges: SurgeCleanup { shared: share(), store: Arc::clone(&store) },
            updater,
            health: HealthReporter::new("updater", config.interval),
            loop_metrics,
            summaries: watch::Sender::new((0, PassSummary::default())),
        };
        let traffic = context.traffic.clone();
        Ok(Arc::new(Self { shared, liveness, traffic, watches, store, reporter, boosts, passes }))
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let version = env!("CARGO_PKG_VERSION");
        let dry_run = self.shared.config.dry_run.is_some();
        tracing::info!(version, ?addresses, dry_run, "starting updater");
    }

    fn election(&self) -> Option<Election> {
        let config = &self.shared.config;
        if config.dry_run.is_some() {
            return None;
        }
        let (writer, lease) = (&self.store.writer, config.election.name.clone());
        let stats = Arc::clone(&writer.stats);
        let health = (&self.passes.health, config.settings.compat);
        let election = &config.election;
        let election =
            new_election(election, lease, &self.liveness, &writer.permit, stats, health)?;
        Some(election.with_lease_lock(self.store.ledger.lease_lock()))
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let this = || Arc::clone(self);
        let updater = this();
        tasks.until_end.spawn(|stop| async move {
            Arc::clone(&updater.reporter.queue).run(stop.cancelled()).await;
        });
        let workers = &mut tasks.workers;
        let (config, settings) = (&self.shared.config, &self.shared.config.settings);
        self.watches.set.start(workers);
        let updater = this();
        workers.spawn_cancellable(async move { updater.shared.permissions.discover().await });
        if settings.guards.heartbeat != HeartbeatPolicy::Ignore {
            let client = self.store.writer.client.clone();
            let leases = Api::namespaced(client, &config.heartbeat_namespace);
            let (updater, interval) = (this(), config.interval);
            workers.spawn_cancellable(async move {
                updater.passes.updater.heartbeats.run_poll_loop(leases, interval).await;
            });
        }
        if settings.startup_boost {
            let updater = this();
            workers.spawn(|stop| async move {
                if updater.watches.wait_for_sync(&stop).await {
                    updater.boosts.run(stop).await;
                }
            });
        }
        let updater = this();
        workers.spawn(|stop| async move {
            if updater.watches.wait_for_sync(&stop).await {
                updater.passes.run(stop).await;
            }
        });
    }

    async fn drain(&self, deadline: Instant) {
        if self.store.writer.permit.fence.is_granted() {
            let (statuses, events) = (&self.reporter.queue, &self.reporter.events.recorder);
            tokio::join!(statuses.drain(deadline), events.drain(deadline));
        }
    }

    fn refresh_metrics(&self) {
        self.watches.export_metrics(&self.traffic);
        self.passes.loop_metrics.set_leader(self.store.writer.permit.fence.is_granted());
        export_write_metrics(&self.traffic, &self.store.writer.stats);
    }
}

impl Probes for Updater {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        let limit = self.shared.config.interval.saturating_mul(MAX_MISSED_INTERVALS);
        self.shared.watchdog.check_by(&self.shared.clock, limit, "the updater's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing = unsynced_watches(self.watches.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}

impl Updater {
    /// Number of passes so far, and the summary of the last one.
    pub fn passes(&self) -> watch::Receiver<(u64, PassSummary)> {
        self.passes.summaries.subscribe()
    }
}
