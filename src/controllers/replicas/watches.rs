//! The watches of a controller of replicas: its objects and pods.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::{ReconcileQueue, ReplicaAutoscaler, WatchScope, Workloads};
use crate::{
    cluster::{
        clock::Clock,
        watch::{ObjectChange, WatchOptions, WatchableObject, status::WatchStatus, watch},
    },
    controllers::runtime::shutdown::{ShutdownToken, Tasks},
};
use plimsoll_core::types::compat::Compat;

/// The state of the watches of objects, one for each watch scope of the workloads, in the same order.
pub(super) struct Watches<A: ReplicaAutoscaler> {
    objects: Vec<Arc<WatchStatus>>,
    workloads: Arc<Workloads<A::Pod>>,
    queue: Arc<ReconcileQueue<A>>,
    clock: Clock,
}

impl<A: ReplicaAutoscaler> Watches<A> {
    /// Creates watch states; no watch is started yet.
    pub fn new(
        workloads: Arc<Workloads<A::Pod>>,
        queue: Arc<ReconcileQueue<A>>,
        clock: Clock,
    ) -> Self {
        let scopes = workloads.scopes.all().iter();
        let objects = scopes.map(|_| Arc::new(WatchStatus::new(A::RESOURCE))).collect();
        Self { objects, workloads, queue, clock }
    }

    /// The watch scopes: each namespace, or one for all.
    pub fn scopes(&self) -> &[Arc<WatchScope<A::Pod>>] {
        self.workloads.scopes.all()
    }

    /// The watches of objects and pods; the controller is ready only when all are synced.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.objects.iter().zip(self.scopes()).flat_map(|(objects, scope)| [objects, &scope.pods])
    }

    /// Waits until every watch has completed its first list.
    pub async fn wait_for_sync(&self) {
        for status in self.all() {
            status.wait_until_synced().await;
        }
    }

    /// Starts all watches. They run until `stop` is cancelled.
    pub fn start(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        for (index, (status, scope)) in self.objects.iter().zip(self.scopes()).enumerate() {
            let (this, pods_of) = (Arc::clone(self), Arc::clone(scope));
            self.start_watch(scope, status, stop, tasks, move |change| {
                this.apply_object_change(index, change);
            });
            self.start_watch(scope, &scope.pods, stop, tasks, move |change| {
                pods_of.apply_pod_change(change);
            });
        }
    }

    fn apply_object_change(&self, index: usize, change: ObjectChange<A::Object>) {
        // Upstream watches no scales.
        if self.workloads.compat == Compat::Plimsoll
            && let (ObjectChange::Applied(object), Some(scope)) =
                (&change, self.scopes().get(index))
        {
            let namespace = object.namespace().unwrap_or_default();
            scope.scales.ensure_watched(&self.workloads.target(&namespace, &A::target(object)));
        }
        self.queue.apply(index, change, self.clock.now());
    }

    fn start_watch<K: WatchableObject>(
        &self,
        scope: &WatchScope<A::Pod>,
        status: &Arc<WatchStatus>,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
        apply: impl FnMut(ObjectChange<K>) + Send + 'static,
    ) {
        let (status, stopped) = (Arc::clone(status), stop.cancelled());
        let objects = self.workloads.watch_factory.objects::<K>(scope.namespace.as_deref());
        tasks.spawn(async move {
            watch(objects, WatchOptions::default(), &status, apply, stopped).await;
        });
    }
}
