//! Caches the seven well-known kinds of controllers: the selector and the owner of each.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::RwLock;
use plimsoll_core::coordination::TemplateRequests;
use serde::{Deserialize, de::DeserializeOwned};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{
    object_store::ObjectStore,
    selector::{Selector, SelectorError},
};
use crate::cluster::watch::ObjectChange;

mod objects;
mod record;

pub use objects::{
    SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob, SlimReplicaSet, SlimReplicationController,
    SlimStatefulSet,
};
use record::{Record, key};

/// The kinds that every cluster has and that are watched. They are identified by the name of the kind alone: the API
/// version of a reference is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
pub enum WellKnown {
    DaemonSet,
    Deployment,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
    Job,
    CronJob,
}

/// A controller of one of these kinds, reduced to the fields that are read.
pub trait Controller: kube::Resource<DynamicType = ()> + DeserializeOwned {
    const KIND: WellKnown;

    fn selector(&self) -> Result<Selector, SelectorError>;

    /// Desired replicas. For a DaemonSet, the number of desired nodes; `None` for kinds that run to completion.
    fn replicas(&self) -> Option<u32>;

    /// Current replicas, where the status counts them.
    fn current(&self) -> Option<i32>;

    /// The requests in the pod template, if the controller has no controller itself.
    fn template(&self) -> Option<TemplateRequests>;
}

/// The controller of an object, in the object's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Selects its pods. `None` if the object's selector is invalid, which the API server rejects.
    pub selector: Option<Selector>,
    pub owner: Option<Owner>,
    /// Desired replicas, if known; see [`Controller::replicas`].
    pub replicas: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T = ControllerInfo> {
    /// The controller, or the requested field of it.
    Found(T),
    Missing,
    /// The kind is not synced yet, so this is not known.
    NotSynced,
}

#[derive(Debug, Default)]
pub struct ControllerCache {
    kinds: RwLock<Kinds>,
}

/// The records of each kind. A record contains its key.
type Kinds = [ObjectStore<Record, ()>; WellKnown::ALL.len()];

impl WellKnown {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    pub fn from_kind(kind: &str) -> Option<Self> {
        kind.parse().ok()
    }

    pub fn name(self) -> &'static str {
        self.into()
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

impl ControllerCache {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn apply<K: Controller>(&self, change: ObjectChange<K>) {
        let change = change.map(|controller| (Record::from_controller(&controller), Some(())));
        self.kinds.write()[K::KIND as usize].apply(change, Record::from_key);
    }

    pub fn put<K: Controller>(&self, controller: &K) {
        let record = Record::from_controller(controller);
        self.kinds.write()[K::KIND as usize].put(record, ());
    }

    /// All controllers of that kind have been stored.
    pub fn finish_list(&self, kind: WellKnown) {
        self.kinds.write()[kind as usize].finish_list();
    }

    pub fn find(&self, kind: WellKnown, namespace: &str, name: &str) -> Lookup {
        self.find_with(kind, namespace, name, Record::info)
    }

    /// Looks up only the owner: the walk up the owners needs nothing else, and runs for each pod that is created.
    pub fn owner(&self, kind: WellKnown, namespace: &str, name: &str) -> Lookup<Option<Owner>> {
        self.find_with(kind, namespace, name, Record::owner)
    }

    /// The requests in the pod template of a controller, if they are known; see [`Controller::template`].
    pub fn template(
        &self,
        kind: WellKnown,
        namespace: &str,
        name: &str,
    ) -> Option<TemplateRequests> {
        match self.find_with(kind, namespace, name, Record::template) {
            Lookup::Found(template) => template,
            Lookup::Missing | Lookup::NotSynced => None,
        }
    }

    fn find_with<T>(
        &self,
        kind: WellKnown,
        namespace: &str,
        name: &str,
        read: impl FnOnce(&Record) -> T,
    ) -> Lookup<T> {
        let key = key(namespace, name);
        let kinds = self.kinds.read();
        let records = &kinds[kind as usize];
        match records.get_key_value(key.as_str()) {
            Some((record, ())) => Lookup::Found(read(record)),
            None if records.is_synced() => Lookup::Missing,
            None => Lookup::NotSynced,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::coordination::Resource;

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
        controllers.put(&replica_set("web-6d4b9c7f5d"));
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
        controllers.apply(ObjectChange::<SlimReplicaSet>::Restart);
        controllers.apply(ObjectChange::Applied(replica_set("kept")));
        controllers.apply(ObjectChange::<SlimReplicaSet>::Synced);
        assert_eq!(controllers.find(kind, "shop", "web"), Lookup::Missing);
        assert_eq!(controllers.find(WellKnown::Job, "shop", "web"), Lookup::NotSynced);
        assert!(!controllers.kinds.read().iter().all(ObjectStore::is_synced));
        let (namespace, name) = ("shop".to_owned(), "kept".to_owned());
        controllers.apply(ObjectChange::<SlimReplicaSet>::Deleted { namespace, name, uid: None });
        assert_eq!(controllers.kinds.read()[kind as usize].len(), 0);
    }

    #[test]
    fn the_requests_of_a_template_are_those_of_the_containers_that_keep_running() {
        let controllers = ControllerCache::new();
        let put = |name: &str, owners: &str, pod: &str| {
            controllers.put(&read::<SlimDeployment>(&format!(
                "
metadata: {{name: {name}, namespace: shop, ownerReferences: [{owners}]}}
spec: {{selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{{pod}}}}}}}"
            )));
        };
        let containers = "containers: [
            {name: app, resources: {requests: {cpu: 400m, memory: 1Gi}}}, {name: log, resources: {requests: {cpu: 50m}}}],
            initContainers: [{name: init, resources: {requests: {cpu: '4'}}},
              {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}}]";
        put("web", "", containers);
        put(
            "child",
            "{apiVersion: v1, kind: Team, name: shop, uid: 1, controller: true}",
            containers,
        );
        put("pod-level", "", &format!("{containers}, resources: {{requests: {{cpu: '1'}}}}"));
        put("bare", "", "containers: [{name: app}]");
        let template = |name| controllers.template(WellKnown::Deployment, "shop", name);
        let cpu = |name| template(name)?.request(Resource::Cpu, None);
        assert_eq!(cpu("web"), Some(550));
        let app = template("web").and_then(|web| web.request(Resource::Memory, Some("app")));
        assert_eq!(app, Some((1 << 30) * 1000));
        assert!(template("bare").is_some());
        assert_eq!(cpu("bare"), None);
        for unknown in ["child", "pod-level", "missing"] {
            assert_eq!(template(unknown), None, "{unknown}");
        }
        let Lookup::Found(web) = controllers.find(WellKnown::Deployment, "shop", "web") else {
            panic!("it was put")
        };
        assert_eq!(web.selector, Selector::parse("a=b").ok());
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
        assert_eq!(controllers.kinds.read()[WellKnown::ReplicaSet as usize].len(), COUNT);
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
