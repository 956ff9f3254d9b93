//! Objects of one kind from a watch.

use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

use kube::{Resource, ResourceExt as _};
use plimsoll_core::types::ObjectKey;

use crate::cluster::watch::ObjectChange;

/// The objects of a kind, ordered by key. After a restarted watch, stored objects stay until the new list is complete:
/// then those that it did not contain are removed.
#[derive(Debug)]
pub struct ObjectStore<K, T> {
    objects: BTreeMap<K, Entry<T>>,
    list: u32,
    is_synced: bool,
}

#[derive(Debug)]
struct Entry<T> {
    object: T,
    /// The last list that contained the object, or that was current when it was stored.
    list: u32,
}

impl<K, T> Default for ObjectStore<K, T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), list: 0, is_synced: false }
    }
}

impl<K: Ord, T> ObjectStore<K, T> {
    /// Applies a change of a watch: of an object's key and the fields to store, `None` if it is not to be stored. `key_of`
    /// builds the key from namespace and name. Returns what was removed or replaced.
    pub fn apply(
        &mut self,
        change: ObjectChange<(K, Option<T>)>,
        key_of: impl FnOnce(&str, &str) -> K,
    ) -> Vec<(K, T)> {
        let removed = match change {
            ObjectChange::Restart => {
                self.restart();
                None
            }
            ObjectChange::Applied((key, Some(object))) => self.put(key, object),
            ObjectChange::Applied((key, None)) => self.remove(&key),
            ObjectChange::Invalid { namespace, name, .. } => {
                self.keep(&key_of(&namespace, &name));
                None
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.remove(&key_of(&namespace, &name))
            }
            ObjectChange::Synced => return self.finish_list(),
        };
        removed.into_iter().collect()
    }

