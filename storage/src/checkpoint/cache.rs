//! What is known of the stored objects without asking: a few bytes for each key, filled by loads and writes.
//!
//! It may be behind, never ahead: every write names the version it was decided on, so that an object that
//! changed since refuses it, and is then read.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    object::{CheckpointContent, CheckpointObject, StoredFingerprint},
    object_names,
};
use plimsoll_core::types::ContainerKey;

/// What is known of the object of one key.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// Its name, where that is not upstream's.
    name: Option<Box<str>>,
    /// The resourceVersion at which it was seen.
    pub version: Box<str>,
    /// Whether it has any annotations.
    pub annotated: bool,
    /// What it holds.
    pub content: CachedContent,
}

/// What an object holds, as far as a writer cares.
#[derive(Clone, Debug)]
pub enum CachedContent {
    /// It has to be read: a write to it may or may not have gone through.
    Unknown,
    /// Nothing that would be worth keeping.
    Empty,
    /// A format of somebody else; says why it is left as it is.
    Foreign(Box<str>),
    /// History.
    History(StoredFingerprint),
}

impl CacheEntry {
    /// An object that may be there.
    pub fn unsure(key: &ContainerKey, name: &str) -> Self {
        let name = (object_names::upstream_name(key) != name).then(|| name.into());
        Self { name, version: "".into(), annotated: false, content: CachedContent::Unknown }
    }

    /// An object that was read.
    pub fn from_object(object: &CheckpointObject) -> Self {
        let holds = match &object.content {
            CheckpointContent::Empty | CheckpointContent::Malformed(_) => CachedContent::Empty,
            CheckpointContent::Foreign(error) => CachedContent::Foreign(error.to_string().into()),
            CheckpointContent::History(history) => CachedContent::History(history.fingerprint),
        };
        Self {
            version: object.version.clone(),
            annotated: object.annotated,
            content: holds,
            ..Self::unsure(&object.key, &object.name)
        }
    }

    /// The name of the object.
    pub fn name(&self, key: &ContainerKey) -> String {
        self.name.as_deref().map_or_else(|| object_names::upstream_name(key), str::to_owned)
    }
}

/// What is known, by key.
#[derive(Debug, Default)]
pub struct CheckpointCache(Mutex<HashMap<ContainerKey, CacheEntry>>);

impl CheckpointCache {
    fn entries(&self) -> MutexGuard<'_, HashMap<ContainerKey, CacheEntry>> {
        // A panic elsewhere cannot leave the map half changed: each change is one call of it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// What is known of a key.
    pub fn get(&self, key: &ContainerKey) -> Option<CacheEntry> {
        self.entries().get(key).cloned()
    }

    /// Notes what is known of a key; `None` when there is no object.
    pub fn put(&self, key: &ContainerKey, entry: Option<CacheEntry>) {
        let mut entries = self.entries();
        match entry {
            Some(entry) => drop(entries.insert(key.clone(), entry)),
            None => drop(entries.remove(key)),
        }
    }

    /// Notes that the object of a key has to be read before it is written again.
    pub fn mark_unknown(&self, key: &ContainerKey) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.content = CachedContent::Unknown;
        }
    }

    /// Forgets the keys that nobody owns any more: their objects may have been deleted by others, and nobody loads or
    /// writes them again. Forgetting too much is harmless, since a write that meets an object reads it.
    pub fn forget_orphans(&self, orphaned: impl Fn(&ContainerKey) -> bool) {
        // The judge takes a lock of its own, so it is not asked under this one.
        let keys: Vec<ContainerKey> = self.entries().keys().cloned().collect();
        let gone: Vec<ContainerKey> = keys.into_iter().filter(|key| orphaned(key)).collect();
        let mut entries = self.entries();
        for key in &gone {
            entries.remove(key);
        }
        // A table that was large once gives its memory back.
        if entries.len() < entries.capacity() / 4 {
            entries.shrink_to_fit();
        }
    }

    /// Forgets what a whole look at these keys did not come across.
    pub fn retain_seen(
        &self,
        looked_at: impl Fn(&ContainerKey) -> bool,
        seen: &HashSet<ContainerKey>,
    ) {
        self.entries().retain(|key, _| !looked_at(key) || seen.contains(key));
    }
}
