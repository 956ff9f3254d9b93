//! What is watched of workloads in each namespace that is looked after: pods, and scales.

use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt as _;

use crate::cluster::{
    cache::{
        label_store::{LabelStore, LabelledObject},
        replica_pod::{PartialReplicaPod, ReplicaPod},
        selector::Selector,
    },
    target::scale::{ObjectReference, ScaleCache, ScaleState},
    watch::{ObjectChange, status::WatchStatus},
};

/// The watches of one namespace, or of all.
#[derive(Debug)]
pub(in crate::controllers) struct WatchScope {
    pub namespace: Option<String>,
    pub pods: Arc<WatchStatus>,
    /// Watched from when they are wanted; whoever is not in here is asked for.
    pub scales: ScaleCache,
    pod_store: Mutex<LabelStore<ReplicaPod>>,
}

/// The watches of all namespaces that are looked after.
#[derive(Debug)]
pub(in crate::controllers) struct WatchScopes(Vec<Arc<WatchScope>>);

impl WatchScopes {
    /// Watches that do not run yet.
    pub fn new(namespaces: &[String]) -> Self {
        let scope = |only| {
            Arc::new(WatchScope {
                namespace: only,
                pods: Arc::new(WatchStatus::new("pods")),
                scales: ScaleCache::default(),
                pod_store: Mutex::default(),
            })
        };
        if namespaces.is_empty() {
            return Self(vec![scope(None)]);
        }
        Self(namespaces.iter().map(|namespace| scope(Some(namespace.clone()))).collect())
    }

    /// Each namespace, or all as one.
    pub fn all(&self) -> &[Arc<WatchScope>] {
        &self.0
    }

    /// What `take` makes of the pods of a namespace that a selector finds, in order of their names.
    pub fn pods<R>(
        &self,
        namespace: &str,
        selector: &Selector,
        take: impl FnMut(&ReplicaPod) -> R,
    ) -> Vec<R> {
        let Some(scope) = self.scope_of(namespace) else { return Vec::new() };
        let seen = scope.pod_store.lock().unwrap_or_else(PoisonError::into_inner);
        seen.find(namespace, selector, take)
    }

    /// The watches of scales, as far as anybody wants them. Nobody has to wait for one.
    pub fn scale_watches(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.0.iter().flat_map(|scope| scope.scales.watches())
    }

    /// The scale of an object, where a watch tells it.
    pub fn scale(&self, of: &ObjectReference) -> Option<ScaleState> {
        self.scope_of(&of.namespace)?.scales.find(of)
    }

    /// How many objects are known whose scales are watched, by the names of the watches.
    pub fn scale_counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().flat_map(|scope| scope.scales.counts())
    }

    fn scope_of(&self, namespace: &str) -> Option<&Arc<WatchScope>> {
        let covers = |scope: &&Arc<WatchScope>| {
            scope.namespace.as_deref().is_none_or(|only| only == namespace)
        };
        self.0.iter().find(covers)
    }

    /// How many pods are known.
    pub fn pod_count(&self) -> usize {
        let count = |scope: &Arc<WatchScope>| {
            scope.pod_store.lock().unwrap_or_else(PoisonError::into_inner).len()
        };
        self.0.iter().map(count).sum()
    }
}

impl WatchScope {
    /// A pod came, changed or went.
    pub fn apply_pod_change(&self, change: ObjectChange<PartialReplicaPod>) {
        let mut seen = self.pod_store.lock().unwrap_or_else(PoisonError::into_inner);
        seen.apply(change, |pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let object = pod.into_replica_pod();
            LabelledObject { namespace, name: Arc::clone(&object.pod.name), object }
        });
    }
}
