//! What is known of the stored objects without asking: a few bytes for each key, filled by loads and writes.
//!
//! It may be behind, never ahead: every write names the version it was decided on, so that an object that
//! changed since refuses it, and is then read.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    names,
    object::{Content, Object, Print},
};
use plimsoll_core::types::Key;

/// What is known of the object of one key.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name, where that is not upstream's.
    name: Option<Box<str>>,
    /// The resourceVersion at which it was seen.
    pub version: Box<str>,
    /// Whether it has any annotations.
    pub annotated: bool,
    /// What it holds.
    pub holds: Holds,
}

/// What an object holds, as far as a writer cares.
#[derive(Clone, Debug)]
pub enum Holds {
    /// It has to be read: a write to it may or may not have gone through.
    Unsure,
    /// Nothing that would be worth keeping.
    Nothing,
    /// A format of somebody else; says why it is left as it is.
    Foreign(Box<str>),
    /// History.
    History(Print),
}

impl Entry {
    /// An object that may be there.
    pub fn unsure(key: &Key, name: &str) -> Self {
        let name = (names::plain(key) != name).then(|| name.into());
        Self { name, version: "".into(), annotated: false, holds: Holds::Unsure }
    }

    /// An object that was read.
    pub fn of(object: &Object) -> Self {
        let holds = match &object.content {
            Content::Nothing | Content::Malformed(_) => Holds::Nothing,
            Content::Foreign(error) => Holds::Foreign(error.to_string().into()),
            Content::History(history) => Holds::History(history.print),
        };
        Self {
            version: object.version.clone(),
            annotated: object.annotated,
            holds,
            ..Self::unsure(&object.key, &object.name)
        }
    }

    /// The name of the object.
    pub fn name(&self, key: &Key) -> String {
        self.name.as_deref().map_or_else(|| names::plain(key), str::to_owned)
    }
}

/// What is known, by key.
#[derive(Debug, Default)]
pub struct Table(Mutex<HashMap<Key, Entry>>);

impl Table {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        // A panic elsewhere cannot leave the map half changed: each change is one call of it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// What is known of a key.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.entries().get(key).cloned()
    }

    /// Notes what is known of a key; `None` when there is no object.
    pub fn put(&self, key: &Key, entry: Option<Entry>) {
        let mut entries = self.entries();
        match entry {
            Some(entry) => drop(entries.insert(key.clone(), entry)),
            None => drop(entries.remove(key)),
        }
    }

    /// Notes that the object of a key has to be read before it is written again.
    pub fn doubt(&self, key: &Key) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.holds = Holds::Unsure;
        }
    }

    /// Forgets the keys that nobody owns any more: their objects may have been deleted by others, and nobody loads or
    /// writes them again. Forgetting too much is harmless, since a write that meets an object reads it.
    pub fn forget(&self, orphaned: impl Fn(&Key) -> bool) {
        // The judge takes a lock of its own, so it is not asked under this one.
        let keys: Vec<Key> = self.entries().keys().cloned().collect();
        let gone: Vec<Key> = keys.into_iter().filter(|key| orphaned(key)).collect();
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
    pub fn settle(&self, looked_at: impl Fn(&Key) -> bool, seen: &HashSet<Key>) {
        self.entries().retain(|key, _| !looked_at(key) || seen.contains(key));
    }
}
