//! Owns which objects carry which pair of labels, so that whoever has a selector looks at few objects and not at all.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{Labels, Selector};

/// Names of the objects of one namespace, by each pair of their labels. Pairs are kept as numbers: two that meet in one
/// only bring names that the selector then passes over.
#[derive(Debug, Default)]
pub struct LabelIndex(HashMap<u64, Vec<Arc<str>>>);

impl LabelIndex {
    /// Enters an object. `name` is the text that it leaves by.
    pub fn insert(&mut self, name: &Arc<str>, labels: &Labels) {
        for pair in labels.iter().map(label_hash) {
            self.0.entry(pair).or_default().push(Arc::clone(name));
        }
    }

    /// Takes an object out that was entered with these labels.
    pub fn remove(&mut self, name: &Arc<str>, labels: &Labels) {
        for pair in labels.iter().map(label_hash) {
            // The name in here is the very one that the object is known by, so nothing is compared by letter.
            remove_name(&mut self.0, pair, |known| Arc::ptr_eq(known, name));
        }
    }

    /// Takes many objects out at once. [`Self::leave`] searches a list for each of them; this goes through each list once.
    pub fn remove_all<'a>(&mut self, gone: impl IntoIterator<Item = (&'a Arc<str>, &'a Labels)>) {
        let (mut names, mut pairs) = (HashSet::new(), HashSet::new());
        for (name, labels) in gone {
            names.insert(Arc::as_ptr(name).cast::<u8>());
            pairs.extend(labels.iter().map(label_hash));
        }
        for pair in pairs {
            let Some(of) = self.0.get_mut(&pair) else { continue };
            of.retain(|name| !names.contains(&Arc::as_ptr(name).cast::<u8>()));
            if of.is_empty() {
                self.0.remove(&pair);
            }
        }
    }

    /// Names among which all are that a selector means: those with the rarest pair that it insists on. `None` where it
    /// insists on none, and only a look at everybody tells.
    pub fn candidates(&self, selector: &Selector) -> Option<&[Arc<str>]> {
        let all = selector.required_labels().map(|pair| self.0.get(&label_hash(pair)));
        all.map(|names| names.map_or(&[][..], Vec::as_slice)).min_by_key(|names| names.len())
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What stands for a pair in an index.
pub fn label_hash(pair: (&str, &str)) -> u64 {
    let mut hasher = DefaultHasher::new();
    pair.hash(&mut hasher);
    hasher.finish()
}

/// Takes one name out of those with a pair.
pub fn remove_name<S: BuildHasher>(
    names: &mut HashMap<u64, Vec<Arc<str>>, S>,
    pair: u64,
    is_it: impl Fn(&Arc<str>) -> bool,
) {
    let Some(of) = names.get_mut(&pair) else { return };
    if let Some(index) = of.iter().position(is_it) {
        of.swap_remove(index);
    }
    if of.is_empty() {
        names.remove(&pair);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        Labels::from(pairs.iter().map(owned).collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn the_rarest_pair_that_a_selector_insists_on_is_looked_at() {
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
        assert_eq!(count(&index, "app,track!=canary"), None, "it insists on no pair");
        let first: Vec<Labels> = (0..5).map(of).collect();
        index.remove_all(names.iter().zip(&first));
        assert_eq!(count(&index, "app=web"), Some(4));
        assert_eq!(count(&index, "app=web,track=canary"), Some(0));
        for (number, name) in names.iter().enumerate().skip(5) {
            index.remove(name, &of(number));
        }
        assert!(index.is_empty());
    }
}
