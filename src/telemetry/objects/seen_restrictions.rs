//! Which restrictions of an object have held so far: those have a series, 1 or 0, and the others none. Most never hold, and
//! with ten thousand objects their zeros would be most of what there is.
//!
//! What counts is what a scrape has shown. A restriction that came and went between two scrapes has never been 1 for anybody.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::{Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::types::ObjectKey;

/// The parts of an object, by name, with a bit for each restriction that has held.
type Parts = HashMap<Box<str>, u64>;

/// Of all objects of a kind. Objects and parts of which nothing has held take no room.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct SeenRestrictions(Mutex<BTreeMap<ObjectKey, Parts>>);

/// One page of a scrape: its objects come in the order of their keys.
pub(in crate::telemetry) struct SeenRestrictionsPage<'a> {
    objects: MutexGuard<'a, BTreeMap<ObjectKey, Parts>>,
    seen: Vec<(ObjectKey, Parts)>,
}

impl SeenRestrictions {
    /// Begins a page of a scrape.
    pub fn page(&self) -> SeenRestrictionsPage<'_> {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SeenRestrictionsPage { objects, seen: Vec::new() }
    }
}

impl SeenRestrictionsPage<'_> {
    /// Notes which restrictions of a part hold now, and answers which ones have held so far, these included.
    pub fn record(&mut self, object: &ObjectKey, part: &str, now: u64) -> u64 {
        let before = self.objects.get(object).and_then(|parts| parts.get(part));
        let all = now | before.copied().unwrap_or_default();
        if all == 0 {
            return 0;
        }
        if self.seen.last().is_none_or(|(last, _)| last != object) {
            self.seen.push((object.clone(), Parts::new()));
        }
        if let Some((_, parts)) = self.seen.last_mut() {
            *parts.entry(part.into()).or_default() |= all;
        }
        all
    }

    /// Ends the page of the objects behind `after` up to `next`, or of all behind it. What it did not come by is gone.
    pub fn end(mut self, after: Option<&ObjectKey>, next: Option<&ObjectKey>) {
        let begins = after.map_or(Unbounded, Excluded);
        let ends = next.map_or(Unbounded, Included);
        let is_empty = matches!((after, next), (Some(after), Some(next)) if after >= next);
        if !is_empty {
            let before = self.objects.range::<ObjectKey, _>((begins, ends));
            let before: Vec<ObjectKey> = before.map(|(key, _)| key.clone()).collect();
            for key in &before {
                self.objects.remove(key);
            }
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

    /// One scrape of these objects in pages of two; answers what has held of each.
    fn scrape(held: &SeenRestrictions, objects: &[(&str, &str, u64)]) -> Vec<u64> {
        let mut found = Vec::new();
        let mut after: Option<ObjectKey> = None;
        let mut pages = objects.chunks(2).peekable();
        while let Some(page) = pages.next() {
            let next = pages.peek().and_then(|_| page.last()).map(|(name, ..)| key(name));
            let mut now = held.page();
            found.extend(page.iter().map(|(name, part, bits)| now.record(&key(name), part, *bits)));
            now.end(after.as_ref(), next.as_ref());
            after = next;
        }
        found
    }

    #[test]
    fn what_held_once_is_remembered_until_its_object_or_its_part_is_gone() {
        let held = SeenRestrictions::default();
        let quiet = [("a", "main", 0), ("b", "main", 0), ("c", "main", 0)];
        assert_eq!(scrape(&held, &quiet), [0, 0, 0]);
        assert!(held.page().objects.is_empty(), "nothing is kept of what never held");
        assert_eq!(
            scrape(&held, &[("a", "main", 1), ("b", "main", 2), ("c", "main", 4)]),
            [1, 2, 4]
        );
        assert_eq!(
            scrape(&held, &[("a", "main", 2), ("b", "main", 0), ("c", "main", 0)]),
            [3, 2, 4]
        );
        assert_eq!(scrape(&held, &quiet), [3, 2, 4]);
        // One is gone, another has a container of another name.
        assert_eq!(scrape(&held, &[("a", "main", 0), ("c", "side", 0)]), [3, 0]);
        assert_eq!(scrape(&held, &quiet), [3, 0, 0]);
        assert_eq!(held.page().objects.len(), 1);
    }

    #[test]
    fn two_who_scrape_at_once_forget_nothing() {
        let held = SeenRestrictions::default();
        scrape(&held, &[("a", "main", 1), ("b", "main", 1), ("c", "main", 1)]);
        let mut one = held.page();
        one.record(&key("a"), "main", 0);
        one.end(None, Some(&key("a")));
        assert_eq!(
            scrape(&held, &[("a", "main", 0), ("b", "main", 0), ("c", "main", 0)]),
            [1, 1, 1]
        );
        let mut one = held.page();
        assert_eq!([one.record(&key("b"), "main", 0), one.record(&key("c"), "main", 0)], [1, 1]);
        one.end(Some(&key("a")), None);
        assert_eq!(held.page().objects.len(), 3);
    }
}
