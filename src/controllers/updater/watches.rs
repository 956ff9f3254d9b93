//! What the updater watches: VPAs, pods, LimitRanges, and the controllers that own pods.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use plimsoll_core::types::ObjectKey;
use serde::de::DeserializeOwned;

use super::{ShutdownToken, Tasks, Updater, matching::vpa_key};
use crate::{
    cluster::{
        cache::{
            limit_range::PartialLimitRange,
            object_store::{ObjectStore, StoredObject},
            updater_pod::UpdaterPod,
        },
        watch::{ObjectChange, WatchOptions, status::WatchStatus, watch},
    },
    controllers::runtime::controller_watches,
};
use plimsoll_core::{api::VerticalPodAutoscaler, sizing::LimitRangeItem, types::compat::Compat};

/// Pods that run somewhere and have not ended: the server leaves out the others.
const RUNNING_PODS_FIELD_SELECTOR: &str =
    "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// The watches by name.
#[derive(Debug)]
pub(super) struct Watches {
    pub vpas: Arc<WatchStatus>,
    pub pods: Arc<WatchStatus>,
    pub limit_ranges: Arc<WatchStatus>,
    pub controllers: Vec<Arc<WatchStatus>>,
}

impl Watches {
    /// Watches that do not run yet.
    pub fn new() -> Self {
        Self {
            vpas: Arc::new(WatchStatus::new("verticalpodautoscalers")),
            pods: Arc::new(WatchStatus::new("pods")),
            limit_ranges: Arc::new(WatchStatus::new("limitranges")),
            controllers: controller_watches::watch_statuses(),
        }
    }

    /// All of them; all are needed.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        [&self.vpas, &self.pods, &self.limit_ranges].into_iter().chain(&self.controllers)
    }

    /// Ready once all have told of everything.
    pub async fn wait_for_sync(&self) {
        for feed in self.all() {
            feed.wait_until_synced().await;
        }
    }
}

/// By namespace.
type NamespacedStore<T> = Mutex<ObjectStore<Box<str>, T>>;

/// What the watches have told.
#[derive(Debug, Default)]
pub(super) struct WatchStores {
    vpas: NamespacedStore<VerticalPodAutoscaler>,
    pods: NamespacedStore<UpdaterPod>,
    limit_ranges: NamespacedStore<Vec<LimitRangeItem>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchStores {
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
    pub fn pods(&self, namespace: &str) -> Vec<Arc<UpdaterPod>> {
        lock(&self.pods).get(&namespace.into()).cloned().collect()
    }

    /// What the LimitRanges of a namespace say, in order of their names.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = lock(&self.limit_ranges);
        ranges.get(&namespace.into()).flat_map(|items| items.iter().cloned()).collect()
    }

    /// What all VPAs are called.
    pub fn keys(&self) -> HashSet<ObjectKey> {
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
    pub fn apply_vpa_change(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        lock(&self.vpas).apply(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            store_entry(vpa, |vpa| vpa)
        });
    }

    fn apply_pod_change(&self, change: ObjectChange<UpdaterPod>) {
        lock(&self.pods).apply(change, |pod| store_entry(pod, |pod| pod));
    }

    fn apply_limit_range_change(&self, change: ObjectChange<PartialLimitRange>) {
        lock(&self.limit_ranges)
            .apply(change, |range| store_entry(range, |range| range.spec.limits));
    }
}

fn store_entry<K: Resource, T>(object: K, keep: impl FnOnce(K) -> T) -> StoredObject<Box<str>, T> {
    let namespace = object.namespace().unwrap_or_default();
    let key = Some(namespace.as_str().into());
    StoredObject { name: object.name_any(), namespace, key, object: keep(object) }
}

impl Updater {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_watches(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        let feeds = &self.watches;
        self.start_watch(&feeds.vpas, WatchOptions::default(), stop, tasks, |role, change| {
            role.stores.apply_vpa_change(change);
        });
        let running = WatchOptions {
            field_selector: Some(RUNNING_PODS_FIELD_SELECTOR.to_owned()),
            ..WatchOptions::default()
        };
        self.start_watch(
            &feeds.pods,
            running,
            stop,
            tasks,
            |role, change: ObjectChange<UpdaterPod>| {
                let boosted = match &change {
                    ObjectChange::Applied(pod) => pod.is_boosted(),
                    _ => false,
                };
                role.stores.apply_pod_change(change);
                if boosted {
                    role.unboost_trigger.wake();
                }
            },
        );
        self.start_watch(
            &feeds.limit_ranges,
            WatchOptions::default(),
            stop,
            tasks,
            |role, change| {
                role.stores.apply_limit_range_change(change);
            },
        );
        if self.config.settings.compat == Compat::Plimsoll {
            let (role, stop) = (Arc::clone(self), stop.clone());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let lost = "pods may be evicted for what their namespace has no room for";
                role.quotas.run_watch(&role.client, &role.watch_factory, only, lost, stop).await;
            });
        }
        let only = self.config.scope.only.as_deref();
        let (controllers, of) = (&self.controllers, &feeds.controllers);
        controller_watches::start(&self.watch_factory, only, controllers, of, stop, tasks);
    }

    fn start_watch<K>(
        self: &Arc<Self>,
        feed: &Arc<WatchStatus>,
        options: WatchOptions,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
        apply: fn(&Self, ObjectChange<K>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (role, feed, ended) = (Arc::clone(self), Arc::clone(feed), stop.cancelled());
        let objects = self.watch_factory.objects::<K>(self.config.scope.only.as_deref());
        tasks.spawn(async move {
            watch(objects, options, &feed, |change| apply(&role, change), ended).await;
        });
    }
}
