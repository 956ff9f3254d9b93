//! What the updater watches: VPAs, pods, LimitRanges, and the controllers that own pods.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    cluster::{
        cache::{
            controllers::ControllerCache, limit_range::PartialLimitRange,
            object_store::ObjectStore, updater_pod::UpdaterPod,
        },
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus},
    },
    controllers::runtime::{
        controller_watches::{self, WatchStarter},
        quotas::Quotas,
        request_followers::RequestFollowers,
        shutdown::{ShutdownToken, Tasks},
        traffic_metrics::export_watch_metrics,
    },
    telemetry::ApiTrafficMetrics,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler, recommender::NamespaceScope, sizing::LimitRangeItem,
    types::ObjectKey, types::compat::Compat,
};

/// Selects scheduled pods that have not terminated. The server filters out the others.
const RUNNING_PODS_FIELD_SELECTOR: &str =
    "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// The watches, and the stores that they fill.
pub(super) struct Watches {
    pub stores: Arc<WatchStores>,
    compat: Compat,
    factory: WatchFactory,
    vpas: Arc<WatchStatus>,
    pods: Arc<WatchStatus>,
    limit_ranges: Arc<WatchStatus>,
    controller_statuses: Vec<Arc<WatchStatus>>,
}

impl Watches {
    /// Creates watch states; no watch is started yet.
    pub fn new(scope: NamespaceScope, compat: Compat, factory: WatchFactory) -> Self {
        Self {
            stores: Arc::new(WatchStores { scope, ..WatchStores::default() }),
            compat,
            factory,
            vpas: Arc::new(WatchStatus::new("verticalpodautoscalers")),
            pods: Arc::new(WatchStatus::new("pods")),
            limit_ranges: Arc::new(WatchStatus::new("limitranges")),
            controller_statuses: controller_watches::watch_statuses(),
        }
    }

    /// All watches; the updater is ready only when all are synced.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        let required = [&self.vpas, &self.pods, &self.limit_ranges];
        let followers = self.stores.followers.watch.watch_status();
        required.into_iter().chain(&self.controller_statuses).chain(followers)
    }

    /// Waits until every watch has completed its first list. Returns `false` if `stop` is cancelled first.
    pub async fn wait_for_sync(&self, stop: &ShutdownToken) -> bool {
        let synced = async {
            for status in self.all() {
                status.wait_until_synced().await;
            }
            if self.compat == Compat::Plimsoll {
                self.stores.followers.watch.wait_until_known().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => false,
            () = synced => true,
        }
    }

    /// Starts all watches. They run until `stop` is cancelled.
    pub fn start(&self, stop: &ShutdownToken, tasks: &mut Tasks) {
        let (target, watch_factory) = (&self.stores, &self.factory);
        let namespace = target.scope.only.as_deref();
        let mut watches = WatchStarter { target, watch_factory, namespace, stop, tasks };
        watches.start(&self.vpas, WatchOptions::default(), WatchStores::apply_vpa_change);
        let pod_options = WatchOptions {
            field_selector: Some(RUNNING_PODS_FIELD_SELECTOR.to_owned()),
            ..WatchOptions::default()
        };
        watches.start(&self.pods, pod_options, WatchStores::apply_pod_change);
        let apply_limit_range_change = WatchStores::apply_limit_range_change;
        watches.start(&self.limit_ranges, WatchOptions::default(), apply_limit_range_change);
        if self.compat == Compat::Plimsoll {
            let (quotas, followers) = (&target.quotas.watch, &target.followers.watch);
            let consequence = "pods may be evicted although the quota of their namespace does not allow the new size";
            quotas.start(watch_factory, namespace, consequence, stop, tasks);
            let consequence = "requests are changed even if a HorizontalPodAutoscaler scales by their utilization";
            followers.start(watch_factory, namespace, consequence, stop, tasks);
        }
        let (controllers, statuses) = (&self.stores.controllers, &self.controller_statuses);
        controller_watches::start(watch_factory, namespace, controllers, statuses, stop, tasks);
    }

    pub fn export_metrics(&self, traffic: &ApiTrafficMetrics) {
        export_watch_metrics(traffic, self.all().chain(self.stores.quotas.watch.watch_status()));
        let (vpas, pods) = self.stores.counts();
        traffic.set_watch_objects(self.vpas.name, vpas);
        traffic.set_watch_objects(self.pods.name, pods);
    }
}

#[derive(Debug, Default)]
pub(super) struct WatchStores {
    scope: NamespaceScope,
    vpas: Mutex<ObjectStore<ObjectKey, Arc<VerticalPodAutoscaler>>>,
    pods: Mutex<ObjectStore<ObjectKey, Arc<UpdaterPod>>>,
    limit_ranges: Mutex<ObjectStore<ObjectKey, Vec<LimitRangeItem>>>,
    pub quotas: Quotas,
    pub followers: RequestFollowers,
    pub controllers: Arc<ControllerCache>,
    pub boosted_pod_changed: Notify,
}

impl WatchStores {
    /// The namespaces in scope that have VPAs, sorted.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let mut namespaces = self.vpas.lock().namespaces();
        namespaces.retain(|namespace| self.scope.includes(namespace));
        namespaces
    }

    /// The VPAs of all namespaces in scope, sorted by namespace and name.
    pub fn all_vpas(&self) -> impl Iterator<Item = Arc<VerticalPodAutoscaler>> {
        self.namespaces().into_iter().flat_map(|namespace| self.vpas(&namespace))
    }

    /// The VPAs of a namespace, sorted by name.
    pub fn vpas(&self, namespace: &str) -> Vec<Arc<VerticalPodAutoscaler>> {
        self.vpas.lock().in_namespace(namespace).cloned().collect()
    }

    /// The pods of a namespace, sorted by name.
    pub fn pods(&self, namespace: &str) -> Vec<Arc<UpdaterPod>> {
        self.pods.lock().in_namespace(namespace).cloned().collect()
    }

    /// The items of all LimitRanges of a namespace, sorted by LimitRange name.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = self.limit_ranges.lock();
        ranges.in_namespace(namespace).flatten().cloned().collect()
    }

    pub fn keys(&self) -> HashSet<ObjectKey> {
        self.vpas.lock().iter().map(|(key, _)| key.clone()).collect()
    }

    /// The number of VPAs and of pods.
    pub fn counts(&self) -> (usize, usize) {
        (self.vpas.lock().len(), self.pods.lock().len())
    }

    /// Applies a change of a VPA, from the watch or from a direct read.
    pub fn apply_vpa_change(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        self.vpas.lock().apply_object(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            Arc::new(vpa)
        });
    }

    fn apply_pod_change(&self, change: ObjectChange<UpdaterPod>) {
        let is_boosted = matches!(&change, ObjectChange::Applied(pod) if pod.is_boosted());
        self.pods.lock().apply_object(change, Arc::new);
        if is_boosted {
            self.boosted_pod_changed.notify_one();
        }
    }

    fn apply_limit_range_change(&self, change: ObjectChange<PartialLimitRange>) {
        self.limit_ranges.lock().apply_object(change, |range| range.spec.limits);
    }
}
