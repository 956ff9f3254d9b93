//! The labels of an object as compact text.

use std::{borrow::Borrow, collections::BTreeMap, fmt, sync::Arc};

use plimsoll_core::types::interner::Interner;

/// Separates keys and values: no label of the API contains it.
const SEPARATOR: char = '\0';

/// The labels of one object, sorted, in one allocation that clones share.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<str>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| *candidate == key).map(|(_, value)| value)
    }

    /// Key and value of each label, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split_terminator(SEPARATOR);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The same labels, in an allocation that all objects with equal labels share.
    pub(crate) fn shared(self, interner: &mut Interner<str>) -> Self {
        Self(interner.share(self.0))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<M: Borrow<BTreeMap<String, String>>> From<M> for Labels {
    fn from(labels: M) -> Self {
        let mut text = String::new();
        for (key, value) in labels.borrow() {
            // The API allows no such labels; one would shift all labels after it.
            if !key.contains(SEPARATOR) && !value.contains(SEPARATOR) {
                text.extend([key.as_str(), "\0", value.as_str(), "\0"]);
            }
        }
        Self(text.into())
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self("".into())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn labels(pairs: &[(&str, &str)]) -> Labels {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        Labels::from(pairs.iter().map(owned).collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn labels_are_found_by_key() {
        let pod = labels(&[("b", ""), ("a", "1"), ("c", "3")]);
        assert_eq!(pod.iter().collect::<Vec<_>>(), [("a", "1"), ("b", ""), ("c", "3")]);
        assert_eq!((pod.get("b"), pod.get("c"), pod.get("1")), (Some(""), Some("3"), None));
        assert!(Labels::default().is_empty() && labels(&[]).get("").is_none());
    }
}
