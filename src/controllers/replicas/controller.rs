//! The controller of one kind of replica autoscaler: its queue of objects, its workers, and its queue of writes.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Client;
use plimsoll_core::types::compat::Compat;
use tokio::{sync::Semaphore, time::Instant};

use super::{ReconcileQueue, ReplicaAutoscaler, Workloads, WriteQueue, watches::Watches, workers};
use super::{current_term::CurrentTerm, writes::Write};
use crate::{
    cluster::{
        cache::{replica_pod::ReplicaPod, selector::Selector},
        clock::Clock,
        leader::{Election, ElectionState, Fence, LeaderState},
        target::scale::{CacheLifetimes, ScaleClient, request_gate},
        watch::WatchFactory,
        write::{EventSender, Permit, RateLimiter, WriteStats},
    },
    controllers::{
        runtime::{
            config::{ElectionConfig, ProcessConfig},
            context::ControllerContext,
            controller::ControllerTasks,
            liveness_thread::Liveness,
            loop_watchdog::LoopWatchdog,
            role_health::HealthReporter,
            traffic_metrics::{export_watch_metrics, export_write_metrics},
        },
        updater::config::DryRun,
    },
    telemetry::{ApiTrafficMetrics, LoopMetrics},
};

/// What the controllers of all kinds have to know of their flags.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The name of the controller, for health and metrics.
    pub name: &'static str,
    /// The reporting component of events.
    pub event_component: &'static str,
    /// Whether to behave like upstream.
    pub compat: Compat,
    /// The time between two reconciles of an object.
    pub period: Duration,
    /// How many objects are reconciled concurrently, at least 1.
    pub workers: usize,
    /// The minimum time between status updates that only change values.
    pub status_interval: Duration,
    /// Timeout of requests to the API server.
    pub request_timeout: Duration,
    /// The namespaces to watch; empty for all.
    pub namespaces: Vec<String>,
    /// Dry run, in which nothing is written to the cluster; `None` if disabled.
    pub dry_run: Option<DryRun>,
    /// Leader election.
    pub election: ElectionConfig,
}

impl ReplicaSettings {
    /// The permit to write. A dry run holds no lease, and writes nothing but events.
    pub fn permit(&self, process: &ProcessConfig) -> Permit {
        let needs_no_lease = self.dry_run.is_some() || !self.election.enabled;
        let fence = if needs_no_lease { Fence::open() } else { Fence::closed() };
        Permit::new(fence, RateLimiter::new(process.qps, process.burst))
    }
}

/// The controller of one kind of replica autoscaler.
pub struct ReplicaController<A: ReplicaAutoscaler> {
    pub(in crate::controllers) settings: ReplicaSettings,
    /// What differs between kinds.
    pub(in crate::controllers) autoscaler: A,
    pub(in crate::controllers) clock: Clock,
    pub(in crate::controllers) client: Client,
    pub(super) watch_factory: WatchFactory,
    pub(super) watches: Watches,
    pub(in crate::controllers) queue: ReconcileQueue<A>,
    pub(in crate::controllers) workloads: Arc<Workloads>,
    pub(in crate::controllers) permit: Permit,
    /// Writes that wait for the rate limit.
    pub(in crate::controllers) writes: WriteQueue<Write<A>>,
    pub(super) term: CurrentTerm,
    pub(super) event_sender: EventSender,
    pub(super) loop_watchdog: LoopWatchdog,
    pub(super) loop_metrics: LoopMetrics,
    pub(super) health_reporter: HealthReporter,
    /// Permits of slow reconciles that are parked while their worker continues with other objects.
    pub(super) parked_permits: Arc<Semaphore>,
    /// The number of reconciles so far.
    pub(super) reconciles: AtomicU64,
    pub(super) write_stats: Arc<WriteStats>,
    liveness: Liveness,
    traffic: ApiTrafficMetrics,
    /// The state of the leader election; unset if it is disabled.
    election: OnceLock<ElectionState>,
}

