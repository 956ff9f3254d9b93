//! What the updater watches: VPAs, pods, LimitRanges, and the controllers that own pods.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::types::ObjectKey;

use super::{ShutdownToken, Tasks, Updater};
use crate::{
    cluster::{
        cache::{
            limit_range::PartialLimitRange, object_store::ObjectStore, updater_pod::UpdaterPod,
        },
        watch::{ObjectChange, WatchOptions, status::WatchStatus},
    },
    controllers::runtime::controller_watches::{self, WatchStarter},
};
use plimsoll_core::{api::VerticalPodAutoscaler, sizing::LimitRangeItem, types::compat::Compat};

/// Selects scheduled pods that have not terminated. The server filters out the others.
const RUNNING_PODS_FIELD_SELECTOR: &str =
    "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

#[derive(Debug)]
pub(super) struct Watches {
    pub vpas: Arc<WatchStatus>,
    pub pods: Arc<WatchStatus>,
    pub limit_ranges: Arc<WatchStatus>,
    pub controllers: Vec<Arc<WatchStatus>>,
}

impl Watches {
    /// Creates watch states; no watch is started yet.
    pub fn new() -> Self {
        Self {
            vpas: Arc::new(WatchStatus::new("verticalpodautoscalers")),
            pods: Arc::new(WatchStatus::new("pods")),
            limit_ranges: Arc::new(WatchStatus::new("limitranges")),
            controllers: controller_watches::watch_statuses(),
        }
    }

    /// All watches; the updater is ready only when all are synced.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        [&self.vpas, &self.pods, &self.limit_ranges].into_iter().chain(&self.controllers)
    }

    /// Waits until every watch has completed its first list.
    pub async fn wait_for_sync(&self) {
        for status in self.all() {
            status.wait_until_synced().await;
        }
    }

    /// Starts all watches. They run until `stop` is cancelled.
    pub fn start(&self, updater: &Arc<Updater>, stop: &ShutdownToken, tasks: &mut Tasks) {
        let namespace = updater.config.scope.only.as_deref();
        let watch_factory = &updater.watch_factory;
        let mut watches = WatchStarter { target: updater, watch_factory, namespace, stop, tasks };
        watches.start(&self.vpas, WatchOptions::default(), |role, change| {
            role.stores.apply_vpa_change(change);
        });
        let pod_options = WatchOptions {
            field_selector: Some(RUNNING_PODS_FIELD_SELECTOR.to_owned()),
            ..WatchOptions::default()
        };
        watches.start(&self.pods, pod_options, |role, change: ObjectChange<UpdaterPod>| {
            let boosted = matches!(&change, ObjectChange::Applied(pod) if pod.is_boosted());
            role.stores.apply_pod_change(change);
            if boosted {
                role.unboost_trigger.wake();
            }
        });
        watches.start(&self.limit_ranges, WatchOptions::default(), |role, change| {
            role.stores.apply_limit_range_change(change);
        });
        if updater.config.settings.compat == Compat::Plimsoll {
            let (role, stop) = (Arc::clone(updater), stop.clone());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let consequence = "pods may be evicted although the quota of their namespace does not allow the new size";
                role.quotas.run_watch(&role.client, &role.watch_factory, only, consequence, stop).await;
            });
        }
        let (controllers, statuses) = (&updater.controllers, &self.controllers);
        controller_watches::start(watch_factory, namespace, controllers, statuses, stop, tasks);
    }
}

#[derive(Debug, Default)]
pub(super) struct WatchStores {
    vpas: Mutex<ObjectStore<ObjectKey, Arc<VerticalPodAutoscaler>>>,
    pods: Mutex<ObjectStore<ObjectKey, Arc<UpdaterPod>>>,
    limit_ranges: Mutex<ObjectStore<ObjectKey, Vec<LimitRangeItem>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchStores {
    /// The namespaces that have VPAs, sorted.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        lock(&self.vpas).namespaces()
    }

    /// The VPAs of a namespace, sorted by name.
    pub fn vpas(&self, namespace: &str) -> Vec<Arc<VerticalPodAutoscaler>> {
        lock(&self.vpas).in_namespace(namespace).cloned().collect()
    }

    /// The pods of a namespace, sorted by name.
    pub fn pods(&self, namespace: &str) -> Vec<Arc<UpdaterPod>> {
        lock(&self.pods).in_namespace(namespace).cloned().collect()
    }

    /// The items of all LimitRanges of a namespace, sorted by LimitRange name.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = lock(&self.limit_ranges);
        ranges.in_namespace(namespace).flatten().cloned().collect()
    }

    pub fn keys(&self) -> HashSet<ObjectKey> {
        lock(&self.vpas).iter().map(|(key, _)| key.clone()).collect()
    }

    /// The number of VPAs and of pods.
    pub fn counts(&self) -> (usize, usize) {
        (lock(&self.vpas).len(), lock(&self.pods).len())
    }

    /// Applies a change of a VPA, from the watch or from a direct read.
    pub fn apply_vpa_change(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        lock(&self.vpas).apply_object(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            Arc::new(vpa)
        });
    }

    fn apply_pod_change(&self, change: ObjectChange<UpdaterPod>) {
        lock(&self.pods).apply_object(change, Arc::new);
    }

    fn apply_limit_range_change(&self, change: ObjectChange<PartialLimitRange>) {
        lock(&self.limit_ranges).apply_object(change, |range| range.spec.limits);
    }
}
