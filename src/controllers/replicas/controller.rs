//! The controller of one kind of replica autoscaler: its queue of objects, its workers, and its queue of writes.

use std::{
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::Duration,
};

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, compat::Compat};
use tokio::time::Instant;

use super::{
    ReconcileQueue, ReplicaAutoscaler, ScaleWriter, StatusWriter, Workloads, WriteQueue,
    health::{ControllerHealth, run_health_loop},
    workers::Workers,
    write_runner::run_writes,
};
use crate::{
    cluster::{
        cache::{replica_pod::CachedPod, selector::Selector},
        clock::Clock,
        leader::{Election, ElectionState, LeaderState},
        target::scale::{CacheLifetimes, ScaleClient, request_gate},
        watch::{ObjectChange, WatchOptions},
        write::Permit,
    },
    controllers::{
        runtime::{
            config::{ElectionConfig, ProcessConfig, new_election},
            context::ControllerContext,
            controller::ControllerTasks,
            liveness_thread::Liveness,
            traffic_metrics::{export_watch_metrics, export_write_metrics},
            watch_set::WatchSet,
        },
        updater::config::DryRun,
    },
    telemetry::{
        ApiTrafficMetrics, Cardinality, ReplicaMetricsSource, ReplicaRow, objects::PAGE_SIZE,
    },
};

#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    pub process: ProcessConfig,
    /// The reporting component of events.
    pub event_component: &'static str,
    /// Whether reads and writes are like upstream's.
    pub compat: Compat,
    /// The time between two reconciles of an object.
    pub period: Duration,
    /// How many objects are reconciled concurrently, at least 1.
    pub workers: usize,
    /// The minimum time between status updates that only change values.
    pub status_interval: Duration,
    pub request_timeout: Duration,
    /// The namespaces to watch; empty for all.
    pub namespaces: Vec<String>,
    /// Dry run, in which nothing is written to the cluster; `None` if disabled.
    pub dry_run: Option<DryRun>,
    pub election: ElectionConfig,
    /// Which objects have metrics of their own besides those with upstream's names.
    pub object_metrics: Cardinality,
}

