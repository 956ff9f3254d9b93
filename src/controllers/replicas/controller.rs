//! The controller of one kind of replica autoscaler: its queue of objects, its workers, and its queue of writes.

use std::{
    fmt,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use kube::Client;
use plimsoll_core::types::{ObjectKey, Time, compat::Compat};
use tokio::time::Instant;

use super::{
    ReconcileQueue, ReplicaAutoscaler, ScaleWriter, StatusWriter, Workloads, WriteQueue,
    events::EventRecorder,
    health::{ControllerHealth, run_health_loop},
    watches::Watches,
    workers::Workers,
    write_runner::WriteRunner,
};
use crate::{
    cluster::{
        cache::{replica_pod::CachedPod, selector::Selector},
        clock::Clock,
        leader::{Election, ElectionState, Fence, LeaderState},
        target::scale::{CacheLifetimes, ScaleClient, request_gate},
        write::{Permit, RateLimiter},
    },
    controllers::{
        runtime::{
            config::{ElectionConfig, ProcessConfig},
            context::ControllerContext,
            controller::ControllerTasks,
            liveness_thread::Liveness,
            traffic_metrics::{export_watch_metrics, export_write_metrics},
        },
        updater::config::DryRun,
    },
    telemetry::{ApiTrafficMetrics, ExportedState},
};

/// What the controllers of all kinds have to know of their flags.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// The name of the controller, for health and metrics.
    pub name: &'static str,
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

pub struct ReplicaController<A: ReplicaAutoscaler> {
    pub(in crate::controllers) settings: Arc<ReplicaSettings>,
    /// What differs between kinds.
    pub(in crate::controllers) autoscaler: Arc<A>,
    pub(in crate::controllers) clock: Clock,
    pub(in crate::controllers) client: Client,
    pub(in crate::controllers) queue: Arc<ReconcileQueue<A>>,
    pub(in crate::controllers) workloads: Arc<Workloads<A::Pod>>,
    pub(in crate::controllers) permit: Permit,
    pub(in crate::controllers) events: Arc<EventRecorder<A>>,
    pub(in crate::controllers) status: Arc<StatusWriter<A>>,
    pub(in crate::controllers) scales: ScaleWriter<A>,
    pub(super) watches: Arc<Watches<A>>,
    pub(super) health: ControllerHealth,
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
        let (settings, autoscaler) = (Arc::new(settings), Arc::new(autoscaler));
        let (client, clock) = (context.client.clone(), context.clock.clone());
        // As with upstream, reads of scales do not wait for writes.
        let gate = request_gate(RateLimiter::new(process.qps, process.burst));
        let lifetimes = CacheLifetimes {
            request_timeout: settings.request_timeout,
            ..CacheLifetimes::default()
        };
        let workloads = Workloads::new(
            &settings.namespaces,
            ScaleClient::new(client.clone(), gate, lifetimes),
            client.clone(),
            context.watch_factory.clone(),
            settings.compat,
        );
        let queue = Arc::new(ReconcileQueue::new(workloads.scopes.all().len()));
        let watches = Watches::new(Arc::clone(&workloads), Arc::clone(&queue), clock.clone());
        let (permit, writes) = (settings.permit(process), Arc::new(WriteQueue::default()));
        let events = Arc::new(EventRecorder {
            settings: Arc::clone(&settings),
            clock: clock.clone(),
            writes: Arc::clone(&writes),
        });
        let status = Arc::new(StatusWriter {
            settings: Arc::clone(&settings),
            autoscaler: Arc::clone(&autoscaler),
            clock: clock.clone(),
            client: client.clone(),
            stats: Arc::clone(&context.write_stats),
            permit: permit.clone(),
            queue: Arc::clone(&queue),
            writes,
            events: Arc::clone(&events),
        });
        let scales = ScaleWriter { status: Arc::clone(&status), workloads: Arc::clone(&workloads) };
        Self {
            health: ControllerHealth::new(&mut context.registry, &settings),
            watches: Arc::new(watches),
            liveness: context.liveness.clone(),
            traffic: context.traffic.clone(),
            election: OnceLock::new(),
            settings,
            autoscaler,
            clock,
            client,
            queue,
            workloads,
            permit,
            events,
            status,
            scales,
        }
    }

    /// Number of reconciles so far.
    pub fn reconciles(&self) -> u64 {
        self.health.reconciles.load(Ordering::Acquire)
    }

    /// Whether no object is due, and no write waits.
    pub fn is_idle(&self) -> bool {
        // A write that has ended may have made an object due, and a reconcile may have queued a write.
        let writes = &self.status.writes;
        writes.is_idle() && self.queue.is_idle(self.clock.now()) && writes.is_idle()
    }

    /// How many pods of a namespace are ready and not terminating, according to the watch.
    pub fn ready_pods(&self, namespace: &str) -> usize {
        let scopes = &self.workloads.scopes;
        let all = scopes.pods(namespace, &Selector::everything(), CachedPod::is_ready);
        all.into_iter().filter(|ready| *ready).count()
    }

    /// Visits the exported states of a page of objects, with the current time. Returns the key after which the next page
    /// starts. While another process leads there are none: the state here is outdated. While the leader is unknown, they
    /// are still exported.
    pub(in crate::controllers) fn visit_exported(
        &self,
        after: Option<&ObjectKey>,
        limit: usize,
        mut visit: impl FnMut(&ObjectKey, &ExportedState, Time),
    ) -> Option<ObjectKey> {
        if self.is_standby() {
            return None;
        }
        let (exported, next) = self.queue.exported_page(after, limit);
        let now = self.clock.now();
        for (key, state) in &exported {
            visit(key, state, now);
        }
        next
    }

    /// The election; `None` in a dry run and where it is disabled.
    pub(in crate::controllers) fn new_election(&self) -> Option<Election> {
        let config = &self.settings.election;
        if !config.enabled || self.settings.dry_run.is_some() {
            return None;
        }
        let (health, compat) = (self.health.reporter.clone(), self.settings.compat);
        let options = config.options(config.name.clone());
        let election = Election::new(
            self.liveness.client(),
            options,
            self.permit.fence.clone(),
            Arc::clone(&self.status.stats),
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
        let group = &mut tasks.workers;
        let stop = group.shutdown_token();
        self.watches.start(&stop, group.tasks());
        group.spawn(|stop| run_health_loop(Arc::clone(self), stop));
        self.workloads.start_scale_watches(&stop, group.tasks());
        let write_runner = WriteRunner::new(Arc::clone(self));
        tasks.until_end.spawn(|stop| write_runner.run(stop));
        let workers = Workers::new(Arc::clone(self));
        for _ in 0..self.settings.workers.max(1) {
            group.spawn(|stop| Arc::clone(&workers).run(stop));
        }
    }

    /// Writes what is still queued, if this process leads.
    pub(in crate::controllers) async fn drain_writes(&self, deadline: Instant) {
        if self.permit.fence.is_granted() {
            self.status.writes.drain(deadline).await;
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
        export_write_metrics(&self.traffic, &self.status.stats);
        self.health.loop_metrics.set_leader(self.permit.fence.is_granted());
        self.health.loop_metrics.set_lag(self.queue.longest_wait(self.clock.now()));
    }
}
