//! Caches the seven well-known kinds of controllers: the selector and the owner of each.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::DeserializeOwned;

use super::selector::{Selector, SelectorError};

mod objects;
mod record;

pub use objects::{
    ControllerStatus, CronJobSpec, LabelMapSpec, SelectorSpec, SlimCronJob, SlimDaemonSet,
    SlimDeployment, SlimJob, SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
};
use record::{Record, key};

/// The kinds that every cluster has and that are watched. They are identified by the name of the kind alone: the API
/// version of a reference is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WellKnown {
    /// `apps/DaemonSet`.
    DaemonSet,
    /// `apps/Deployment`.
    Deployment,
    /// `apps/ReplicaSet`.
    ReplicaSet,
    /// `apps/StatefulSet`.
    StatefulSet,
    /// `ReplicationController` of the core group.
    ReplicationController,
    /// `batch/Job`.
    Job,
    /// `batch/CronJob`.
    CronJob,
}

/// A controller of one of these kinds, reduced to the fields that are read.
pub trait Controller: kube::Resource<DynamicType = ()> + DeserializeOwned {
    /// The kind of the controller.
    const KIND: WellKnown;

    /// Selects its pods.
    fn selector(&self) -> Result<Selector, SelectorError>;

    /// Desired replicas. For a DaemonSet, the number of desired nodes; `None` for kinds that run to completion.
    fn replicas(&self) -> Option<u32>;

    /// Current replicas, where the status counts them.
    fn current(&self) -> Option<i32>;
}

/// The controller of an object, in the object's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// The cached fields of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Selects its pods. `None` if the object's selector is invalid, which the API server rejects.
    pub selector: Option<Selector>,
    /// The controller's own controller.
    pub owner: Option<Owner>,
    /// Desired replicas, if known; see [`Controller::replicas`].
    pub replicas: Option<u32>,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T = ControllerInfo> {
    /// The controller, or the requested field of it.
    Found(T),
    /// No controller of that name exists.
    Missing,
    /// The kind is not synced yet, so this is not known.
    NotSynced,
}

/// The controllers of the cluster, from watches. After a restarted watch, cached objects stay until the new list is
/// complete.
#[derive(Debug, Default)]
pub struct ControllerCache {
    kinds: RwLock<[Records; WellKnown::ALL.len()]>,
}

#[derive(Debug, Default)]
struct Records {
    current: BTreeSet<Record>,
    /// From before the watch restarted, and not listed again so far.
    stale: BTreeSet<Record>,
    is_complete: bool,
}

// === impl WellKnown ===

impl WellKnown {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::DaemonSet,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
    ];

    /// Looks a kind up by its name.
    pub fn from_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|well_known| well_known.name() == kind)
    }

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => "apps",
            Self::ReplicationController => "",
            Self::Job | Self::CronJob => "batch",
        }
    }
}

// === impl Owner ===

impl Owner {
    /// The first of the references that is marked as the controller.
    pub fn controller_of(references: &[OwnerReference]) -> Option<Self> {
        let controller = references.iter().find(|owner| owner.controller == Some(true))?;
        Some(Self {
            api_version: controller.api_version.as_str().into(),
            kind: controller.kind.as_str().into(),
            name: controller.name.as_str().into(),
        })
    }
}

// === impl ControllerCache ===

