//! Owns what is known of the seven well-known kinds of controllers: which pods each selects, and who owns it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::DeserializeOwned;

use super::selector::{Selector, SelectorError};

mod objects;

pub use objects::{
    ByLabels, BySelector, ByTemplate, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
    SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
};

/// Between the parts of a record: no name, version or selector of the API holds it.
const SEPARATOR: char = '\0';

/// The kinds that everybody has and that are watched. They are known by the name of the kind alone: the version
/// that somebody names with it is of no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WellKnown {
    /// Of apps.
    DaemonSet,
    /// Of apps.
    Deployment,
    /// Of apps.
    ReplicaSet,
    /// Of apps.
    StatefulSet,
    /// Of the core group.
    ReplicationController,
    /// Of batch.
    Job,
    /// Of batch.
    CronJob,
}

/// A controller of one of these kinds, with the fields that are read of it.
pub trait Controller: kube::Resource<DynamicType = ()> + DeserializeOwned {
    /// Which of the kinds it is.
    const KIND: WellKnown;

    /// The pods it means.
    fn selector(&self) -> Result<Selector, SelectorError>;
}

/// Who controls an object: version, kind and name, in the object's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Group and version, such as apps/v1.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// What is known of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The pods it means. `None` when the object holds something that is no selector, which the API refuses.
    pub selector: Option<Selector>,
    /// Its own controller.
    pub owner: Option<Owner>,
}

/// What a look-up finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The controller.
    Found(Known),
    /// There is none of that name.
    Missing,
    /// The kind has not been read completely yet, so nobody knows.
    Unread,
}

/// The controllers of the cluster, as a watch tells of them. A restarted watch hides nothing: what was known
/// stays known until the new list is complete.
#[derive(Debug, Default)]
pub struct Controllers {
    kinds: RwLock<[Records; WellKnown::ALL.len()]>,
}

#[derive(Debug, Default)]
struct Records {
    records: BTreeSet<Record>,
    /// From before the watch was restarted, and not seen again so far.
    older: BTreeSet<Record>,
    complete: bool,
}

/// One controller in one allocation, because a cluster keeps ten old ReplicaSets for each Deployment:
/// `namespace/name`, the owner's version, kind and name, and the selector. It is found by the first part.
#[derive(Debug)]
struct Record(Box<str>);

// === impl WellKnown ===

impl WellKnown {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DaemonSet,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
    ];

    /// By the name of the kind.
    pub fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == kind)
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
    pub fn of(references: &[OwnerReference]) -> Option<Self> {
        let controller = references.iter().find(|owner| owner.controller == Some(true))?;
        Some(Self {
            api_version: controller.api_version.as_str().into(),
            kind: controller.kind.as_str().into(),
            name: controller.name.as_str().into(),
        })
    }
}

// === impl Controllers ===

impl Controllers {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The watch of that kind begins anew: what is not put again before [`Self::complete`] is gone.
    pub fn restart(&self, kind: WellKnown) {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        let mut seen = std::mem::take(&mut records.records);
        // Those of an earlier start that never became complete are still not known to be gone.
        seen.append(&mut records.older);
        records.older = seen;
    }

    /// The watch has told of all that there are. Whether some are gone.
    pub fn complete(&self, kind: WellKnown) -> bool {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        records.complete = true;
        !std::mem::take(&mut records.older).is_empty()
    }

    /// A controller as it is now. Whether anything changed that matters here.
    pub fn put<K: Controller>(&self, controller: &K) -> bool {
        let record = Record::of(controller);
        let mut kinds = self.write();
        let records = &mut kinds[K::KIND as usize];
        let older = records.older.take(record.key());
        let newer = records.records.get(record.key());
        let changed = newer.or(older.as_ref()).is_none_or(|known| known.0 != record.0);
        records.records.replace(record);
        changed
    }

    /// A controller is there and cannot be read: what was known of it stays.
    pub fn keep(&self, kind: WellKnown, namespace: &str, name: &str) {
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        if let Some(record) = records.older.take(key(namespace, name).as_str()) {
            records.records.insert(record);
        }
    }

    /// A controller was deleted. Whether it was known.
    pub fn gone(&self, kind: WellKnown, namespace: &str, name: &str) -> bool {
        let key = key(namespace, name);
        let mut kinds = self.write();
        let records = &mut kinds[kind as usize];
        let older = records.older.remove(key.as_str());
        records.records.remove(key.as_str()) || older
    }

    /// Selector and owner of a controller.
    pub fn find(&self, kind: WellKnown, namespace: &str, name: &str) -> Lookup {
        let key = key(namespace, name);
        let kinds = self.read();
        let records = &kinds[kind as usize];
        let found = records.records.get(key.as_str()).or_else(|| records.older.get(key.as_str()));
        match found {
            Some(record) => Lookup::Found(record.known()),
            None if records.complete => Lookup::Missing,
            None => Lookup::Unread,
        }
    }

    /// Whether every kind has been read completely at least once.
    pub fn is_complete(&self) -> bool {
        self.read().iter().all(|records| records.complete)
    }

    /// How many controllers of that kind are known.
    pub fn count(&self, kind: WellKnown) -> usize {
        let kinds = self.read();
        kinds[kind as usize].records.len() + kinds[kind as usize].older.len()
    }

    fn read(&self) -> RwLockReadGuard<'_, [Records; WellKnown::ALL.len()]> {
        // Nothing below panics half-way through a change.
        self.kinds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, [Records; WellKnown::ALL.len()]> {
        self.kinds.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Record ===

impl Record {
    fn of<K: Controller>(controller: &K) -> Self {
        let meta = controller.meta();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let mut text = key(namespace, meta.name.as_deref().unwrap_or_default());
        let owner = Owner::of(meta.owner_references.as_deref().unwrap_or_default());
        for part in owner.map_or_else(Default::default, |o| [o.api_version, o.kind, o.name]) {
            text.push(SEPARATOR);
            text.push_str(&part);
        }
        match controller.selector() {
            Ok(selector) => text.extend(["\0", selector.as_str()]),
            Err(why) => {
                let kind = K::KIND.name();
                tracing::warn!(kind, namespace, name = meta.name, %why, "selector cannot be read");
            }
        }
        Self(text.into())
    }

    fn key(&self) -> &str {
        self.0.split(SEPARATOR).next().unwrap_or_default()
    }

    fn known(&self) -> Known {
        let mut parts = self.0.split(SEPARATOR).skip(1);
        let [api_version, kind, name]: [Box<str>; 3] = [parts.next(), parts.next(), parts.next()]
            .map(|part| Box::from(part.unwrap_or_default()));
        let owner = (!name.is_empty()).then_some(Owner { api_version, kind, name });
        Known { selector: parts.next().map(Selector::of_canonical), owner }
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl Borrow<str> for Record {
    fn borrow(&self) -> &str {
        self.key()
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Record {}