pub struct ReplicaController<A: ReplicaAutoscaler> {
    pub(in crate::controllers) settings: Arc<ReplicaSettings>,
    /// What differs between kinds.
    pub(in crate::controllers) autoscaler: Arc<A>,
    pub(in crate::controllers) clock: Clock,
    pub(in crate::controllers) queue: Arc<ReconcileQueue<A>>,
    pub(in crate::controllers) workloads: Arc<Workloads<A::Pod>>,
    pub(in crate::controllers) permit: Permit,
    pub(in crate::controllers) status: Arc<StatusWriter<A>>,
    pub(in crate::controllers) scales: ScaleWriter<A>,
    pub(super) watches: WatchSet,
    pub(super) health: ControllerHealth,
    liveness: Liveness,
    traffic: ApiTrafficMetrics,
    /// The state of the leader election; unset if it is disabled.
    election: OnceLock<ElectionState>,
}

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Puts the parts together. Nothing is watched or written yet.
    pub(in crate::controllers) fn from_parts(
        settings: ReplicaSettings,
        autoscaler: A,
        context: &mut ControllerContext,
    ) -> Self {
        let (settings, autoscaler) = (Arc::new(settings), Arc::new(autoscaler));
        let (client, clock) = (context.client.clone(), context.clock.clone());
        // As with upstream, reads of scales do not wait for writes.
        let gate = request_gate(settings.process.rate_limiter());
        let lifetimes = CacheLifetimes {
            request_timeout: settings.request_timeout,
            ..CacheLifetimes::default()
        };
        let scales = ScaleClient::new(client.clone(), gate, lifetimes);
        let workloads = Workloads::new(&settings.namespaces, scales, settings.compat);
        let queue = Arc::new(ReconcileQueue::new(workloads.scopes.all().len()));
        let watches = WatchSet::new(context.watch_factory.clone());
        let watches = Self::add_watches(watches, &workloads, &queue, &clock);
        let permit =
            settings.election.permit(settings.process.rate_limiter(), settings.dry_run.is_some());
        let status = Arc::new(StatusWriter {
            settings: Arc::clone(&settings),
            autoscaler: Arc::clone(&autoscaler),
            clock: clock.clone(),
            client,
            stats: Arc::clone(&context.write_stats),
            permit: permit.clone(),
            queue: Arc::clone(&queue),
            writes: WriteQueue::default(),
        });
        let scales = ScaleWriter { status: Arc::clone(&status), workloads: Arc::clone(&workloads) };
        Self {
            health: ControllerHealth::new(&mut context.registry, A::NAME, settings.period),
            watches,
            liveness: context.liveness.clone(),
            traffic: context.traffic.clone(),
            election: OnceLock::new(),
            settings,
            autoscaler,
            clock,
            queue,
            workloads,
            permit,
            status,
            scales,
        }
    }

    /// Adds the watches of objects, pods and scales: in each namespace, or in all.
    fn add_watches(
        mut watches: WatchSet,
        workloads: &Arc<Workloads<A::Pod>>,
        queue: &Arc<ReconcileQueue<A>>,
        clock: &Clock,
    ) -> WatchSet {
        for (index, scope) in workloads.scopes.all().iter().enumerate() {
            let namespace = scope.namespace.as_deref();
            let (scope_of, workloads) = (Arc::clone(scope), Arc::clone(workloads));
            let (queue, clock) = (Arc::clone(queue), clock.clone());
            let apply = move |change: ObjectChange<A::Object>| {
                if let ObjectChange::Applied(object) = &change {
                    let namespace = object.namespace().unwrap_or_default();
                    workloads.ensure_watched(&scope_of, &namespace, &A::target(object));
                }
                queue.apply(index, change, clock.now());
            };
            watches.add(A::RESOURCE, namespace, WatchOptions::default(), apply);
            let pods_of = Arc::clone(scope);
            watches.add("pods", namespace, WatchOptions::default(), move |change| {
                pods_of.apply_pod_change(change);
            });
        }
        workloads.add_scale_watches(&watches);
        watches
    }

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

    /// The election; `None` in a dry run and where it is disabled.
    pub(in crate::controllers) fn new_election(&self) -> Option<Election> {
        let settings = &self.settings;
        if settings.dry_run.is_some() {
            return None;
        }
        let (permit, stats) = (&self.permit, Arc::clone(&self.status.stats));
        let lease = settings.election.name.clone();
        let health = (&self.health.reporter, settings.compat);
        let election =
            new_election(&settings.election, lease, &self.liveness, permit, stats, health)?;
        self.election.get_or_init(|| election.state());
        Some(election)
    }

    /// Whether another process leads. While the leader is unknown, it does not.
    pub(in crate::controllers) fn is_standby(&self) -> bool {
        let election = self.election.get();
        election.is_some_and(|election| election.leader_state() == LeaderState::Standby)
    }

    pub(in crate::controllers) fn spawn_tasks(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let group = &mut tasks.workers;
        self.watches.start(group);
        group.spawn_cancellable(run_health_loop(Arc::clone(self)));
        tasks.until_end.spawn(|stop| run_writes(Arc::clone(self), stop));
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

    pub(in crate::controllers) fn refresh_gauges(&self) {
        let watches = self.watches.required.iter().chain(self.workloads.scopes.scale_watches());
        export_watch_metrics(&self.traffic, watches);
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

/// The registry of the metrics does not keep the controller alive.
impl<A: ReplicaAutoscaler> ReplicaMetricsSource for Weak<ReplicaController<A>> {
    /// While another process leads there are no objects: the state here is outdated. While the leader is unknown, they are
    /// still exported.
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ReplicaRow<'_>),
    ) -> Option<ObjectKey> {
        let controller = self.upgrade().filter(|controller| !controller.is_standby())?;
        let (exported, next) = controller.queue.exported_page(after, PAGE_SIZE);
        let now = controller.clock.now();
        for (key, state) in &exported {
            visit(ReplicaRow { key, state, now });
        }
        next
    }
}
