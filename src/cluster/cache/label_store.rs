//! Objects of one kind from a watch, looked up by selector: a lookup costs by its result, not by the number of objects.

use std::{collections::HashMap, sync::Arc};

use super::{
    object_store::ObjectStore,
    selector::{LabelIndex, Labels, Selector},
};
use crate::cluster::watch::ObjectChange;

pub trait HasLabels {
    fn labels(&self) -> &Labels;
}

/// The objects of a kind, in an [`ObjectStore`] for each namespace.
#[derive(Debug)]
pub struct LabelStore<T> {
    namespaces: HashMap<Box<str>, Namespace<T>>,
    count: usize,
}

#[derive(Debug)]
struct Namespace<T> {
    objects: ObjectStore<Arc<str>, T>,
    by_label: LabelIndex,
}

impl<T> Default for LabelStore<T> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), count: 0 }
    }
}

impl<T> Default for Namespace<T> {
    fn default() -> Self {
        Self { objects: ObjectStore::default(), by_label: LabelIndex::default() }
    }
}

impl<T: HasLabels> LabelStore<T> {
    /// Applies a change of a watch: of an object's namespace, its name, and the fields to store.
    pub fn apply(&mut self, change: ObjectChange<(String, Arc<str>, T)>) {
        match change {
            ObjectChange::Restart => {
                self.namespaces.values_mut().for_each(|stored| stored.objects.restart());
            }
            ObjectChange::Applied((namespace, name, object)) => self.put(namespace, name, object),
            ObjectChange::Invalid { namespace, name, .. } => {
                let stored = self.namespaces.get_mut(&*namespace);
                stored.and_then(|stored| stored.objects.keep(&*name));
            }
            ObjectChange::Deleted { namespace, name, .. } => self.remove(&namespace, &name),
            ObjectChange::Synced => self.finish_list(),
        }
    }

    fn put(&mut self, namespace: String, name: Arc<str>, object: T) {
        let Namespace { objects, by_label } = self.namespaces.entry(namespace.into()).or_default();
        // The status of an object changes all the time, its labels hardly ever.
        if let Some(stored) = objects.keep(&*name)
            && stored.labels() == object.labels()
        {
            *stored = object;
            return;
        }
        by_label.insert(&name, object.labels());
        match objects.put(name, object) {
            Some((name, old)) => by_label.remove(&name, old.labels()),
            None => self.count += 1,
        }
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some(stored) = self.namespaces.get_mut(namespace) else { return };
        let Some((name, object)) = stored.objects.remove(name) else { return };
        stored.by_label.remove(&name, object.labels());
        self.count -= 1;
        if stored.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    fn finish_list(&mut self) {
        self.namespaces.retain(|_, Namespace { objects, by_label }| {
            let gone = objects.finish_list();
            by_label.remove_all(gone.iter().map(|(name, object)| (name, object.labels())));
            self.count -= gone.len();
            !objects.is_empty()
        });
    }

    /// Maps `take` over the objects of a namespace that match a selector, ordered by name.
    pub fn find<R>(
        &self,
        namespace: &str,
        selector: &Selector,
        take: impl FnMut(&T) -> R,
    ) -> Vec<R> {
        let Some(stored) = self.namespaces.get(namespace) else { return Vec::new() };
        let is_match = |object: &&T| selector.matches(object.labels());
        let Some(candidates) = stored.by_label.candidates(selector) else {
            let objects = stored.objects.iter().map(|(_, object)| object);
            return objects.filter(is_match).map(take).collect();
        };
        let mut names: Vec<&Arc<str>> = candidates.iter().collect();
        names.sort_unstable();
        // Two labels with the same hash yield a name twice.
        names.dedup();
        let found = names.into_iter().filter_map(|name| stored.objects.get(name));
        found.filter(is_match).map(take).collect()
    }

    pub const fn len(&self) -> usize {
        self.count
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::cache::selector::labels::tests::labels;

    #[derive(Clone, Debug)]
    struct Object(Arc<str>, Labels);

    impl HasLabels for Object {
        fn labels(&self) -> &Labels {
            &self.1
        }
    }

    fn put(objects: &mut LabelStore<Object>, name: &str, pairs: &[(&str, &str)]) {
        let name = Arc::<str>::from(name);
        let object = Object(Arc::clone(&name), labels(pairs));
        objects.apply(ObjectChange::Applied(("n".into(), name, object)));
    }

    fn found(objects: &LabelStore<Object>, text: &str) -> Vec<String> {
        let selector = Selector::parse(text).expect("a selector");
        objects.find("n", &selector, |object| object.0.to_string())
    }

    #[test]
    fn objects_that_a_new_list_does_not_contain_leave_the_label_index() {
        let mut objects = LabelStore::default();
        for name in ["gone", "unreadable", "stays"] {
            put(&mut objects, name, &[("app", "web")]);
        }
        objects.apply(ObjectChange::Restart);
        put(&mut objects, "stays", &[("app", "web")]);
        let (namespace, name) = ("n".to_owned(), "unreadable".to_owned());
        objects.apply(ObjectChange::Invalid { namespace, name, reason: String::new() });
        assert_eq!(found(&objects, "app=web").len(), 3);
        objects.apply(ObjectChange::Synced);
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
                    plain.insert(name, labels(pairs));
                } else {
                    plain.remove(&name);
                    objects.apply(ObjectChange::Deleted { namespace: "n".into(), name, uid: None });
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