impl ControllerCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The watch of that kind restarted: objects that are not put again before [`Self::finish_list`] are gone.
    pub fn restart(&self, kind: WellKnown) {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        let mut stale = std::mem::take(&mut records.current);
        // Objects left over from a list that never completed may still exist.
        stale.append(&mut records.stale);
        records.stale = stale;
    }

    /// The list is complete. Returns whether objects are gone.
    pub fn finish_list(&self, kind: WellKnown) -> bool {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        records.is_complete = true;
        !std::mem::take(&mut records.stale).is_empty()
    }

    /// Stores a controller. Returns whether a cached field changed.
    pub fn put<K: Controller>(&self, controller: &K) -> bool {
        let record = Record::from_controller(controller);
        let mut kinds = self.write();
        let records = &mut kinds[K::KIND as usize];
        let older = records.stale.take(record.key());
        let newer = records.current.get(record.key());
        let changed = newer.or(older.as_ref()).is_none_or(|cached| !cached.same_content(&record));
        records.current.replace(record);
        changed
    }

    /// A controller exists but cannot be decoded: keeps its cached fields.
    pub fn keep_unreadable(&self, kind: WellKnown, namespace: &str, name: &str) {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        if let Some(record) = records.stale.take(key(namespace, name).as_str()) {
            records.current.insert(record);
        }
    }

    /// A controller was deleted. Returns whether it was cached.
    pub fn remove(&self, kind: WellKnown, namespace: &str, name: &str) -> bool {
        let key = key(namespace, name);
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        let older = records.stale.remove(key.as_str());
        records.current.remove(key.as_str()) || older
    }

    /// The cached fields of a controller.
    pub fn find(&self, kind: WellKnown, namespace: &str, name: &str) -> Lookup {
        self.find_with(kind, namespace, name, Record::info)
    }

    /// Only the owner: the walk up the owners needs no more, and runs for each pod that is created.
    pub fn owner(&self, kind: WellKnown, namespace: &str, name: &str) -> Lookup<Option<Owner>> {
        self.find_with(kind, namespace, name, Record::owner)
    }

    fn find_with<T>(
        &self,
        kind: WellKnown,
        namespace: &str,
        name: &str,
        read: impl FnOnce(&Record) -> T,
    ) -> Lookup<T> {
        let key = key(namespace, name);
        let kinds = self.read();
        let records = &kinds[kind as usize];
        let found = records.current.get(key.as_str()).or_else(|| records.stale.get(key.as_str()));
        match found {
            Some(record) => Lookup::Found(read(record)),
            None if records.is_complete => Lookup::Missing,
            None => Lookup::NotSynced,
        }
    }

    /// Whether every kind has been listed completely at least once.
    pub fn is_synced(&self) -> bool {
        self.read().iter().all(|records| records.is_complete)
    }

    /// The number of cached controllers of that kind.
    pub fn count(&self, kind: WellKnown) -> usize {
        let kinds = self.read();
        kinds[kind as usize].current.len() + kinds[kind as usize].stale.len()
    }

    fn read(&self) -> RwLockReadGuard<'_, [Records; WellKnown::ALL.len()]> {
        // No code below panics halfway through a change.
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, [Records; WellKnown::ALL.len()]> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<K: Controller>(yaml: &str) -> K {
        serde_saphyr::from_str(yaml).expect("a controller")
    }

    fn replica_set(name: &str) -> SlimReplicaSet {
        read(&format!(
            "
metadata:
  {{name: {name}, namespace: shop, uid: 7b1f, labels: {{app: web}}, ownerReferences: [
    {{apiVersion: v1, kind: Team, name: shop, uid: 1}},
    {{apiVersion: apps/v1, kind: Deployment, name: web, uid: 2, controller: true}}]}}
spec: {{replicas: 2, selector: {{matchLabels: {{app: web, pod-template-hash: 6d4b9c7f5d}}}}}}"
        ))
    }

    #[test]
    fn a_controller_is_found_with_its_selector_and_its_owner() {
        let controllers = ControllerCache::new();
        assert!(controllers.put(&replica_set("web-6d4b9c7f5d")));
        assert!(!controllers.put(&replica_set("web-6d4b9c7f5d")), "nothing changed");
        let Lookup::Found(controller) =
            controllers.find(WellKnown::ReplicaSet, "shop", "web-6d4b9c7f5d")
        else {
            panic!("controller was put")
        };
        let owner =
            Owner { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() };
        assert_eq!(controller.owner, Some(owner));
        let selector = Selector::parse("app=web,pod-template-hash=6d4b9c7f5d");
        assert_eq!(controller.selector.ok_or(()), selector.map_err(|_| ()));
    }

    #[test]
    fn selectors_are_read_for_each_kind() {
        let template = "spec: {jobTemplate: {spec: {template: {metadata: {labels: {a: b}}}}}}";
        let expected = Selector::parse("a=b");
        let meta = "metadata: {name: x, namespace: y}";
        let plain = "spec: {selector: {matchLabels: {a: b}}}";
        assert_eq!(read::<SlimDaemonSet>(&format!("{{{meta}, {plain}}}")).selector(), expected);
        assert_eq!(read::<SlimDeployment>(&format!("{{{meta}, {plain}}}")).selector(), expected);
        assert_eq!(read::<SlimStatefulSet>(&format!("{{{meta}, {plain}}}")).selector(), expected);
        assert_eq!(read::<SlimJob>(&format!("{{{meta}, {plain}}}")).selector(), expected);
        assert_eq!(read::<SlimCronJob>(&format!("{{{meta}, {template}}}")).selector(), expected);
        let replication: SlimReplicationController =
            read(&format!("{{{meta}, spec: {{selector: {{a: b}}}}}}"));
        assert_eq!(replication.selector(), expected);
        let bare: SlimDeployment = read(&format!("{{{meta}}}"));
        assert_eq!(bare.selector(), Ok(Selector::nothing()));
    }

    #[test]
    fn a_lookup_before_the_first_list_is_not_missing() {
        let (controllers, kind) = (ControllerCache::new(), WellKnown::ReplicaSet);
        assert_eq!(controllers.find(kind, "shop", "web"), Lookup::NotSynced);
        controllers.restart(kind);
        controllers.put(&replica_set("kept"));
        controllers.put(&replica_set("lost"));
        assert!(!controllers.finish_list(kind));
        assert_eq!(controllers.find(kind, "shop", "web"), Lookup::Missing);
        assert_eq!(controllers.find(WellKnown::Job, "shop", "web"), Lookup::NotSynced);
        assert!(!controllers.is_synced());

        controllers.restart(kind);
        assert!(matches!(controllers.find(kind, "shop", "lost"), Lookup::Found(_)));
        assert!(!controllers.put(&replica_set("kept")), "nothing changed");
        // The watch failed again before the list was complete.
        controllers.restart(kind);
        assert!(matches!(controllers.find(kind, "shop", "lost"), Lookup::Found(_)));
        controllers.put(&replica_set("kept"));
        assert!(controllers.finish_list(kind), "one is gone");
        assert_eq!(controllers.find(kind, "shop", "lost"), Lookup::Missing);
        assert_eq!(controllers.count(kind), 1);
        assert!(
            controllers.remove(kind, "shop", "kept") && !controllers.remove(kind, "shop", "kept")
        );
        assert_eq!(controllers.count(kind), 0);
    }

    #[test]
    fn a_controller_takes_less_than_200_bytes() {
        const COUNT: usize = 10_000;
        let pattern = replica_set("checkout");
        let objects: Vec<_> = (0..COUNT)
            .map(|i| {
                let mut object = pattern.clone();
                object.metadata.name = Some(format!("checkout-{:010}", i * 7_919 % 1_000_003));
                object
            })
            .collect();
        let controllers = ControllerCache::new();
        let used = allocation_counter::measure(|| {
            for object in &objects {
                controllers.put(object);
            }
        });
        let each = used.bytes_current / COUNT as i64;
        assert_eq!(controllers.count(WellKnown::ReplicaSet), COUNT);
        assert!((50..200).contains(&each), "{each} bytes");
    }

    #[test]
    fn desired_replicas_are_known_if_set() {
        let controllers = ControllerCache::new();
        let put = |name: &str, spec: &str, status: &str| {
            let text = format!(
                r#"{{"metadata":{{"namespace":"n","name":"{name}"}},"spec":{spec},"status":{status}}}"#
            );
            let set: SlimReplicaSet = serde_json::from_str(&text).expect("a ReplicaSet");
            controllers.put(&set);
            let daemons: SlimDaemonSet = serde_json::from_str(&text).expect("a DaemonSet");
            controllers.put(&daemons);
        };
        put("three", r#"{"replicas":3}"#, r#"{"desiredNumberScheduled":5}"#);
        put("unsaid", "{}", "{}");
        put("wrong", r#"{"replicas":-1}"#, "{}");
        let replicas = |kind, name| match controllers.find(kind, "n", name) {
            Lookup::Found(known) => known.replicas,
            other => panic!("{other:?}"),
        };
        assert_eq!(replicas(WellKnown::ReplicaSet, "three"), Some(3));
        assert_eq!(replicas(WellKnown::DaemonSet, "three"), Some(5));
        assert_eq!(replicas(WellKnown::ReplicaSet, "unsaid"), None);
        assert_eq!(replicas(WellKnown::DaemonSet, "unsaid"), None);
        assert_eq!(replicas(WellKnown::ReplicaSet, "wrong"), None);
    }
}
