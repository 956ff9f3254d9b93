//! Changes of the last hour that are charged alike, by namespace.

use std::collections::BTreeMap;

use crate::types::Time;
use serde::{Deserialize, Serialize};

/// Changes are counted by five minutes. A count is forgotten when all of its five minutes are an hour past, so that no
/// hour has more than is allowed, wherever it begins.
const SLOT_SECONDS: i64 = 300;
const SLOTS_PER_HOUR: i64 = 12;

/// Namespaces that are not counted by name any more, all together, and the most that one of them had. Neither is a name
/// that a namespace can have.
const OTHER_NAMESPACES: &str = "";
const MAX_OF_OTHER_NAMESPACES: &str = "*";

/// So many changes in one slot.
type SlotCount = (i64, u32);

/// Changes of the last hour, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HourlyChanges(BTreeMap<String, Vec<SlotCount>>);

fn slot(at: Time) -> i64 {
    at.as_secs().div_euclid(SLOT_SECONDS)
}

fn within_an_hour(counts: &[SlotCount], now: Time) -> u32 {
    let oldest = slot(now) - SLOTS_PER_HOUR;
    counts
        .iter()
        .filter(|(slot, _)| *slot >= oldest)
        .fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn latest(counts: &[SlotCount]) -> i64 {
    counts.iter().map(|(slot, _)| *slot).max().unwrap_or(i64::MIN)
}

fn is_name(namespace: &str) -> bool {
    !matches!(namespace, OTHER_NAMESPACES | MAX_OF_OTHER_NAMESPACES)
}

impl HourlyChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn exactly_in_namespace(&self, namespace: &str, now: Time) -> u32 {
        self.0.get(namespace).map_or(0, |counts| within_an_hour(counts, now))
    }

    /// Of one namespace. Where some are not counted by name, it may be one of them, and the one with the most.
    pub fn in_namespace(&self, namespace: &str, now: Time) -> u32 {
        self.exactly_in_namespace(namespace, now)
            .saturating_add(self.exactly_in_namespace(MAX_OF_OTHER_NAMESPACES, now))
    }

    /// Of all namespaces.
    pub fn in_cluster(&self, now: Time) -> u32 {
        let counted = self.0.iter().filter(|(namespace, _)| *namespace != MAX_OF_OTHER_NAMESPACES);
        counted.fold(0, |sum, (_, counts)| sum.saturating_add(within_an_hour(counts, now)))
    }

    /// One more.
    pub fn add(&mut self, namespace: &str, at: Time) {
        let counts = self.0.entry(namespace.to_owned()).or_default();
        let slot = slot(at);
        match counts.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((slot, 1)),
        }
    }

    /// Forgets what is longer ago than an hour.
    pub fn expire(&mut self, now: Time) {
        let oldest = slot(now) - SLOTS_PER_HOUR;
        self.0.retain(|_, counts| {
            counts.retain(|(slot, _)| *slot >= oldest);
            !counts.is_empty()
        });
    }

    /// Keeps of each namespace the latest time for all of its changes, so that they count longer than they have to.
    pub fn coarsen(&mut self) {
        for counts in self.0.values_mut() {
            let sum = counts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
            *counts = vec![(latest(counts), sum)];
        }
    }

    /// Counts an eighth of the namespaces without their names: those whose last change is the longest ago. No namespace
    /// gets more than it may by that, and some get less. Returns whether there was any.
    pub fn merge_oldest_namespaces(&mut self) -> bool {
        let mut names: Vec<(i64, String)> = self
            .0
            .iter()
            .filter(|(namespace, _)| is_name(namespace))
            .map(|(namespace, counts)| (latest(counts), namespace.clone()))
            .collect();
        names.sort_unstable();
        names.truncate(names.len().div_ceil(8));
        for (last, name) in &names {
            let counts = self.0.remove(name).unwrap_or_default();
            let sum = counts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
            self.merge_namespace(OTHER_NAMESPACES, *last, |known| known.saturating_add(sum));
            self.merge_namespace(MAX_OF_OTHER_NAMESPACES, *last, |known| known.max(sum));
        }
        !names.is_empty()
    }

    fn merge_namespace(&mut self, name: &str, last: i64, count: impl Fn(u32) -> u32) {
        let counts = self.0.entry(name.to_owned()).or_default();
        let known = counts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        *counts = vec![(latest(counts).max(last), count(known))];
    }
}
