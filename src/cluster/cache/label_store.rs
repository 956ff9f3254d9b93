//! Objects of one kind from a watch, looked up by selector: a lookup costs by its result, not by the number of objects.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::selector::{LabelIndex, Labels, Selector};
use crate::cluster::watch::ObjectChange;

/// An object with labels.
pub trait HasLabels {
    /// All labels of the object.
    fn labels(&self) -> &Labels;
}

/// The objects of a kind. After a restarted watch, stored objects stay until the new list is complete.
#[derive(Debug)]
pub struct LabelStore<T> {
    namespaces: HashMap<Box<str>, Namespace<T>>,
    /// The number of the current list.
    list: u32,
    count: usize,
}

#[derive(Debug)]
struct Namespace<T> {
    objects: BTreeMap<Arc<str>, Entry<T>>,
    by_label: LabelIndex,
}

#[derive(Debug)]
struct Entry<T> {
    object: T,
    list: u32,
}

/// An object to be stored.
#[derive(Clone, Debug)]
pub struct LabelledObject<T> {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: Arc<str>,
    /// The fields to store.
    pub object: T,
}

impl<T> Default for LabelStore<T> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), list: 0, count: 0 }
    }
}

impl<T> Default for Namespace<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), by_label: LabelIndex::default() }
    }
}

impl<T: HasLabels> LabelStore<T> {
    /// Applies a change of a watch; `read` extracts the fields to store.
    pub fn apply<O>(&mut self, change: ObjectChange<O>, read: impl FnOnce(O) -> LabelledObject<T>) {
        match change {
            ObjectChange::Restart => self.list = self.list.wrapping_add(1),
            ObjectChange::Applied(object) => self.put(read(object)),
            ObjectChange::Invalid { namespace, name, .. } => {
                let stored = self.namespaces.get_mut(&*namespace);
                if let Some(entry) = stored.and_then(|stored| stored.objects.get_mut(&*name)) {
                    entry.list = self.list;
                }
            }
            ObjectChange::Deleted { namespace, name, .. } => self.remove(&namespace, &name),
            ObjectChange::Synced => self.sweep(),
        }
    }

