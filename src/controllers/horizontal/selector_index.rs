//! The selectors of the targets of all objects, to find those that select the same pods.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use plimsoll_core::{
    hpa::{Pod, Selector},
    types::ObjectKey,
};

/// The selectors of a namespace by object, and the objects by a label that their selector requires.
#[derive(Debug, Default)]
struct Namespace {
    selectors: BTreeMap<Arc<str>, Arc<Selector>>,
    by_label: HashMap<(String, String), BTreeSet<Arc<str>>>,
    /// Objects whose selector requires no label with one value.
    unindexed: BTreeSet<Arc<str>>,
}

/// Selectors by namespace and object.
#[derive(Debug, Default)]
pub(super) struct SelectorIndex(Mutex<HashMap<Arc<str>, Namespace>>);

impl SelectorIndex {
    /// Sets the selector of an object's target.
    pub fn set(&self, key: &ObjectKey, selector: &Selector) {
        let mut namespaces = self.0.lock();
        let namespace = namespaces.entry(Arc::clone(&key.namespace)).or_default();
        if namespace.selectors.get(&key.name).is_some_and(|stored| **stored == *selector) {
            return;
        }
        namespace.remove(&key.name);
        namespace.insert(Arc::clone(&key.name), selector.clone());
    }

    /// Removes an object whose target has no selector.
    pub fn remove(&self, key: &ObjectKey) {
        if let Some(namespace) = self.0.lock().get_mut(&key.namespace) {
            namespace.remove(&key.name);
        }
    }

    /// Removes all objects but these.
    pub fn retain(&self, keys: &HashSet<ObjectKey>) {
        self.0.lock().retain(|namespace, stored| {
            let is_gone = |name: &&Arc<str>| {
                let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
                !keys.contains(&key)
            };
            let gone: Vec<_> = stored.selectors.keys().filter(is_gone).cloned().collect();
            for name in &gone {
                stored.remove(name);
            }
            !stored.selectors.is_empty()
        });
    }

    pub fn others(&self, key: &ObjectKey, pods: &[Pod]) -> Vec<(String, Selector)> {
        let namespaces = self.0.lock();
        let Some(namespace) = namespaces.get(&key.namespace) else { return Vec::new() };
        let mut found = BTreeMap::new();
        for pod in pods {
            for name in namespace.candidates(pod) {
                if *name == key.name || found.contains_key(name) {
                    continue;
                }
                let selector = namespace.selectors.get(name);
                if let Some(selector) = selector.filter(|selector| selector.matches(&pod.labels)) {
                    found.insert(name, selector);
                }
            }
        }
        found.into_iter().map(|(name, it)| (name.to_string(), Selector::clone(it))).collect()
    }
}

impl Namespace {
    fn insert(&mut self, name: Arc<str>, selector: Selector) {
        let names = match selector.required_label() {
            Some((label, value)) => {
                self.by_label.entry((label.to_owned(), value.to_owned())).or_default()
            }
            None => &mut self.unindexed,
        };
        names.insert(Arc::clone(&name));
        self.selectors.insert(name, Arc::new(selector));
    }

    fn remove(&mut self, name: &Arc<str>) {
        let Some(selector) = self.selectors.remove(name) else { return };
        let Some((label, value)) = selector.required_label() else {
            self.unindexed.remove(name);
            return;
        };
        let key = (label.to_owned(), value.to_owned());
        if let Some(names) = self.by_label.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.by_label.remove(&key);
            }
        }
    }

    /// The objects that may select a pod.
    fn candidates<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Arc<str>> {
        let by_label = pod.labels.iter().filter_map(|(label, value)| {
            // The key is cloned: a tuple of borrowed strings cannot be looked up.
            self.by_label.get(&(label.clone(), value.clone()))
        });
        by_label.flatten().chain(&self.unindexed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Pod {
        let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        Pod { labels: labels.collect(), ..Pod::default() }
    }

    fn selector(text: &str) -> Selector {
        Selector::parse(text).expect(text)
    }

    fn names(index: &SelectorIndex, of: &str, pods: &[Pod]) -> Vec<String> {
        index.others(&ObjectKey::new("shop", of), pods).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn others_are_those_of_the_namespace_that_select_one_of_the_pods() {
        let index = SelectorIndex::default();
        for (namespace, name, text) in [
            ("shop", "web", "app=web"),
            ("shop", "all", "app in (web,api)"),
            ("shop", "canary", "app=web,track=canary"),
            ("shop", "api", "app=api"),
            ("other", "web2", "app=web"),
        ] {
            index.set(&ObjectKey::new(namespace, name), &selector(text));
        }
        let web = [pod(&[("app", "web")])];
        assert_eq!(names(&index, "web", &web), ["all"]);
        let canary = [pod(&[("app", "web")]), pod(&[("app", "web"), ("track", "canary")])];
        assert_eq!(names(&index, "web", &canary), ["all", "canary"]);
        assert_eq!(names(&index, "web", &[]), [""; 0]);
    }

    #[test]
    fn a_changed_selector_replaces_the_old_one_and_deleted_objects_are_forgotten() {
        let index = SelectorIndex::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        let web = [pod(&[("app", "web")])];
        index.set(&key("api"), &selector("app=web"));
        assert_eq!(names(&index, "web", &web), ["api"]);
        index.set(&key("api"), &selector("app=api"));
        assert_eq!(names(&index, "web", &web), [""; 0]);
        index.set(&key("api"), &selector("!track"));
        assert_eq!(names(&index, "web", &web), ["api"]);
        index.retain(&HashSet::from([key("web")]));
        assert_eq!(names(&index, "web", &web), [""; 0]);
        index.set(&key("api"), &selector("app=web"));
        index.remove(&key("api"));
        assert_eq!(names(&index, "web", &web), [""; 0]);
    }
}
