//! Watches of pods and scales, per namespace.

use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::Mutex;
use plimsoll_core::coordination::Template;

use crate::cluster::{
    cache::{label_store::LabelStore, replica_pod::CachedPod, selector::Selector},
    target::scale::{ObjectReference, ScaleCache, ScaleState},
    watch::{ObjectChange, status::WatchStatus},
};

#[derive(Debug)]
pub(in crate::controllers) struct WatchScope<P: CachedPod> {
    pub namespace: Option<String>,
    /// Watched on demand; scales that are not in the cache are fetched.
    pub scales: ScaleCache,
    pod_store: Mutex<PodStore<P>>,
}

#[derive(Debug)]
struct PodStore<P: CachedPod> {
    pods: LabelStore<P>,
    shared: P::Shared,
}

impl<P: CachedPod> Default for PodStore<P> {
    fn default() -> Self {
        Self { pods: LabelStore::default(), shared: P::Shared::default() }
    }
}

#[derive(Debug)]
pub(in crate::controllers) struct WatchScopes<P: CachedPod>(Vec<Arc<WatchScope<P>>>);

impl<P: CachedPod> WatchScopes<P> {
    /// Watches that are not started yet.
    pub fn new(namespaces: &[String]) -> Self {
        let scope = |namespace| {
            Arc::new(WatchScope {
                namespace,
                scales: ScaleCache::default(),
                pod_store: Mutex::default(),
            })
        };
        if namespaces.is_empty() {
            return Self(vec![scope(None)]);
        }
        Self(namespaces.iter().map(|namespace| scope(Some(namespace.clone()))).collect())
    }

    /// One scope per namespace, or one for all namespaces.
    pub fn all(&self) -> &[Arc<WatchScope<P>>] {
        &self.0
    }

    /// Maps the pods that a selector matches, in order of their names.
    pub fn pods<R>(
        &self,
        namespace: &str,
        selector: &Selector,
        map: impl FnMut(&P) -> R,
    ) -> Vec<R> {
        let Some(scope) = self.scope_of(namespace) else { return Vec::new() };
        let store = scope.pod_store.lock();
        store.pods.find(namespace, selector, map)
    }

    /// The watches of scales that have been started. None of them is required.
    pub fn scale_watches(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.0.iter().flat_map(|scope| scope.scales.watches())
    }

    pub fn scale(&self, target: &ObjectReference) -> Option<ScaleState> {
        self.scope_of(&target.namespace)?.scales.find(target)
    }

    pub fn template(&self, target: &ObjectReference) -> Template {
        let scope = self.scope_of(&target.namespace);
        scope.map_or(Template::Unsupported, |scope| scope.scales.template(target))
    }

    /// Number of cached objects per watch of scales.
    pub fn scale_counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().flat_map(|scope| scope.scales.counts())
    }

    fn scope_of(&self, namespace: &str) -> Option<&Arc<WatchScope<P>>> {
        let covers = |scope: &&Arc<WatchScope<P>>| {
            scope.namespace.as_deref().is_none_or(|watched| watched == namespace)
        };
        self.0.iter().find(covers)
    }

    pub fn pod_count(&self) -> usize {
        let count = |scope: &Arc<WatchScope<P>>| scope.pod_store.lock().pods.len();
        self.0.iter().map(count).sum()
    }
}

impl<P: CachedPod> WatchScope<P> {
    pub fn apply_pod_change(&self, change: ObjectChange<P::Object>) {
        let mut store = self.pod_store.lock();
        let PodStore { pods, shared } = &mut *store;
        pods.apply(change.map(|pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let pod = P::from_object(pod, shared);
            (namespace, pod.name(), pod)
        }));
    }
}
