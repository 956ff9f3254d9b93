//! The watches of a controller of replicas: its objects and pods.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{ReplicaAutoscaler, ReplicaController, WatchScope, Workloads};
use crate::{
    cluster::watch::{ObjectChange, WatchOptions, status::WatchStatus, watch},
    controllers::runtime::shutdown::{ShutdownToken, Tasks},
};
use plimsoll_core::types::compat::Compat;

/// The state of the watches of objects, one for each watch scope of the workloads, in the same order.
#[derive(Debug)]
pub(super) struct Watches {
    objects: Vec<Arc<WatchStatus>>,
    workloads: Arc<Workloads>,
}

impl Watches {
    /// Creates watch states; no watch is started yet.
    pub fn new(workloads: Arc<Workloads>, resource: &'static str) -> Self {
        let scopes = workloads.scopes.all().iter();
        let objects = scopes.map(|_| Arc::new(WatchStatus::new(resource))).collect();
        Self { objects, workloads }
    }

    /// The watch scopes: each namespace, or one for all.
    pub fn scopes(&self) -> &[Arc<WatchScope>] {
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
}

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Starts all watches. They run until `stop` is cancelled.
    pub(super) fn start_watches(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        for (index, (objects, scope)) in
            self.watches.objects.iter().zip(self.watches.scopes()).enumerate()
        {
            self.start_watch(index, objects, stop, tasks, |controller: &Self, index, change| {
                controller.apply_object_change(index, change);
            });
            self.start_watch(
                index,
                &scope.pods,
                stop,
                tasks,
                |controller: &Self, index, change| {
                    if let Some(scope) = controller.watches.scopes().get(index) {
                        scope.apply_pod_change(change);
                    }
                },
            );
        }
    }

    fn apply_object_change(&self, index: usize, change: ObjectChange<A::Object>) {
        // Upstream watches no scales.
        if self.settings.compat == Compat::Plimsoll
            && let (ObjectChange::Applied(object), Some(scope)) =
                (&change, self.watches.scopes().get(index))
        {
            let namespace = object.namespace().unwrap_or_default();
            scope.scales.ensure_watched(&self.workloads.target(&namespace, A::target(object)));
        }
        self.queue.apply(index, change, self.clock.now());
    }

    fn start_watch<K>(
        self: &Arc<Self>,
        index: usize,
        status: &Arc<WatchStatus>,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
        apply: fn(&Self, usize, ObjectChange<K>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (controller, status, stopped) =
            (Arc::clone(self), Arc::clone(status), stop.cancelled());
        let only = self.watches.scopes().get(index).and_then(|scope| scope.namespace.as_deref());
        let objects = self.watch_factory.objects::<K>(only);
        tasks.spawn(async move {
            let apply = |change| apply(&controller, index, change);
            watch(objects, WatchOptions::default(), &status, apply, stopped).await;
        });
    }
}
