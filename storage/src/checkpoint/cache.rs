//! A cache of the stored objects: a few bytes per key, filled by loads and writes.
//!
//! An entry may be outdated: every write includes the resourceVersion that it is based on, so a write to a changed object
//! fails with a conflict, and the object is read again.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::{
    object::{CheckpointContent, CheckpointObject, StoredFingerprint},
    object_names,
};
use plimsoll_core::types::ContainerKey;

#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// The name of the object, if it differs from upstream's.
    name: Option<Box<str>>,
    pub version: Box<str>,
    /// Whether the object has any annotations.
    pub annotated: bool,
    pub content: CachedContent,
}

/// The content of an object, as far as writes need it.
#[derive(Clone, Debug)]
pub enum CachedContent {
    /// Unknown: the result of a write is indeterminate, so the object has to be read.
    Unknown,
    /// Nothing worth keeping.
    Empty,
    /// A foreign format, with the reason why it is not overwritten.
    Foreign(Box<str>),
    History(StoredFingerprint),
}

impl CacheEntry {
    /// An object that may exist.
    pub fn unsure(key: &ContainerKey, name: &str) -> Self {
        let name = (object_names::upstream_name(key) != name).then(|| name.into());
        Self { name, version: "".into(), annotated: false, content: CachedContent::Unknown }
    }

    pub fn from_object(object: &CheckpointObject) -> Self {
        let content = match &object.content {
            CheckpointContent::Empty | CheckpointContent::Malformed(_) => CachedContent::Empty,
            CheckpointContent::Foreign(error) => CachedContent::Foreign(error.to_string().into()),
            CheckpointContent::History(history) => CachedContent::History(history.fingerprint),
        };
        Self {
            version: object.version.clone(),
            annotated: object.annotated,
            content,
            ..Self::unsure(&object.key, &object.name)
        }
    }

    pub fn annotation(&self) -> Option<u64> {
        match &self.content {
            CachedContent::History(print) => print.annotation,
            _ => None,
        }
    }

    pub fn name(&self, key: &ContainerKey) -> String {
        self.name.as_deref().map_or_else(|| object_names::upstream_name(key), str::to_owned)
    }
}

#[derive(Debug, Default)]
pub struct CheckpointCache(Mutex<HashMap<ContainerKey, CacheEntry>>);

impl CheckpointCache {
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn get(&self, key: &ContainerKey) -> Option<CacheEntry> {
        self.0.lock().get(key).cloned()
    }

    /// Sets the entry of a key; `None` if the object does not exist.
    pub fn put(&self, key: &ContainerKey, entry: Option<CacheEntry>) {
        let mut entries = self.0.lock();
        match entry {
            Some(entry) => drop(entries.insert(key.clone(), entry)),
            None => drop(entries.remove(key)),
        }
    }

    /// Requires that the object of a key is read before the next write.
    pub fn mark_unknown(&self, key: &ContainerKey) {
        if let Some(entry) = self.0.lock().get_mut(key) {
            entry.content = CachedContent::Unknown;
        }
    }

    /// Removes orphaned keys: other programs may have deleted their objects, and they are not loaded or written again.
    /// Removing too many is harmless, because a conflicting write reads the object.
    pub fn forget_orphans(&self, orphaned: impl Fn(&ContainerKey) -> bool) {
        // The predicate takes its own lock, so do not call it under this one.
        let keys: Vec<ContainerKey> = self.0.lock().keys().cloned().collect();
        let gone: Vec<ContainerKey> = keys.into_iter().filter(|key| orphaned(key)).collect();
        let mut entries = self.0.lock();
        for key in &gone {
            entries.remove(key);
        }
        // Release the memory of a map that was once large.
        if entries.len() < entries.capacity() / 4 {
            entries.shrink_to_fit();
        }
    }

    /// Removes the keys in scope that a complete list did not contain.
    pub fn retain_seen(
        &self,
        in_scope: impl Fn(&ContainerKey) -> bool,
        seen: &HashSet<ContainerKey>,
    ) {
        self.0.lock().retain(|key, _| !in_scope(key) || seen.contains(key));
    }
}
