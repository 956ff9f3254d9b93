//! Watches of the admission controller: VPAs, LimitRanges, and the controllers that own pods.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use kube::ResourceExt as _;

use super::config::AdmissionConfig;
use crate::{
    cluster::{
        cache::object_store::ObjectStore,
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus},
    },
    controllers::runtime::{
        sizing_stores::{SizingStores, SizingWatches},
        watch_set::WatchSet,
    },
};
use parking_lot::Mutex;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::TargetRef},
    coordination::{Retargeting, SharedRequest},
    types::{ObjectKey, Time, compat::Compat},
};

pub(super) const VPAS: &str = "verticalpodautoscalers";

pub(super) struct Watches {
    pub set: WatchSet,
    pub stores: Arc<WatchStores>,
    compat: Compat,
}

impl Watches {
    /// Watches that are not started yet.
    pub fn new(config: &AdmissionConfig, factory: WatchFactory, stores: Arc<WatchStores>) -> Self {
        let (mut set, compat) = (WatchSet::new(factory), config.compat);
        let namespace = config.scope.only.as_deref();
        let filled = Arc::clone(&stores);
        set.add(VPAS, namespace, WatchOptions::default(), move |change| {
            filled.vpas.lock().apply(change);
        });
        let settings = SizingWatches {
            namespace,
            compat,
            horizontal_lease_namespace: &config.horizontal_lease_namespace,
            without_quotas: "recommendations may exceed quotas, and pods may be rejected",
            without_followers: "new pods get recommended requests even if a HorizontalPodAutoscaler scales by their utilization",
        };
        stores.sizing.add_watches(&mut set, &settings);
        Self { set, stores, compat }
    }

    /// The watches that must be synced before pods are reviewed.
    pub fn required(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.set.required.iter().chain(self.stores.sizing.followers.watch.watch_status())
    }

    pub fn have_synced(&self) -> bool {
        let are_followers_known =
            self.compat == Compat::Upstream || self.stores.sizing.followers.watch.are_known();
        are_followers_known && self.required().all(|status| status.is_synced())
    }
}

/// Namespace, and kind and name of a target. As in upstream, the API group is ignored.
type TargetKey = (Box<str>, Box<str>, Box<str>);

fn target_key(namespace: &str, target: &TargetRef) -> TargetKey {
    (namespace.into(), target.kind.as_str().into(), target.name.as_str().into())
}

#[derive(Default)]
pub(super) struct WatchStores {
    pub sizing: SizingStores,
    vpas: Mutex<VpaStore>,
}

#[derive(Debug, Default)]
struct VpaStore {
    objects: ObjectStore<ObjectKey, Arc<VerticalPodAutoscaler>>,
    /// The VPAs of each target, ordered by name.
    by_target: HashMap<TargetKey, BTreeMap<Arc<str>, Arc<VerticalPodAutoscaler>>>,
}

impl VpaStore {
    fn apply(&mut self, change: ObjectChange<VerticalPodAutoscaler>) {
        let mut applied = None;
        let removed = self.objects.apply_object(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            Arc::clone(applied.insert(Arc::new(vpa)))
        });
        for (key, vpa) in removed {
            let target = target_key(&key.namespace, &vpa.spec.target_ref);
            if let Entry::Occupied(mut vpas) = self.by_target.entry(target) {
                vpas.get_mut().remove(&key.name);
                if vpas.get().is_empty() {
                    vpas.remove();
                }
            }
        }
        if let Some(vpa) = applied {
            let namespace = vpa.namespace().unwrap_or_default();
            let target = target_key(&namespace, &vpa.spec.target_ref);
            self.by_target.entry(target).or_default().insert(vpa.name_any().into(), vpa);
        }
    }
}

impl WatchStores {
    /// The VPAs of a target, ordered by name.
    pub fn vpas(&self, namespace: &str, kind: &str, name: &str) -> Vec<Arc<VerticalPodAutoscaler>> {
        let key: TargetKey = (namespace.into(), kind.into(), name.into());
        let vpas = self.vpas.lock();
        vpas.by_target.get(&key).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// The requests of the pods of a VPA that autoscalers of replicas use too. `retargets_at` is the current time if their
    /// targets change together with the requests: those that the updater has changed already. It does so only for VPAs whose
    /// running pods it changes.
    pub fn shared_requests(
        &self,
        namespace: &str,
        vpa: &VerticalPodAutoscaler,
        retargets_at: Option<Time>,
    ) -> Vec<SharedRequest> {
        let is_updated = vpa.spec.update_mode().changes_running_pods();
        let retargeting =
            retargets_at.filter(|_| is_updated).map(|now| Retargeting { now, needs_record: true });
        let target = &vpa.spec.target_ref;
        let template = self.sizing.template(namespace, target);
        let (target, followers) = ((&*target.kind, &*target.name), &self.sizing.followers);
        followers.shared_requests(namespace, target, template.as_ref(), retargeting)
    }

    pub fn vpa_count(&self) -> usize {
        self.vpas.lock().objects.len()
    }
}
