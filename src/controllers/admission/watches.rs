//! What the admission controller watches: VPAs, LimitRanges, and the controllers that own pods.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;

use super::{AdmissionController, ShutdownToken, Tasks};
use crate::{
    cluster::{
        cache::{
            limit_range::PartialLimitRange,
            object_store::{ObjectStore, StoredObject},
        },
        watch::{ObjectChange, WatchOptions, status::WatchStatus, watch},
    },
    controllers::runtime::{controller_watches, traffic_metrics::unsynced_watches},
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::TargetRef},
    sizing::LimitRangeItem,
    types::compat::Compat,
};

/// The watches by name.
#[derive(Debug)]
pub(super) struct Watches {
    pub vpas: Arc<WatchStatus>,
    pub limit_ranges: Arc<WatchStatus>,
    pub controllers: Vec<Arc<WatchStatus>>,
}

impl Watches {
    /// Watches that do not run yet.
    pub fn new() -> Self {
        Self {
            vpas: Arc::new(WatchStatus::new("verticalpodautoscalers")),
            limit_ranges: Arc::new(WatchStatus::new("limitranges")),
            controllers: controller_watches::watch_statuses(),
        }
    }

    /// Those without which nothing is decided.
    pub fn required(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        [&self.vpas, &self.limit_ranges].into_iter().chain(&self.controllers)
    }
}

/// What a VPA is looked up by: namespace, and kind and name of its target. The group is of no account, as upstream has it.
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

/// What the watches have told.
#[derive(Debug, Default)]
pub(super) struct WatchStores {
    vpas: Mutex<ObjectStore<TargetKey, VerticalPodAutoscaler>>,
    limit_ranges: Mutex<ObjectStore<Box<str>, Vec<LimitRangeItem>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchStores {
    /// The VPAs that name this target.
    pub fn vpas(&self, key: &TargetKey) -> Vec<Arc<VerticalPodAutoscaler>> {
        lock(&self.vpas).get(key).cloned().collect()
    }

    /// How many VPAs there are.
    pub fn vpa_count(&self) -> usize {
        lock(&self.vpas).len()
    }

    /// What the LimitRanges of a namespace say, in order of their names.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = lock(&self.limit_ranges);
        ranges.get(&namespace.into()).flat_map(|items| items.iter().cloned()).collect()
    }

    fn apply_vpa_change(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        lock(&self.vpas).apply(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            let namespace = vpa.namespace().unwrap_or_default();
            let key = Some(TargetKey::from_target_ref(&namespace, &vpa.spec.target_ref));
            StoredObject { namespace, name: vpa.name_any(), key, object: vpa }
        });
    }

    fn apply_limit_range_change(&self, change: ObjectChange<PartialLimitRange>) {
        lock(&self.limit_ranges).apply(change, |range| {
            let namespace = range.namespace().unwrap_or_default();
            let key = Some(namespace.as_str().into());
            StoredObject { name: range.name_any(), namespace, key, object: range.spec.limits }
        });
    }
}

impl AdmissionController {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_watches(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut Tasks) {
        let only = self.config.scope.only.as_deref();
        let reader = &self.watch_factory;
        {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            let vpas = reader.objects::<VerticalPodAutoscaler>(only);
            tasks.spawn(async move {
                let apply = |change| role.stores.apply_vpa_change(change);
                watch(vpas, WatchOptions::default(), &role.watches.vpas, apply, ended).await;
            });
        }
        {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            let ranges = reader.objects::<PartialLimitRange>(only);
            tasks.spawn(async move {
                let apply = |change| role.stores.apply_limit_range_change(change);
                watch(ranges, WatchOptions::default(), &role.watches.limit_ranges, apply, ended)
                    .await;
            });
        }
        if self.config.compat == Compat::Plimsoll {
            let (role, stop) = (Arc::clone(self), stop.clone());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let lost = "pods may be refused for what is recommended";
                role.quotas.run_watch(&role.client, &role.watch_factory, only, lost, stop).await;
            });
        }
        let (controllers, feeds) = (&self.controllers, &self.watches.controllers);
        controller_watches::start(reader, only, controllers, feeds, stop, tasks);
    }

    /// What was not read yet, a line each.
    pub(super) fn unsynced_watches(&self) -> Vec<String> {
        unsynced_watches(self.watches.required())
    }

    /// Whether everything was read once.
    pub(super) fn has_synced(&self) -> bool {
        self.watches.required().all(|feed| feed.is_synced())
    }
}
