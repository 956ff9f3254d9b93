//! What the watermark controller watches: its objects, and pods.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{
    super::replicas::{WatchScope, Workloads},
    ShutdownToken, Tasks, WatermarkController,
};
use crate::cluster::watch::{ObjectChange, WatchOptions, status::WatchStatus, watch};
use plimsoll_core::{api::wpa::WatermarkPodAutoscaler, types::compat::Compat};

/// The watches of objects: of each namespace, or of all, in the order of the workloads' own.
#[derive(Debug)]
pub(super) struct Watches {
    objects: Vec<Arc<WatchStatus>>,
    workloads: Arc<Workloads>,
}

impl Watches {
    /// Watches that do not run yet.
    pub fn new(workloads: Arc<Workloads>) -> Self {
        let scopes = workloads.scopes.all().iter();
        let objects =
            scopes.map(|_| Arc::new(WatchStatus::new("watermarkpodautoscalers"))).collect();
        Self { objects, workloads }
    }

    /// Each namespace, or all as one.
    pub fn scopes(&self) -> &[Arc<WatchScope>] {
        self.workloads.scopes.all()
    }

    /// The watches of objects and pods; all of them are needed.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.objects.iter().zip(self.scopes()).flat_map(|(objects, scope)| [objects, &scope.pods])
    }

    /// Ready once all have told of everything.
    pub async fn wait_for_sync(&self) {
        for feed in self.all() {
            feed.wait_until_synced().await;
        }
    }
}

impl WatermarkController {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_watches(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        for (place, (objects, scope)) in
            self.watches.objects.iter().zip(self.watches.scopes()).enumerate()
        {
            self.start_watch(place, objects, stop, tasks, |role, place, change| {
                role.apply_object_change(place, change);
            });
            self.start_watch(place, &scope.pods, stop, tasks, |role, place, change| {
                if let Some(scope) = role.watches.scopes().get(place) {
                    scope.apply_pod_change(change);
                }
            });
        }
    }

    fn apply_object_change(&self, place: usize, change: ObjectChange<WatermarkPodAutoscaler>) {
        // Upstream watches no scales.
        if self.config.compat == Compat::Plimsoll
            && let (ObjectChange::Applied(object), Some(scope)) =
                (&change, self.watches.scopes().get(place))
        {
            let namespace = object.namespace().unwrap_or_default();
            scope
                .scales
                .ensure_watched(&self.workloads.target(&namespace, &object.spec.scale_target_ref));
        }
        self.queue.apply(place, change, self.clock.now());
    }

    fn start_watch<K>(
        self: &Arc<Self>,
        place: usize,
        feed: &Arc<WatchStatus>,
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
        let (role, feed, ended) = (Arc::clone(self), Arc::clone(feed), stop.cancelled());
        let only = self.watches.scopes().get(place).and_then(|scope| scope.namespace.as_deref());
        let objects = self.watch_factory.objects::<K>(only);
        tasks.spawn(async move {
            let apply = |change| apply(&role, place, change);
            watch(objects, WatchOptions::default(), &feed, apply, ended).await;
        });
    }
}
