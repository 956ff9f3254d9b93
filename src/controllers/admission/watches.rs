//! Watches of the admission controller: VPAs, LimitRanges, and the controllers that own pods.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use kube::{Client, ResourceExt as _};

use super::config::AdmissionConfig;
use crate::{
    cluster::{
        cache::{
            controllers::{ControllerCache, WellKnown},
            limit_range::PartialLimitRange,
            object_store::ObjectStore,
        },
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus},
    },
    controllers::runtime::{
        controller_watches::{self, WatchStarter},
        quotas::Quotas,
        request_followers::RequestFollowers,
        shutdown::{ShutdownToken, Tasks},
    },
};
use parking_lot::Mutex;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::TargetRef},
    coordination::{Retargeting, SharedRequest},
    sizing::LimitRangeItem,
    types::{ObjectKey, Time, compat::Compat},
};

pub(super) struct Watches {
    watch_factory: WatchFactory,
    pub stores: Arc<WatchStores>,
    pub vpas: Arc<WatchStatus>,
    pub limit_ranges: Arc<WatchStatus>,
    pub controllers: Vec<Arc<WatchStatus>>,
    compat: Compat,
}

impl Watches {
    /// Watches that are not started yet.
    pub fn new(watch_factory: WatchFactory, stores: Arc<WatchStores>, compat: Compat) -> Self {
        Self {
            watch_factory,
            stores,
            vpas: Arc::new(WatchStatus::new("verticalpodautoscalers")),
            limit_ranges: Arc::new(WatchStatus::new("limitranges")),
            controllers: controller_watches::watch_statuses(),
            compat,
        }
    }

    pub fn client(&self) -> Client {
        self.watch_factory.client.clone()
    }

    /// The watches that must be synced before pods are reviewed.
    pub fn required(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        let required = [&self.vpas, &self.limit_ranges].into_iter().chain(&self.controllers);
        required.chain(self.stores.followers.watch.watch_status())
    }

    pub fn start(&self, config: &AdmissionConfig, stop: &ShutdownToken, tasks: &mut Tasks) {
        let namespace = config.scope.only.as_deref();
        let (stores, watch_factory) = (&self.stores, &self.watch_factory);
        let mut watches = WatchStarter { target: stores, watch_factory, namespace, stop, tasks };
        watches.start(&self.vpas, WatchOptions::default(), WatchStores::apply_vpa_change);
        watches.start(
            &self.limit_ranges,
            WatchOptions::default(),
            WatchStores::apply_limit_range_change,
        );
        if config.compat == Compat::Plimsoll {
            let (quotas, followers) = (&stores.quotas.watch, &stores.followers.watch);
            let consequence = "recommendations may exceed quotas, and pods may be rejected";
            quotas.start(watch_factory, namespace, consequence, stop, tasks);
            let consequence = "new pods get recommended requests even if a HorizontalPodAutoscaler scales by their utilization";
            followers.start(watch_factory, namespace, consequence, stop, tasks);
        }
        let (controllers, statuses) = (&stores.controllers, &self.controllers);
        controller_watches::start(watch_factory, namespace, controllers, statuses, stop, tasks);
    }

    pub fn have_synced(&self) -> bool {
        let are_followers_known =
            self.compat == Compat::Upstream || self.stores.followers.watch.are_known();
        are_followers_known && self.required().all(|status| status.is_synced())
    }
}

/// Key of the VPA lookup: namespace, and kind and name of the target. As in upstream, the API group is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetKey {
    namespace: Box<str>,
    kind: Box<str>,
    name: Box<str>,
}

impl TargetKey {
    pub fn new(namespace: &str, kind: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), kind: kind.into(), name: name.into() }
    }

    fn from_target_ref(namespace: &str, target: &TargetRef) -> Self {
        Self::new(namespace, &target.kind, &target.name)
    }
}

#[derive(Default)]
pub(super) struct WatchStores {
    pub controllers: Arc<ControllerCache>,
    pub quotas: Quotas,
    pub followers: RequestFollowers,
    vpas: Mutex<VpaStore>,
    limit_ranges: Mutex<ObjectStore<ObjectKey, Vec<LimitRangeItem>>>,
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
            let target = TargetKey::from_target_ref(&key.namespace, &vpa.spec.target_ref);
            if let Entry::Occupied(mut vpas) = self.by_target.entry(target) {
                vpas.get_mut().remove(&key.name);
                if vpas.get().is_empty() {
                    vpas.remove();
                }
            }
        }
        if let Some(vpa) = applied {
            let namespace = vpa.namespace().unwrap_or_default();
            let target = TargetKey::from_target_ref(&namespace, &vpa.spec.target_ref);
            self.by_target.entry(target).or_default().insert(vpa.name_any().into(), vpa);
        }
    }
}

impl WatchStores {
    pub fn vpas(&self, key: &TargetKey) -> Vec<Arc<VerticalPodAutoscaler>> {
        self.vpas
            .lock()
            .by_target
            .get(key)
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
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
        let TargetRef { kind, name, .. } = &vpa.spec.target_ref;
        let template = WellKnown::from_kind(kind)
            .and_then(|kind| self.controllers.template(kind, namespace, name));
        let target = (&**kind, &**name);
        self.followers.shared_requests(namespace, target, template.as_ref(), retargeting)
    }

    pub fn vpa_count(&self) -> usize {
        self.vpas.lock().objects.len()
    }

    /// The items of all LimitRanges of a namespace, ordered by LimitRange name.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = self.limit_ranges.lock();
        ranges.in_namespace(namespace).flatten().cloned().collect()
    }

    fn apply_vpa_change(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        self.vpas.lock().apply(change);
    }

    fn apply_limit_range_change(&self, change: ObjectChange<PartialLimitRange>) {
        self.limit_ranges.lock().apply_object(change, |range| range.spec.limits);
    }
}
