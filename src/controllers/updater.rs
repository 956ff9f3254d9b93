//! The updater as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ seen: VPAs, pods, LimitRanges ──▶ matching: workloads ──▶ pass: decide, a step at a time
//!                                                                          │
//!   heartbeats, standing: may it be trusted? ──────────────────────────────┤
//!                                                                          ▼
//!   recollection: book ──▶ acting: evict, resize ──▶ telling: conditions, events, metrics
//! ```

mod admission_health;
pub mod config;
mod decision_inputs;
mod events;
mod execute;
mod heartbeats;
mod matching;
mod owner_lookups;
mod pass;
mod permissions;
mod persisted_state;
mod pod_collect;
mod probes;
mod status_reporter;
mod surges;
mod unboost;
mod watches;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use kube::Client;
use plimsoll_core::types::Time;
use tokio::sync::watch;

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
pub use self::{
    pass::PassSummary,
    pod_collect::{ExplainPodConfig, ExplainPodError, explain},
};
use crate::controllers::runtime::{
    client,
    context::{Controller, ControllerContext},
    liveness::{Clients, Liveness},
    loop_watchdog::LoopWatchdog,
    quotas::Quotas,
    role_health::HealthReporter,
    shutdown::{ShutdownToken, Signals, TaskGroup, Tasks, run_until_signal},
    traffic_metrics::{export_watch_metrics, export_write_metrics},
};
use crate::{
    cluster::{
        cache::controllers::ControllerCache,
        clock::Clock,
        leader::{Election, ElectionState, Fence, LeaseAnnotationStore},
        target::TargetResolver,
        watch::WatchFactory,
        write::{
            EventRecorder, EventWriter, Permit, RateLimiter, StatusQueue, WriteStats,
            event_recorder,
        },
    },
    telemetry::{ApiTrafficMetrics, LoopMetrics, ObjectMetrics, UpdaterMetrics},
};
use plimsoll_core::{types::compat::Compat, updater::guard::disruption_budget};

/// Who says so, in events.
const EVENT_COMPONENT: &str = "vpa-updater";
/// How many conditions are written at once.
const STATUS_WORKERS: usize = 4;
/// Between two looks whether this process leads by now.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long conditions and events that wait to be written may take at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// All parts of an updater.
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
    /// None where nothing may ever pass.
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

impl fmt::Debug for Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("lease", &self.config.election.name).finish_non_exhaustive()
    }
}

/// An updater that runs.
#[derive(Debug)]
pub struct UpdaterHandle {
    role: Arc<Updater>,
    address: SocketAddr,
    election: Option<ElectionState>,
    workers: TaskGroup,
    /// What ends last: the lease and the listener.
    stopped_last: TaskGroup,
}

/// Runs until one of these signals.
pub async fn run(config: UpdaterConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    run_until_signal(signals, starting, UpdaterHandle::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &UpdaterConfig) -> Result<Clients> {
    let agent = concat!("plimsoll-updater/", env!("CARGO_PKG_VERSION"));
    client::connect(config.kubeconfig.as_deref(), agent).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: UpdaterConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<UpdaterHandle> {
    let mut desk = ControllerContext::for_single_controller(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk).begin(admin.address());
    let stop = running.stopped_last.shutdown_token();
    desk.serve(vec![admin], &stop, running.stopped_last.tasks());
    Ok(running)
}

/// An updater that does nothing yet.
pub(super) struct PreparedUpdater(Arc<Updater>, EventWriter);

/// Puts the parts together.
pub(super) fn prepare(config: UpdaterConfig, desk: &mut ControllerContext) -> PreparedUpdater {
    let (role, writer) = Updater::new(config, desk);
    let cardinality = role.config.object_metrics.cardinality();
    let rows = Arc::new(UpdaterObjectMetrics(Arc::downgrade(&role)));
    desk.registry.add_objects(ObjectMetrics::new(rows, cardinality));
    desk.register(Arc::clone(&role) as _);
    PreparedUpdater(role, writer)
}

impl PreparedUpdater {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> UpdaterHandle {
        let Self(role, writer) = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            dry_run = role.config.dry_run.is_some(),
            "updater starts"
        );
        let (mut workers, mut holders) = (TaskGroup::new(), TaskGroup::new());
        let (work_stop, hold_stop) = (workers.shutdown_token(), holders.shutdown_token());
        let election = role.start_election(&hold_stop, holders.tasks());
        holders.tasks().spawn(writer.run(hold_stop.cancelled()));
        {
            let (role, hold_stop) = (Arc::clone(&role), hold_stop.clone());
            holders
                .tasks()
                .spawn(async move { role.status_queue.run(hold_stop.cancelled()).await });
        }
        role.start_watches(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).discover_permissions(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).run_heartbeat_poll_loop(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).run_unboost_loop(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).run_loop(work_stop.clone()));
        UpdaterHandle { role, address, election, workers, stopped_last: holders }
    }
}

