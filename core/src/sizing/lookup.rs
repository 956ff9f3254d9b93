//! Lookup by key in constant time, because users choose the number of containers, policies and recommendations.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// Up to this many pairs are searched linearly, without allocating.
const LINEAR_SEARCH_MAX: usize = 16;

/// The first value for each key.
#[derive(Debug)]
pub(super) enum Lookup<K, V> {
    /// Too few pairs to be worth a hash map.
    Linear,
    Indexed(HashMap<K, V>),
}

impl<K: Eq + Hash, V: Copy> Lookup<K, V> {
    /// Indexes `pairs`. `count` is an upper bound of their number.
    pub fn new(count: usize, pairs: impl Iterator<Item = (K, V)>) -> Self {
        if count <= LINEAR_SEARCH_MAX {
            return Self::Linear;
        }
        let mut table = HashMap::with_capacity(count);
        for (key, value) in pairs {
            table.entry(key).or_insert(value);
        }
        Self::Indexed(table)
    }

    /// Returns the first value with this key. `pairs` must be the same as in [`Self::new`].
    pub fn get<Q>(&self, key: &Q, mut pairs: impl Iterator<Item = (K, V)>) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self {
            Self::Linear => pairs.find(|(known, _)| known.borrow() == key).map(|(_, value)| value),
            Self::Indexed(table) => table.get(key).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_equal_keys_is_found_in_short_and_long_lists() {
        for count in [3, 2 * LINEAR_SEARCH_MAX] {
            let pairs = || (0..count).map(|index| (index % 2, index));
            let lookup = Lookup::new(count, pairs());
            assert_eq!(matches!(lookup, Lookup::Indexed(_)), count > LINEAR_SEARCH_MAX);
            assert_eq!([0, 1, 2].map(|key| lookup.get(&key, pairs())), [Some(0), Some(1), None]);
        }
    }
}
