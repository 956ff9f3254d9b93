//! The labels or annotations of an object, for the many that are in memory at once: a map has room for eleven entries as
//! soon as it has one.

use std::sync::Arc;

/// Labels or annotations, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        found.ok().map(|index| &*self.0[index].1)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of several values of a name the last one counts.
impl<N: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(N, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(labels: T) -> Self {
        let labels = labels.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut labels: Vec<(Arc<str>, Arc<str>)> = labels.collect();
        labels.reverse();
        labels.sort_by(|(one, _), (other, _)| one.cmp(other));
        labels.dedup_by(|(one, _), (other, _)| one == other);
        Self(labels.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_the_last_one_counts() {
        let labels: Labels =
            [("team", "web"), ("app", "shop"), ("team", "data")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("app", "shop"), ("team", "data")]);
        assert_eq!((labels.get("team"), labels.get("tea")), (Some("data"), None));
        assert!(Labels::default().is_empty() && !labels.is_empty());
    }
}