impl UpdaterHandle {
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

    /// Whether it is ready, or what is missing.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        crate::cluster::server::Probes::check_readiness(&*self.role)
    }

    /// Ends it in order: the step under way is finished, what is known is told, and then the lease is handed over.
    pub async fn stop(mut self) {
        self.workers.shut_down().await;
        if self.role.permit.fence().is_granted() {
            let deadline = tokio::time::Instant::now() + FLUSH_TIMEOUT;
            tokio::join!(self.role.status_queue.drain(deadline), self.role.events.drain(deadline));
        }
        self.stopped_last.shut_down().await;
    }
}

impl Updater {
    fn new(config: UpdaterConfig, desk: &mut ControllerContext) -> (Arc<Self>, EventWriter) {
        let metrics = UpdaterMetrics::new(&mut desk.registry);
        let pace = LoopMetrics::new(&mut desk.registry, "updater");
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = RateLimiter::new(config.qps, config.burst);
        let is_dry = config.dry_run.is_some();
        // Nobody leads in a dry run, and nothing is written but events.
        let alone = is_dry || !config.election.enabled;
        let fence = if alone { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        let lifetimes = crate::cluster::target::scale::CacheLifetimes::default();
        let targets =
            TargetResolver::new(client.clone(), Arc::clone(&controllers), gate, lifetimes);
        let stats = Arc::clone(&desk.write_stats);
        let condition = HealthReporter::new("updater", config.interval);
        let (told, writer) =
            event_recorder(client.clone(), permit.clone(), Arc::clone(&stats), EVENT_COMPONENT);
        let of_lease = (&config.election.namespace, &config.election.name);
        let ledger = LeaseAnnotationStore::new(
            desk.liveness.client(),
            of_lease.0,
            of_lease.1,
            disruption_budget::ANNOTATION,
        )
        .with_stats(Arc::clone(&stats))
        .with_runtime(desk.liveness.runtime().clone());
        let role = Arc::new_cyclic(|role| Self {
            status_queue: StatusQueue::new(
                client.clone(),
                permit.clone(),
                STATUS_WORKERS,
                Arc::new(ConditionStatusSource(role.clone())),
            )
            .with_stats(Arc::clone(&stats)),
            eviction_limiter: config.eviction_rate.limiter(),
            resize_limiter: config.resize_rate.limiter(),
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            watch_factory: desk.watch_factory.clone(),
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
            events: told,
            metrics,
            traffic: desk.traffic.clone(),
            loop_metrics: pace,
            write_stats: stats,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter: condition,
            quotas: Quotas::default(),
            passes: watch::Sender::new((0, PassSummary::default())),
        });
        (role, writer)
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
        let (condition, compat) = (self.health_reporter.clone(), self.config.settings.compat);
        let election = Election::new(self.liveness.client(), options, fence)
            .with_stats(Arc::clone(&self.write_stats))
            .with_lease_lock(self.ledger.lease_lock())
            .with_lease_annotation(move || condition.annotation(compat));
        let state = election.state();
        tasks.spawn_on(election.run(stop.cancelled()), self.liveness.runtime());
        Some(state)
    }

    /// The loop. Upstream's first pass comes an interval after the start, ours at once.
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
        let mut planned: Option<Time> = None;
        loop {
            self.loop_watchdog.tick();
            let began = self.clock.now();
            let lag = planned.map_or(0, |planned| began.nanos_since(planned).max(0));
            self.loop_metrics.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            // A pass is not cut off: the step under way is finished, and the next one is not begun.
            let summary = self.pass(&mut passes, &stop).await;
            self.loop_watchdog.tick();
            tracing::debug!(?summary, "pass done");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            let (now, interval) = (self.clock.now(), self.config.interval);
            let next = began.later(interval);
            // Counted from now if the clock was set: neither a burst of passes nor a long silence.
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned = Some(next);
            if !summary.could_not_start {
                self.loop_metrics.set_last_success(now);
            }
            let acts = self.may_act();
            let leads = async {
                while acts || !self.may_act() {
                    tokio::time::sleep(LEADER_POLL_INTERVAL).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(next) => {}
                () = leads => {}
            }
        }
    }
}

impl Controller for Updater {
    fn refresh_metrics(&self) {
        export_watch_metrics(&self.traffic, self.watches.all().chain(self.quotas.watch_status()));
        let (vpas, pods) = self.stores.counts();
        self.traffic.set_watch_objects(self.watches.vpas.name(), vpas);
        self.traffic.set_watch_objects(self.watches.pods.name(), pods);
        self.loop_metrics.set_leader(self.permit.fence().is_granted());
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}
