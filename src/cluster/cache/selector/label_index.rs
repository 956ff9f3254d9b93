//! Indexes objects by label, so that a lookup by selector does not visit all objects.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{Labels, Selector};

/// Names of the objects of one namespace, by each of their labels. Labels are stored as hashes: on a collision the
/// candidates include objects that the selector then filters out.
#[derive(Debug, Default)]
pub struct LabelIndex(HashMap<u64, Vec<Arc<str>>>);

impl LabelIndex {
    /// Adds an object. Remove it with the same `name`.
    pub fn insert(&mut self, name: &Arc<str>, labels: &Labels) {
        for pair in labels.iter().map(label_hash) {
            self.0.entry(pair).or_default().push(Arc::clone(name));
        }
    }

    pub fn remove(&mut self, name: &Arc<str>, labels: &Labels) {
        for pair in labels.iter().map(label_hash) {
            // The index shares the allocation of the name, so comparing pointers is enough.
            remove_name(&mut self.0, pair, |candidate| Arc::ptr_eq(candidate, name));
        }
    }

    /// Removes many objects at once. [`Self::remove`] searches a list for each of them; this scans each list once.
    pub fn remove_all<'a>(&mut self, gone: impl IntoIterator<Item = (&'a Arc<str>, &'a Labels)>) {
        let (mut pointers, mut pairs) = (HashSet::new(), HashSet::new());
        for (name, labels) in gone {
            pointers.insert(Arc::as_ptr(name).cast::<u8>());
            pairs.extend(labels.iter().map(label_hash));
        }
        for pair in pairs {
            let Some(names) = self.0.get_mut(&pair) else { continue };
            names.retain(|name| !pointers.contains(&Arc::as_ptr(name).cast::<u8>()));
            if names.is_empty() {
                self.0.remove(&pair);
            }
        }
    }

    /// A superset of the names that match the selector: those with its rarest required label. `None` if it requires no
    /// label: then scan all objects.
    pub fn candidates(&self, selector: &Selector) -> Option<&[Arc<str>]> {
        let by_label = selector.required_labels().map(|pair| self.0.get(&label_hash(pair)));
        by_label.map(|names| names.map_or(&[][..], Vec::as_slice)).min_by_key(|names| names.len())
    }
}

pub fn label_hash(pair: (&str, &str)) -> u64 {
    let mut hasher = DefaultHasher::new();
    pair.hash(&mut hasher);
    hasher.finish()
}

pub fn remove_name<S: BuildHasher>(
    index: &mut HashMap<u64, Vec<Arc<str>>, S>,
    pair: u64,
    is_name: impl Fn(&Arc<str>) -> bool,
) {
    let Some(names) = index.get_mut(&pair) else { return };
    if let Some(position) = names.iter().position(is_name) {
        names.swap_remove(position);
    }
    if names.is_empty() {
        index.remove(&pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::cache::selector::labels::tests::labels;

    #[test]
    fn the_rarest_required_label_is_searched() {
        let mut index = LabelIndex::default();
        let names: Vec<Arc<str>> = (0..9).map(|number| format!("web-{number}").into()).collect();
        let of = |number: usize| {
            let track = if number == 4 { "canary" } else { "stable" };
            labels(&[("app", "web"), ("track", track)])
        };
        for (number, name) in names.iter().enumerate() {
            index.insert(name, &of(number));
        }
        let count = |index: &LabelIndex, text: &str| {
            index.candidates(&Selector::parse(text).expect("a selector")).map(<[_]>::len)
        };
        assert_eq!(count(&index, "app=web"), Some(9));
        assert_eq!(count(&index, "app=web,track=canary"), Some(1));
        assert_eq!(count(&index, "app=web,track=unknown"), Some(0));
        assert_eq!(count(&index, "app,track!=canary"), None, "it requires no label");
        let first: Vec<Labels> = (0..5).map(of).collect();
        index.remove_all(names.iter().zip(&first));
        assert_eq!(count(&index, "app=web"), Some(4));
        assert_eq!(count(&index, "app=web,track=canary"), Some(0));
        for (number, name) in names.iter().enumerate().skip(5) {
            index.remove(name, &of(number));
        }
        assert!(index.0.is_empty());
    }
}
