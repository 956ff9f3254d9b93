//! What the updater watches: VPAs, pods, LimitRanges, and the controllers that own pods.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::config::UpdaterConfig;
use crate::{
    cluster::{
        cache::{object_store::ObjectStore, updater_pod::UpdaterPod},
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus},
    },
    controllers::runtime::{
        sizing_stores::{SizingStores, SizingWatches},
        traffic_metrics::export_watch_metrics,
        watch_set::WatchSet,
    },
    telemetry::ApiTrafficMetrics,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler, recommender::NamespaceScope, types::ObjectKey,
    types::compat::Compat,
};

const VPAS: &str = "verticalpodautoscalers";
const PODS: &str = "pods";
/// Selects scheduled pods that have not terminated. The server filters out the others.
const RUNNING_PODS_FIELD_SELECTOR: &str =
    "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// The watches, and the stores that they fill.
pub(super) struct Watches {
    pub stores: Arc<WatchStores>,
    compat: Compat,
    pub set: WatchSet,
}

impl Watches {
    /// Watches that are not started yet.
    pub fn new(config: &UpdaterConfig, factory: WatchFactory) -> Self {
        let stores =
            Arc::new(WatchStores { scope: config.scope.clone(), ..WatchStores::default() });
        let (mut set, compat) = (WatchSet::new(factory), config.settings.compat);
        let namespace = stores.scope.only.as_deref();
        let filled = Arc::clone(&stores);
        set.add(VPAS, namespace, WatchOptions::default(), move |change| {
            filled.apply_vpa_change(change);
        });
        let filled = Arc::clone(&stores);
        let field_selector = Some(RUNNING_PODS_FIELD_SELECTOR.to_owned());
        let options = WatchOptions { field_selector, ..WatchOptions::default() };
        set.add(PODS, namespace, options, move |change| filled.apply_pod_change(change));
        let settings = SizingWatches {
            namespace,
            compat,
            horizontal_lease_namespace: &config.horizontal_lease_namespace,
            without_quotas: "pods may be evicted although the quota of their namespace does not allow the new size",
            without_followers: "requests are changed even if a HorizontalPodAutoscaler scales by their utilization",
        };
        stores.sizing.add_watches(&mut set, &settings);
        Self { stores, compat, set }
    }

    /// All watches; the updater is ready only when all are synced.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.set.required.iter().chain(self.stores.sizing.followers.watch.watch_status())
    }

    /// Waits until every watch has completed its first list. Returns `false` if `stop` is cancelled first.
    pub async fn wait_for_sync(&self, stop: &CancellationToken) -> bool {
        let synced = async {
            self.set.wait_until_synced().await;
            if self.compat == Compat::Plimsoll {
                self.stores.sizing.followers.watch.wait_until_known().await;
            }
        };
        stop.run_until_cancelled(synced).await.is_some()
    }

    pub fn export_metrics(&self, traffic: &ApiTrafficMetrics) {
        export_watch_metrics(traffic, self.all().chain(self.stores.sizing.quota_watch()));
        let (vpas, pods) = self.stores.counts();
        traffic.set_watch_objects(VPAS, vpas);
        traffic.set_watch_objects(PODS, pods);
    }
}

#[derive(Default)]
pub(super) struct WatchStores {
    scope: NamespaceScope,
    vpas: Mutex<ObjectStore<ObjectKey, Arc<VerticalPodAutoscaler>>>,
    pods: Mutex<ObjectStore<ObjectKey, Arc<UpdaterPod>>>,
    pub sizing: SizingStores,
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
}
