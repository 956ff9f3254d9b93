//! Objects of one kind as a watch tells of them, filed by what they are looked up by.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use crate::cluster::watch::ObjectChange;

/// Namespace and name.
type NamespaceAndName = (Box<str>, Box<str>);

/// The objects of a kind. A restarted watch hides nothing: what was known stays known until the new list is complete.
#[derive(Debug)]
pub struct ObjectStore<K, T> {
    objects: HashMap<NamespaceAndName, Entry<K>>,
    by_key: HashMap<K, BTreeMap<NamespaceAndName, Arc<T>>>,
    /// Which list is being read.
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
    /// Takes in what a watch tells. `read` says under which key an object is filed, and what is kept of it; what has no
    /// key is not kept.
    pub fn apply<O>(
        &mut self,
        change: ObjectChange<O>,
        read: impl FnOnce(O) -> StoredObject<K, T>,
    ) {
        match change {
            ObjectChange::Restart => self.list += 1,
            ObjectChange::Applied(object) => {
                let StoredObject { namespace, name, key, object } = read(object);
                let place: NamespaceAndName = (namespace.into(), name.into());
                self.remove(&place);
                if let Some(key) = &key {
                    self.by_key
                        .entry(key.clone())
                        .or_default()
                        .insert(place.clone(), Arc::new(object));
                }
                self.objects.insert(place, Entry { key, list: self.list });
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
                let gone: Vec<NamespaceAndName> = gone.map(|(place, _)| place.clone()).collect();
                for place in gone {
                    self.remove(&place);
                }
            }
        }
    }

    fn remove(&mut self, place: &NamespaceAndName) {
        let Some(Entry { key: Some(key), .. }) = self.objects.remove(place) else { return };
        if let Some(objects) = self.by_key.get_mut(&key) {
            objects.remove(place);
            if objects.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// What is filed under a key, in order of namespace and name.
    pub fn get(&self, key: &K) -> impl Iterator<Item = &Arc<T>> {
        self.by_key.get(key).into_iter().flat_map(BTreeMap::values)
    }

    /// The keys under which something is filed, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_key.keys()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// An object on its way into a mirror.
#[derive(Clone, Debug)]
pub struct StoredObject<K, T> {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Under what it is looked up; `None` when nobody does.
    pub key: Option<K>,
    /// What is kept of it.
    pub object: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(mirror: &mut ObjectStore<String, u8>, name: &str, key: Option<&str>, object: u8) {
        mirror.apply(ObjectChange::Applied(()), |()| StoredObject {
            namespace: "n".into(),
            name: name.into(),
            key: key.map(str::to_owned),
            object,
        });
    }

    fn tell(mirror: &mut ObjectStore<String, u8>, change: ObjectChange<()>) {
        mirror.apply(change, |()| unreachable!("it brings no object"));
    }

    fn of(mirror: &ObjectStore<String, u8>, key: &str) -> Vec<u8> {
        mirror.get(&key.to_owned()).map(|object| **object).collect()
    }

    fn at(name: &str) -> (String, String) {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn objects_are_found_by_what_they_say_now() {
        let mut mirror = ObjectStore::default();
        put(&mut mirror, "b", Some("web"), 1);
        put(&mut mirror, "a", Some("web"), 2);
        assert_eq!(of(&mirror, "web"), [2, 1], "in order of their names");
        put(&mut mirror, "a", Some("api"), 3);
        assert_eq!((of(&mirror, "web"), of(&mirror, "api")), (vec![1], vec![3]));
        put(&mut mirror, "a", None, 4);
        assert_eq!((of(&mirror, "api"), mirror.len()), (vec![], 2));
        let (namespace, name) = at("b");
        tell(&mut mirror, ObjectChange::Deleted { namespace, name, uid: None });
        assert_eq!((of(&mirror, "web"), mirror.len()), (vec![], 1));
    }

    #[test]
    fn a_list_that_begins_anew_hides_nothing_until_it_is_complete() {
        let mut mirror = ObjectStore::default();
        for name in ["gone", "unreadable", "stays"] {
            put(&mut mirror, name, Some("web"), 1);
        }
        tell(&mut mirror, ObjectChange::Restart);
        put(&mut mirror, "stays", Some("web"), 2);
        let (namespace, name) = at("unreadable");
        tell(&mut mirror, ObjectChange::Invalid { namespace, name, reason: String::new() });
        assert_eq!(of(&mirror, "web").len(), 3);
        tell(&mut mirror, ObjectChange::Synced);
        assert_eq!(of(&mirror, "web"), [2, 1], "what did not come again is gone");
    }
}
