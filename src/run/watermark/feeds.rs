//! What the watermark controller watches: its objects, and pods.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{Role, Stop, Tasks};
use crate::{
    api::wpa::WatermarkPodAutoscaler,
    compat::Compat,
    observe::{
        feed::Feed,
        labelled::{Arrived, LabelledObjects},
        scale::{ObjectKey, ToldScale, WatchedScales},
        scaled_pod::{KeptPod, ScaledPod},
        selector::Selector,
        watch::{Change, Options, watch},
    },
};

/// The watches of one namespace, or of all.
#[derive(Debug)]
pub(super) struct Scope {
    pub only: Option<String>,
    pub objects: Arc<Feed>,
    pub pods: Arc<Feed>,
    /// Watched from when they are wanted; whoever is not in here is asked for.
    pub scales: WatchedScales,
    seen: Mutex<LabelledObjects<KeptPod>>,
}

/// The watches of all namespaces that are looked after.
#[derive(Debug)]
pub(super) struct Feeds(Vec<Arc<Scope>>);

impl Feeds {
    /// Watches that do not run yet.
    pub fn new(namespaces: &[String]) -> Self {
        let scope = |only| {
            Arc::new(Scope {
                only,
                objects: Arc::new(Feed::new("watermarkpodautoscalers")),
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
    pub fn scopes(&self) -> &[Arc<Scope>] {
        &self.0
    }

    /// The watches of objects and pods; all of them are needed.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Feed>> {
        self.0.iter().flat_map(|scope| [&scope.objects, &scope.pods])
    }

    /// Ready once all have told of everything.
    pub async fn synced(&self) {
        for feed in self.all() {
            feed.synced().await;
        }
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
    fn change_pod(&self, change: Change<ScaledPod>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.apply(change, |pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let object = pod.keep();
            Arrived { namespace, name: Arc::clone(&object.pod.name), object }
        });
    }
}

impl Role {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_feeds(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        for (place, scope) in self.feeds.0.iter().enumerate() {
            self.start_feed(place, &scope.objects, stop, tasks, |role, place, change| {
                role.change_object(place, change);
            });
            self.start_feed(place, &scope.pods, stop, tasks, |role, place, change| {
                if let Some(scope) = role.feeds.0.get(place) {
                    scope.change_pod(change);
                }
            });
        }
    }

    fn change_object(&self, place: usize, change: Change<WatermarkPodAutoscaler>) {
        // Upstream watches no scales.
        if self.config.compat == Compat::Plimsoll
            && let (Change::Put(object), Some(scope)) = (&change, self.feeds.0.get(place))
        {
            let namespace = object.namespace().unwrap_or_default();
            scope.scales.want(&self.target(&namespace, &object.spec.scale_target_ref));
        }
        self.book.apply(place, change, self.clock.now());
    }

    fn start_feed<K>(
        self: &Arc<Self>,
        place: usize,
        feed: &Arc<Feed>,
        stop: &Stop,
        tasks: &mut Tasks,
        apply: fn(&Self, usize, Change<K>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (role, feed, ended) = (Arc::clone(self), Arc::clone(feed), stop.stopped());
        let only = self.feeds.0.get(place).and_then(|scope| scope.only.as_deref());
        let objects = self.reader.objects::<K>(only);
        tasks.spawn(async move {
            let apply = |change| apply(&role, place, change);
            watch(objects, Options::default(), &feed, apply, ended).await;
        });
    }
}
