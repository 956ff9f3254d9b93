//! Lookup by key in logarithmic time, because users choose the number of containers, policies and recommendations.

use std::collections::BTreeMap;

/// Returns the first value of each key.
pub(super) fn first_by_key<K: Ord, V>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut first = BTreeMap::new();
    for (key, value) in pairs {
        first.entry(key).or_insert(value);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_equal_keys_is_found() {
        let first = first_by_key((0..6).map(|index| (index % 2, index)));
        assert_eq!([0, 1, 2].map(|key| first.get(&key).copied()), [Some(0), Some(1), None]);
    }
}