    /// A list begins: objects that are not put or kept before [`Self::finish_list`] are gone.
    pub fn restart(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Stores an object. Returns the key and the object that it replaces.
    pub fn put(&mut self, key: K, object: T) -> Option<(K, T)> {
        let replaced = self.remove(&key);
        self.objects.insert(key, Entry { object, list: self.list });
        replaced
    }

    /// The object exists. Returns its stored fields.
    pub fn keep<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
    {
        let entry = self.objects.get_mut(key)?;
        entry.list = self.list;
        Some(&mut entry.object)
    }

    /// The object was deleted. Returns what was stored of it.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, T)>
    where
        K: Borrow<Q>,
    {
        self.objects.remove_entry(key).map(|(key, entry)| (key, entry.object))
    }

    /// The list is complete. Removes and returns the objects that it did not contain.
    pub fn finish_list(&mut self) -> Vec<(K, T)> {
        self.is_synced = true;
        let list = self.list;
        let gone = self.objects.extract_if(.., |_, entry| entry.list != list);
        gone.map(|(key, entry)| (key, entry.object)).collect()
    }

    /// Whether a list has ever been complete.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Whether the current list contained the object, or it was stored since.
    pub fn is_listed<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.objects.get(key).is_some_and(|entry| entry.list == self.list)
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
    {
        self.objects.get(key).map(|entry| &entry.object)
    }

    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &T)>
    where
        K: Borrow<Q>,
    {
        self.objects.get_key_value(key).map(|(key, entry)| (key, &entry.object))
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
    {
        self.objects.get_mut(key).map(|entry| &mut entry.object)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.objects.iter().map(|(key, entry)| (key, &entry.object))
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl<T> ObjectStore<ObjectKey, T> {
    /// Applies a change of a watch of namespaced objects. `read` extracts the fields to store.
    pub fn apply_object<O: Resource>(
        &mut self,
        change: ObjectChange<O>,
        read: impl FnOnce(O) -> T,
    ) -> Vec<(ObjectKey, T)> {
        let change = change.map(|object| {
            let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
            (key, Some(read(object)))
        });
        self.apply(change, |namespace, name| ObjectKey::new(namespace, name))
    }

    /// The objects of a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &T> {
        let from = self.objects.range(ObjectKey::new(namespace, "")..);
        let stored = from.take_while(move |(key, _)| *key.namespace == *namespace);
        stored.map(|(_, entry)| &entry.object)
    }

    /// The namespaces that have objects, sorted. Searches once per namespace, whatever the number of objects.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let mut namespaces = Vec::new();
        let mut next = self.objects.first_key_value();
        while let Some((key, _)) = next {
            namespaces.push(Arc::clone(&key.namespace));
            // No namespace is between the two.
            let after = ObjectKey::new([&*key.namespace, "\0"].concat(), "");
            next = self.objects.range(after..).next();
        }
        namespaces
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    type Store = ObjectStore<ObjectKey, u8>;

    fn put(store: &mut Store, (namespace, name): (&str, &str), value: u8) -> Vec<u8> {
        let mut object = ConfigMap::default();
        (object.metadata.namespace, object.metadata.name) =
            (Some(namespace.into()), Some(name.into()));
        removed(store.apply_object(ObjectChange::Applied(object), |_| value))
    }

    fn apply(store: &mut Store, change: ObjectChange<ConfigMap>) -> Vec<u8> {
        removed(store.apply_object(change, |_| unreachable!("this change has no object")))
    }

    fn removed(objects: Vec<(ObjectKey, u8)>) -> Vec<u8> {
        objects.into_iter().map(|(_, value)| value).collect()
    }

    fn stored(store: &Store, namespace: &str) -> Vec<u8> {
        store.in_namespace(namespace).copied().collect()
    }

    #[test]
    fn objects_are_found_by_namespace_in_the_order_of_their_names() {
        let mut store = Store::default();
        for (at, value) in [(("n", "b"), 1), (("n", "a"), 2), (("m", "z"), 3), (("n-2", "a"), 4)] {
            assert!(put(&mut store, at, value).is_empty());
        }
        assert_eq!(put(&mut store, ("n", "a"), 5), [2], "the replaced object");
        assert_eq!((stored(&store, "n"), stored(&store, "k")), (vec![5, 1], vec![]));
        assert_eq!(store.namespaces(), ["m".into(), "n".into(), "n-2".into()]);
        let (namespace, name) = ("n".to_owned(), "a".to_owned());
        assert_eq!(apply(&mut store, ObjectChange::Deleted { namespace, name, uid: None }), [5]);
        assert_eq!((stored(&store, "n"), store.len()), (vec![1], 3));
        let key = ObjectKey::new("n", "b");
        let no_longer_stored = ObjectChange::Applied((key.clone(), None));
        assert_eq!(store.apply(no_longer_stored, |_, _| unreachable!()), [(key, 1)]);
    }

    #[test]
    fn a_restarted_list_hides_nothing_until_it_is_complete() {
        let mut store = Store::default();
        let key = |name: &str| ObjectKey::new("n", name);
        assert!(apply(&mut store, ObjectChange::Restart).is_empty());
        for (name, value) in [("gone", 1), ("stays", 2), ("unreadable", 3)] {
            put(&mut store, ("n", name), value);
        }
        assert!(!store.is_synced());
        assert!(apply(&mut store, ObjectChange::Synced).is_empty());
        assert!(store.is_synced());
        // The first of the two lists is interrupted.
        for _ in 0..2 {
            apply(&mut store, ObjectChange::Restart);
            assert!(!store.is_listed(&key("stays")));
            assert_eq!(put(&mut store, ("n", "stays"), 2), [2]);
            assert!(store.is_listed(&key("stays")) && store.is_synced());
        }
        let (namespace, name) = ("n".to_owned(), "unreadable".to_owned());
        let invalid = ObjectChange::Invalid { namespace, name, reason: String::new() };
        assert!(apply(&mut store, invalid).is_empty());
        assert_eq!(stored(&store, "n"), [1, 2, 3]);
        assert_eq!(apply(&mut store, ObjectChange::Synced), [1], "the list did not contain it");
        assert_eq!(stored(&store, "n"), [2, 3]);
    }
}