impl<A: ReplicaAutoscaler> fmt::Debug for ReplicaController<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaController")
            .field("kind", &A::KIND)
            .field("lease", &self.settings.election.name)
            .finish_non_exhaustive()
    }
}

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Puts the parts together. Nothing is watched or written yet.
    pub(in crate::controllers) fn from_parts(
        settings: ReplicaSettings,
        process: &ProcessConfig,
        autoscaler: A,
        context: &mut ControllerContext,
    ) -> Self {
        let (client, clock) = (context.client.clone(), context.clock.clone());
        // As with upstream, reads of scales do not wait for writes.
        let gate = request_gate(RateLimiter::new(process.qps, process.burst));
        let lifetimes = CacheLifetimes {
            request_timeout: settings.request_timeout,
            ..CacheLifetimes::default()
        };
        let write_stats = Arc::clone(&context.write_stats);
        let event_sender =
            EventSender::new(client.clone(), Arc::clone(&write_stats), settings.event_component);
        let workloads = Workloads::new(
            &settings.namespaces,
            ScaleClient::new(client.clone(), gate, lifetimes),
            client.clone(),
            context.watch_factory.clone(),
            settings.compat,
        );
        let watches = Watches::new(Arc::clone(&workloads), A::RESOURCE);
        Self {
            queue: ReconcileQueue::new(watches.scopes().len()),
            watches,
            workloads,
            permit: settings.permit(process),
            writes: WriteQueue::default(),
            term: CurrentTerm::default(),
            event_sender,
            traffic: context.traffic.clone(),
            liveness: context.liveness.clone(),
            watch_factory: context.watch_factory.clone(),
            loop_metrics: LoopMetrics::new(&mut context.registry, settings.name),
            write_stats,
            loop_watchdog: LoopWatchdog::default(),
            health_reporter: HealthReporter::new(settings.name, settings.period),
            parked_permits: Arc::new(Semaphore::new(workers::max_parked(&settings))),
            election: OnceLock::new(),
            reconciles: AtomicU64::new(0),
            settings,
            autoscaler,
            clock,
            client,
        }
    }

    /// Number of reconciles so far.
    pub fn reconciles(&self) -> u64 {
        self.reconciles.load(Ordering::Acquire)
    }

    /// Whether no object is due, and no write waits.
    pub fn is_idle(&self) -> bool {
        // A write that has ended may have made an object due, and a reconcile may have queued a write.
        self.writes.is_idle() && self.queue.is_idle(self.clock.now()) && self.writes.is_idle()
    }

    /// How many pods of a namespace are ready and not terminating, according to the watch.
    pub fn ready_pods(&self, namespace: &str) -> usize {
        let is_ready =
            |kept: &ReplicaPod| matches!(kept.pod.ready, Some((true, _))) && !kept.pod.terminating;
        let all = self.workloads.scopes.pods(namespace, &Selector::everything(), is_ready);
        all.into_iter().filter(|ready| *ready).count()
    }

    /// The election; `None` in a dry run and where it is disabled.
    pub(in crate::controllers) fn new_election(&self) -> Option<Election> {
        let config = &self.settings.election;
        if !config.enabled || self.settings.dry_run.is_some() {
            return None;
        }
        let (health, compat) = (self.health_reporter.clone(), self.settings.compat);
        let options = config.options(config.name.clone());
        let election = Election::new(
            self.liveness.client(),
            options,
            self.permit.fence().clone(),
            Arc::clone(&self.write_stats),
        )
        .with_lease_annotation(move || health.annotation(compat));
        self.election.get_or_init(|| election.state());
        Some(election)
    }

    /// Whether another process leads. While the leader is unknown, it does not.
    pub(in crate::controllers) fn is_standby(&self) -> bool {
        let election = self.election.get();
        election.is_some_and(|election| election.leader_state() == LeaderState::Standby)
    }

    /// Spawns the watches, the workers and the writers.
    pub(in crate::controllers) fn spawn_tasks(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let this = || Arc::clone(self);
        let workers = &mut tasks.workers;
        let stop = workers.shutdown_token();
        self.start_watches(&stop, workers.tasks());
        workers.spawn(|stop| this().run_health_loop(stop));
        self.workloads.start_scale_watches(&stop, workers.tasks());
        tasks.until_end.spawn(|stop| this().run_writes(stop));
        for _ in 0..self.settings.workers.max(1) {
            workers.spawn(|stop| this().run_worker(stop));
        }
    }

    /// Writes what is still queued, if this process leads.
    pub(in crate::controllers) async fn drain_writes(&self, deadline: Instant) {
        if self.permit.fence().is_granted() {
            self.writes.drain(deadline).await;
        }
    }

    /// Updates the gauges of watches, writes and the queue.
    pub(in crate::controllers) fn refresh_gauges(&self) {
        export_watch_metrics(
            &self.traffic,
            self.watches.all().chain(self.workloads.scopes.scale_watches()),
        );
        self.traffic.set_watch_objects(A::RESOURCE, self.queue.len());
        self.traffic.set_watch_objects("pods", self.workloads.scopes.pod_count());
        for (name, count) in self.workloads.scopes.scale_counts() {
            self.traffic.set_watch_objects(name, count);
        }
        export_write_metrics(&self.traffic, &self.write_stats);
        self.loop_metrics.set_leader(self.permit.fence().is_granted());
        self.loop_metrics.set_lag(self.queue.longest_wait(self.clock.now()));
    }
}