    fn put(&mut self, labelled: LabelledObject<T>) {
        let LabelledObject { namespace, name, object } = labelled;
        let list = self.list;
        let stored = self.namespaces.entry(namespace.into()).or_default();
        // The status of an object changes all the time, its labels hardly ever.
        if let Some(entry) = stored.objects.get_mut(&*name)
            && entry.object.labels() == object.labels()
        {
            *entry = Entry { object, list };
            return;
        }
        if let Some((old_name, entry)) = stored.objects.remove_entry(&*name) {
            stored.by_label.remove(&old_name, entry.object.labels());
            self.count -= 1;
        }
        stored.by_label.insert(&name, object.labels());
        stored.objects.insert(name, Entry { object, list });
        self.count += 1;
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some(stored) = self.namespaces.get_mut(namespace) else { return };
        let Some((name, entry)) = stored.objects.remove_entry(name) else { return };
        stored.by_label.remove(&name, entry.object.labels());
        self.count -= 1;
        if stored.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// The list is complete: objects that it did not contain are gone.
    fn sweep(&mut self) {
        let (list, mut remaining) = (self.list, 0);
        self.namespaces.retain(|_, stored| {
            let Namespace { objects, by_label } = stored;
            let gone = objects.iter().filter(|(_, entry)| entry.list != list);
            by_label.remove_all(gone.map(|(name, entry)| (name, entry.object.labels())));
            objects.retain(|_, entry| entry.list == list);
            remaining += objects.len();
            !objects.is_empty()
        });
        self.count = remaining;
    }

    /// Maps `take` over the objects of a namespace that match a selector, ordered by name.
    pub fn find<R>(
        &self,
        namespace: &str,
        selector: &Selector,
        mut take: impl FnMut(&T) -> R,
    ) -> Vec<R> {
        let Some(stored) = self.namespaces.get(namespace) else { return Vec::new() };
        let is_match = |entry: &&Entry<T>| selector.matches(entry.object.labels());
        let Some(candidates) = stored.by_label.candidates(selector) else {
            let matching = stored.objects.values().filter(is_match);
            return matching.map(|entry| take(&entry.object)).collect();
        };
        let mut names: Vec<&Arc<str>> = candidates.iter().collect();
        names.sort_unstable();
        // Two labels with the same hash yield a name twice.
        names.dedup();
        let found = names.into_iter().filter_map(|name| stored.objects.get(name)).filter(is_match);
        found.map(|entry| take(&entry.object)).collect()
    }

    /// The number of objects.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the store is empty.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    struct Object(Arc<str>, Labels);

    impl HasLabels for Object {
        fn labels(&self) -> &Labels {
            &self.1
        }
    }

    fn put(objects: &mut LabelStore<Object>, name: &str, pairs: &[(&str, &str)]) {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        let labels = Labels::from(pairs.iter().map(owned).collect::<BTreeMap<_, _>>());
        let name = Arc::<str>::from(name);
        let object = Object(Arc::clone(&name), labels);
        let arrived = LabelledObject { namespace: "n".into(), name, object };
        objects.apply(ObjectChange::Applied(()), |()| arrived);
    }

    fn tell(objects: &mut LabelStore<Object>, change: ObjectChange<()>) {
        objects.apply(change, |()| unreachable!("this change has no object"));
    }

    fn found(objects: &LabelStore<Object>, text: &str) -> Vec<String> {
        let selector = Selector::parse(text).expect("a selector");
        objects.find("n", &selector, |object| object.0.to_string())
    }

    #[test]
    fn objects_are_found_by_their_current_labels_in_order_of_names() {
        let mut objects = LabelStore::default();
        put(&mut objects, "b", &[("app", "web")]);
        put(&mut objects, "a", &[("app", "web"), ("track", "canary")]);
        put(&mut objects, "c", &[("app", "api")]);
        assert_eq!(found(&objects, "app=web"), ["a", "b"]);
        assert_eq!(found(&objects, "app=web,track!=canary"), ["b"]);
        assert_eq!(
            found(&objects, "app in (api,web)"),
            ["a", "b", "c"],
            "all objects are candidates"
        );
        put(&mut objects, "b", &[("app", "api")]);
        assert_eq!((found(&objects, "app=web"), objects.len()), (vec!["a".to_owned()], 3));
        let gone = ObjectChange::Deleted { namespace: "n".into(), name: "a".into(), uid: None };
        tell(&mut objects, gone);
        assert!(found(&objects, "app=web").is_empty() && objects.len() == 2);
        assert!(objects.find("other", &Selector::everything(), |_| ()).is_empty());
    }

    #[test]
    fn a_restarted_list_hides_nothing_until_it_is_complete() {
        let mut objects = LabelStore::default();
        for name in ["gone", "unreadable", "stays"] {
            put(&mut objects, name, &[("app", "web")]);
        }
        tell(&mut objects, ObjectChange::Restart);
        put(&mut objects, "stays", &[("app", "web")]);
        let (namespace, name) = ("n".to_owned(), "unreadable".to_owned());
        tell(&mut objects, ObjectChange::Invalid { namespace, name, reason: String::new() });
        assert_eq!(found(&objects, "app=web").len(), 3);
        tell(&mut objects, ObjectChange::Synced);
        assert_eq!(found(&objects, "app=web"), ["stays", "unreadable"]);
        assert_eq!(objects.len(), 2);
    }

    proptest! {
        #[test]
        fn the_index_finds_the_same_as_a_full_scan(
            steps in prop::collection::vec((0_usize..6, 0_usize..4, 0_usize..3, any::<bool>()), 1..60),
            text in prop_oneof![
                Just("a=0"), Just("a=1,b=2"), Just("a=2,b!=0"), Just("a"), Just("!a"), Just("b in (0,1)"),
            ],
        ) {
            let (mut objects, mut plain) = (LabelStore::default(), BTreeMap::new());
            for (name, a, b, stays) in steps {
                let (name, values) = (format!("o{name}"), ["0", "1", "2", "3"]);
                if stays {
                    // The last value of `a` means no label.
                    let pairs = [("b", values[b]), ("a", values[a])];
                    let pairs = &pairs[..if a == 3 { 1 } else { 2 }];
                    put(&mut objects, &name, pairs);
                    let owned = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
                    plain.insert(name, Labels::from(owned.collect::<BTreeMap<_, _>>()));
                } else {
                    plain.remove(&name);
                    tell(&mut objects, ObjectChange::Deleted { namespace: "n".into(), name, uid: None });
                }
            }
            let selector = Selector::parse(text).expect("a selector");
            let meant = plain.iter().filter(|(_, labels)| selector.matches(labels));
            let meant: Vec<String> = meant.map(|(name, _)| name.clone()).collect();
            prop_assert_eq!(found(&objects, text), meant);
            prop_assert_eq!(objects.len(), plain.len());
        }
    }
}
