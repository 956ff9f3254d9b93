//! Objects of one kind from a watch, indexed by a secondary key.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use crate::cluster::watch::ObjectChange;

/// Namespace and name.
type NamespaceAndName = (Box<str>, Box<str>);

/// The objects of a kind. After a restarted watch, stored objects stay until the new list is complete.
#[derive(Debug)]
pub struct ObjectStore<K, T> {
    objects: HashMap<NamespaceAndName, Entry<K>>,
    by_key: HashMap<K, BTreeMap<NamespaceAndName, Arc<T>>>,
    /// The number of the current list.
    list: u64,
}

#[derive(Debug)]
struct Entry<K> {
    key: Option<K>,
    list: u64,
}

impl<K, T> Default for ObjectStore<K, T> {
    fn default() -> Self {
        Self { objects: HashMap::new(), by_key: HashMap::new(), list: 0 }
    }
}

impl<K: Clone + Eq + Hash, T> ObjectStore<K, T> {
    /// Applies a change of a watch. `read` extracts the key of an object and the fields to store; an object without a key is
    /// not stored.
    pub fn apply<O>(
        &mut self,
        change: ObjectChange<O>,
        read: impl FnOnce(O) -> StoredObject<K, T>,
    ) {
        match change {
            ObjectChange::Restart => self.list += 1,
            ObjectChange::Applied(object) => {
                let StoredObject { namespace, name, key, object } = read(object);
                let id: NamespaceAndName = (namespace.into(), name.into());
                self.remove(&id);
                if let Some(key) = &key {
                    self.by_key
                        .entry(key.clone())
                        .or_default()
                        .insert(id.clone(), Arc::new(object));
                }
                self.objects.insert(id, Entry { key, list: self.list });
            }
            ObjectChange::Invalid { namespace, name, .. } => {
                if let Some(entry) = self.objects.get_mut(&(namespace.into(), name.into())) {
                    entry.list = self.list;
                }
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.remove(&(namespace.into(), name.into()));
            }
            ObjectChange::Synced => {
                let list = self.list;
                let gone = self.objects.iter().filter(|(_, entry)| entry.list != list);
                let gone: Vec<NamespaceAndName> = gone.map(|(id, _)| id.clone()).collect();
                for id in gone {
                    self.remove(&id);
                }
            }
        }
    }

    fn remove(&mut self, id: &NamespaceAndName) {
        let Some(Entry { key: Some(key), .. }) = self.objects.remove(id) else { return };
        if let Some(objects) = self.by_key.get_mut(&key) {
            objects.remove(id);
            if objects.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The objects with this key, ordered by namespace and name.
    pub fn get(&self, key: &K) -> impl Iterator<Item = &Arc<T>> {
        self.by_key.get(key).into_iter().flat_map(BTreeMap::values)
    }

    /// The keys that have objects, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_key.keys()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// An object to be stored in an [`ObjectStore`].
#[derive(Clone, Debug)]
pub struct StoredObject<K, T> {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key that it is looked up by; `None` if it is not to be stored.
    pub key: Option<K>,
    /// The fields to store.
    pub object: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut ObjectStore<String, u8>, name: &str, key: Option<&str>, object: u8) {
        store.apply(ObjectChange::Applied(()), |()| StoredObject {
            namespace: "n".into(),
            name: name.into(),
            key: key.map(str::to_owned),
            object,
        });
    }

    fn tell(store: &mut ObjectStore<String, u8>, change: ObjectChange<()>) {
        store.apply(change, |()| unreachable!("this change has no object"));
    }

    fn of(store: &ObjectStore<String, u8>, key: &str) -> Vec<u8> {
        store.get(&key.to_owned()).map(|object| **object).collect()
    }

    fn at(name: &str) -> (String, String) {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn objects_are_found_by_their_current_fields() {
        let mut store = ObjectStore::default();
        put(&mut store, "b", Some("web"), 1);
        put(&mut store, "a", Some("web"), 2);
        assert_eq!(of(&store, "web"), [2, 1], "in order of their names");
        put(&mut store, "a", Some("api"), 3);
        assert_eq!((of(&store, "web"), of(&store, "api")), (vec![1], vec![3]));
        put(&mut store, "a", None, 4);
        assert_eq!((of(&store, "api"), store.len()), (vec![], 2));
        let (namespace, name) = at("b");
        tell(&mut store, ObjectChange::Deleted { namespace, name, uid: None });
        assert_eq!((of(&store, "web"), store.len()), (vec![], 1));
    }

    #[test]
    fn a_restarted_list_hides_nothing_until_it_is_complete() {
        let mut store = ObjectStore::default();
        for name in ["gone", "unreadable", "stays"] {
            put(&mut store, name, Some("web"), 1);
        }
        tell(&mut store, ObjectChange::Restart);
        put(&mut store, "stays", Some("web"), 2);
        let (namespace, name) = at("unreadable");
        tell(&mut store, ObjectChange::Invalid { namespace, name, reason: String::new() });
        assert_eq!(of(&store, "web").len(), 3);
        tell(&mut store, ObjectChange::Synced);
        assert_eq!(of(&store, "web"), [2, 1], "objects that were not listed again are gone");
    }
}
