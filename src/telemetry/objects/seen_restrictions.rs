//! The restrictions of an object that have been active so far. Only those have a series, with value 1 or 0. Most are never
//! active, and with ten thousand objects their zeros would be most of a scrape.
//!
//! Only scrapes count: a restriction that was active only between two scrapes is not recorded, because nothing saw it as 1.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Included, Unbounded},
};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::types::ObjectKey;

/// The parts of an object by name, with one bit for each restriction that has been active.
type Parts = HashMap<Box<str>, u64>;

/// The restrictions of all objects of a kind. Objects and parts without any are not stored.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct SeenRestrictions(Mutex<BTreeMap<ObjectKey, Parts>>);

/// One page of a scrape. Its objects are visited in the order of their keys.
pub(in crate::telemetry) struct SeenRestrictionsPage<'a> {
    objects: MutexGuard<'a, BTreeMap<ObjectKey, Parts>>,
    seen: BTreeMap<ObjectKey, Parts>,
}

impl SeenRestrictions {
    pub fn page(&self) -> SeenRestrictionsPage<'_> {
        let objects = self.0.lock();
        SeenRestrictionsPage { objects, seen: BTreeMap::new() }
    }
}

impl SeenRestrictionsPage<'_> {
    /// Records the active restrictions of a part, and returns all that have been active so far, including these.
    pub fn record(&mut self, object: &ObjectKey, part: &str, now: u64) -> u64 {
        let before = self.objects.get(object).and_then(|parts| parts.get(part));
        let seen = now | before.copied().unwrap_or_default();
        if seen == 0 {
            return 0;
        }
        let parts = self.seen.entry(object.clone()).or_default();
        *parts.entry(part.into()).or_default() |= seen;
        seen
    }

    /// Ends the page of the objects after `after` up to `next`, or to the end. Objects that were not visited are removed.
    pub fn end(mut self, after: Option<&ObjectKey>, next: Option<&ObjectKey>) {
        let start = after.map_or(Unbounded, Excluded);
        let end = next.map_or(Unbounded, Included);
        let is_empty = matches!((after, next), (Some(after), Some(next)) if after >= next);
        if !is_empty {
            self.objects.extract_if((start, end), |_, _| true).for_each(drop);
        }
        self.objects.extend(self.seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("shop", name)
    }

    /// Scrapes these objects in pages of two, and returns the recorded restrictions of each.
    fn scrape(restrictions: &SeenRestrictions, objects: &[(&str, &str, u64)]) -> Vec<u64> {
        let mut found = Vec::new();
        let mut after: Option<ObjectKey> = None;
        let mut pages = objects.chunks(2).peekable();
        while let Some(page) = pages.next() {
            let next = pages.peek().and_then(|_| page.last()).map(|(name, ..)| key(name));
            let mut open_page = restrictions.page();
            found.extend(
                page.iter().map(|(name, part, bits)| open_page.record(&key(name), part, *bits)),
            );
            open_page.end(after.as_ref(), next.as_ref());
            after = next;
        }
        found
    }

    #[test]
    fn an_ended_restriction_is_remembered_until_its_object_or_container_is_gone() {
        let restrictions = SeenRestrictions::default();
        let inactive = [("a", "main", 0), ("b", "main", 0), ("c", "main", 0)];
        assert_eq!(scrape(&restrictions, &inactive), [0, 0, 0]);
        assert!(
            restrictions.page().objects.is_empty(),
            "nothing is stored for restrictions that were never active"
        );
        assert_eq!(
            scrape(&restrictions, &[("a", "main", 1), ("b", "main", 2), ("c", "main", 4)]),
            [1, 2, 4]
        );
        assert_eq!(
            scrape(&restrictions, &[("a", "main", 2), ("b", "main", 0), ("c", "main", 0)]),
            [3, 2, 4]
        );
        assert_eq!(scrape(&restrictions, &inactive), [3, 2, 4]);
        // One object is deleted, another has a container with another name.
        assert_eq!(scrape(&restrictions, &[("a", "main", 0), ("c", "side", 0)]), [3, 0]);
        assert_eq!(scrape(&restrictions, &inactive), [3, 0, 0]);
        assert_eq!(restrictions.page().objects.len(), 1);
    }

    #[test]
    fn concurrent_scrapes_keep_all_restrictions() {
        let restrictions = SeenRestrictions::default();
        scrape(&restrictions, &[("a", "main", 1), ("b", "main", 1), ("c", "main", 1)]);
        let mut page = restrictions.page();
        page.record(&key("a"), "main", 0);
        page.end(None, Some(&key("a")));
        assert_eq!(
            scrape(&restrictions, &[("a", "main", 0), ("b", "main", 0), ("c", "main", 0)]),
            [1, 1, 1]
        );
        let mut page = restrictions.page();
        assert_eq!([page.record(&key("b"), "main", 0), page.record(&key("c"), "main", 0)], [1, 1]);
        page.end(Some(&key("a")), None);
        assert_eq!(restrictions.page().objects.len(), 3);
    }
}
