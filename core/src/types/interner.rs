//! Equal values that many objects share, each stored once.

use std::{collections::HashSet, hash::Hash, sync::Arc};

/// Fewer values are not worth pruning.
const MIN_PRUNE_THRESHOLD: usize = 1024;

/// Values that many objects share. Those that no object uses any more are pruned.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The number of values at which unused ones are pruned.
    prune_threshold: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), prune_threshold: MIN_PRUNE_THRESHOLD }
    }
}

impl<T: Eq + Hash + ?Sized> Interner<T> {
    /// The stored value that equals this one, or else this one, which is stored from now on.
    pub fn share(&mut self, value: Arc<T>) -> Arc<T> {
        let stored = self.values.get(&value).cloned();
        stored.unwrap_or_else(|| self.insert(value))
    }

    /// The same for a value that is copied only if it is new.
    pub fn intern<'a>(&mut self, value: &'a T) -> Arc<T>
    where
        Arc<T>: From<&'a T>,
    {
        let stored = self.values.get(value).cloned();
        stored.unwrap_or_else(|| self.insert(value.into()))
    }

    fn insert(&mut self, value: Arc<T>) -> Arc<T> {
        if self.values.len() >= self.prune_threshold {
            self.values.retain(|shared| Arc::strong_count(shared) > 1);
            // Doubling keeps the cost of pruning proportional to the number of added values.
            self.prune_threshold = MIN_PRUNE_THRESHOLD.max(2 * self.values.len());
            self.values.shrink_to(self.prune_threshold);
        }
        self.values.insert(Arc::clone(&value));
        value
    }

    /// The number of stored values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_stored_once() {
        let mut interner = Interner::<str>::default();
        let (first, second) = (interner.share("a".into()), interner.share("a".into()));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &interner.share("b".into())));
        assert!(Arc::ptr_eq(&first, &interner.intern("a")));
        assert_eq!(interner.len(), 2);
    }

    #[test]
    fn values_that_are_not_used_any_more_are_freed() {
        let mut interner = Interner::<str>::default();
        let used: Vec<_> =
            (0..100).map(|number| interner.share(format!("used {number}").into())).collect();
        for number in 0..100_000 {
            interner.share(format!("unused {number}").into());
            assert!(interner.len() <= MIN_PRUNE_THRESHOLD);
        }
        for value in &used {
            assert!(Arc::ptr_eq(value, &interner.share(Arc::from(&**value))));
        }
    }
}
