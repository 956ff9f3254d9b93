//! What is watched of workloads in each namespace that is looked after: pods, and scales.

use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt as _;

use crate::observe::{
    feed::Feed,
    labelled::{Arrived, LabelledObjects},
    scale::{ObjectKey, ToldScale, WatchedScales},
    scaled_pod::{KeptPod, ScaledPod},
    selector::Selector,
    watch::Change,
};

/// The watches of one namespace, or of all.
#[derive(Debug)]
pub(in crate::run) struct Scope {
    pub only: Option<String>,
    pub pods: Arc<Feed>,
    /// Watched from when they are wanted; whoever is not in here is asked for.
    pub scales: WatchedScales,
    seen: Mutex<LabelledObjects<KeptPod>>,
}

/// The watches of all namespaces that are looked after.
#[derive(Debug)]
pub(in crate::run) struct Scopes(Vec<Arc<Scope>>);

impl Scopes {
    /// Watches that do not run yet.
    pub fn new(namespaces: &[String]) -> Self {
        let scope = |only| {
            Arc::new(Scope {
                only,
                pods: Arc::new(Feed::new("pods")),
                scales: WatchedScales::default(),
                seen: Mutex::default(),
            })
        };
        if namespaces.is_empty() {
            return Self(vec![scope(None)]);
        }
        Self(namespaces.iter().map(|namespace| scope(Some(namespace.clone()))).collect())
    }

    /// Each namespace, or all as one.
    pub fn all(&self) -> &[Arc<Scope>] {
        &self.0
    }

    /// What `take` makes of the pods of a namespace that a selector finds, in order of their names.
    pub fn pods<R>(
        &self,
        namespace: &str,
        selector: &Selector,
        take: impl FnMut(&KeptPod) -> R,
    ) -> Vec<R> {
        let Some(scope) = self.scope_of(namespace) else { return Vec::new() };
        let seen = scope.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.find(namespace, selector, take)
    }

    /// The watches of scales, as far as anybody wants them. Nobody has to wait for one.
    pub fn scale_feeds(&self) -> impl Iterator<Item = &Arc<Feed>> {
        self.0.iter().flat_map(|scope| scope.scales.feeds())
    }

    /// The scale of an object, where a watch tells it.
    pub fn scale(&self, of: &ObjectKey) -> Option<ToldScale> {
        self.scope_of(&of.namespace)?.scales.find(of)
    }

    /// How many objects are known whose scales are watched, by the names of the watches.
    pub fn scale_counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().flat_map(|scope| scope.scales.counts())
    }

    fn scope_of(&self, namespace: &str) -> Option<&Arc<Scope>> {
        let covers =
            |scope: &&Arc<Scope>| scope.only.as_deref().is_none_or(|only| only == namespace);
        self.0.iter().find(covers)
    }

    /// How many pods are known.
    pub fn pod_count(&self) -> usize {
        let count =
            |scope: &Arc<Scope>| scope.seen.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.0.iter().map(count).sum()
    }
}

impl Scope {
    /// A pod came, changed or went.
    pub fn change_pod(&self, change: Change<ScaledPod>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.apply(change, |pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let object = pod.keep();
            Arrived { namespace, name: Arc::clone(&object.pod.name), object }
        });
    }
}
