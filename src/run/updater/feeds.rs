//! What the updater watches: VPAs, pods, LimitRanges, and the controllers that own pods.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use plimsoll_core::types::VpaKey;
use serde::de::DeserializeOwned;

use super::{Role, Stop, Tasks, matching::vpa_key};
use crate::{
    observe::{
        feed::Feed,
        limit_range::SlimLimitRange,
        mirror::{Filed, Mirror},
        running::RunningPod,
        watch::{Change, Options, watch},
    },
    run::controllers,
};
use plimsoll_core::{api::VerticalPodAutoscaler, sizing::LimitRangeItem, types::compat::Compat};

/// Pods that run somewhere and have not ended: the server leaves out the others.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// The watches by name.
#[derive(Debug)]
pub(super) struct Feeds {
    pub vpas: Arc<Feed>,
    pub pods: Arc<Feed>,
    pub limit_ranges: Arc<Feed>,
    pub controllers: Vec<Arc<Feed>>,
}

impl Feeds {
    /// Watches that do not run yet.
    pub fn new() -> Self {
        Self {
            vpas: Arc::new(Feed::new("verticalpodautoscalers")),
            pods: Arc::new(Feed::new("pods")),
            limit_ranges: Arc::new(Feed::new("limitranges")),
            controllers: controllers::feeds(),
        }
    }

    /// All of them; all are needed.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Feed>> {
        [&self.vpas, &self.pods, &self.limit_ranges].into_iter().chain(&self.controllers)
    }

    /// Ready once all have told of everything.
    pub async fn synced(&self) {
        for feed in self.all() {
            feed.synced().await;
        }
    }
}

/// By namespace.
type ByNamespace<T> = Mutex<Mirror<Box<str>, T>>;

/// What the watches have told.
#[derive(Debug, Default)]
pub(super) struct Seen {
    vpas: ByNamespace<VerticalPodAutoscaler>,
    pods: ByNamespace<RunningPod>,
    limit_ranges: ByNamespace<Vec<LimitRangeItem>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    /// The namespaces that have VPAs, in order.
    pub fn namespaces(&self) -> Vec<Box<str>> {
        let mut namespaces: Vec<Box<str>> = lock(&self.vpas).keys().cloned().collect();
        namespaces.sort_unstable();
        namespaces
    }

    /// The VPAs of a namespace, in order of their names.
    pub fn vpas(&self, namespace: &str) -> Vec<Arc<VerticalPodAutoscaler>> {
        lock(&self.vpas).get(&namespace.into()).cloned().collect()
    }

    /// The pods of a namespace, in order of their names.
    pub fn pods(&self, namespace: &str) -> Vec<Arc<RunningPod>> {
        lock(&self.pods).get(&namespace.into()).cloned().collect()
    }

    /// What the LimitRanges of a namespace say, in order of their names.
    pub fn limits(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = lock(&self.limit_ranges);
        ranges.get(&namespace.into()).flat_map(|items| items.iter().cloned()).collect()
    }

    /// What all VPAs are called.
    pub fn keys(&self) -> HashSet<VpaKey> {
        let named = |namespace: Box<str>| {
            self.vpas(&namespace).into_iter().map(|vpa| vpa_key(&vpa)).collect::<Vec<_>>()
        };
        self.namespaces().into_iter().flat_map(named).collect()
    }

    /// How many VPAs and pods there are.
    pub fn counts(&self) -> (usize, usize) {
        (lock(&self.vpas).len(), lock(&self.pods).len())
    }

    /// Takes in a VPA, from the watch or as it was read.
    pub fn change_vpa(&self, change: Change<VerticalPodAutoscaler>) {
        lock(&self.vpas).apply(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            filed(vpa, |vpa| vpa)
        });
    }

    fn change_pod(&self, change: Change<RunningPod>) {
        lock(&self.pods).apply(change, |pod| filed(pod, |pod| pod));
    }

    fn change_limit_range(&self, change: Change<SlimLimitRange>) {
        lock(&self.limit_ranges).apply(change, |range| filed(range, |range| range.spec.limits));
    }
}

fn filed<K: Resource, T>(object: K, keep: impl FnOnce(K) -> T) -> Filed<Box<str>, T> {
    let namespace = object.namespace().unwrap_or_default();
    let key = Some(namespace.as_str().into());
    Filed { name: object.name_any(), namespace, key, object: keep(object) }
}

impl Role {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_feeds(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        let feeds = &self.feeds;
        self.start_feed(&feeds.vpas, Options::default(), stop, tasks, |role, change| {
            role.seen.change_vpa(change);
        });
        let running = Options { fields: Some(RUNNING.to_owned()), ..Options::default() };
        self.start_feed(&feeds.pods, running, stop, tasks, |role, change: Change<RunningPod>| {
            let boosted = match &change {
                Change::Put(pod) => pod.is_boosted(),
                _ => false,
            };
            role.seen.change_pod(change);
            if boosted {
                role.boosts.wake();
            }
        });
        self.start_feed(&feeds.limit_ranges, Options::default(), stop, tasks, |role, change| {
            role.seen.change_limit_range(change);
        });
        if self.config.settings.compat == Compat::Plimsoll {
            let (role, stop) = (Arc::clone(self), stop.clone());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let lost = "pods may be evicted for what their namespace has no room for";
                role.quotas.keep_watching(&role.client, &role.reader, only, lost, stop).await;
            });
        }
        let only = self.config.scope.only.as_deref();
        let (controllers, of) = (&self.controllers, &feeds.controllers);
        controllers::start(&self.reader, only, controllers, of, stop, tasks);
    }

    fn start_feed<K>(
        self: &Arc<Self>,
        feed: &Arc<Feed>,
        options: Options,
        stop: &Stop,
        tasks: &mut Tasks,
        apply: fn(&Self, Change<K>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (role, feed, ended) = (Arc::clone(self), Arc::clone(feed), stop.stopped());
        let objects = self.reader.objects::<K>(self.config.scope.only.as_deref());
        tasks.spawn(async move {
            watch(objects, options, &feed, |change| apply(&role, change), ended).await;
        });
    }
}
