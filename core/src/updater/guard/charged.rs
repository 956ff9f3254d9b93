//! Changes of the last hour that are charged alike, by namespace.

use std::collections::BTreeMap;

use crate::types::Time;
use serde::{Deserialize, Serialize};

/// Changes are counted by five minutes. A count is forgotten when all of its five minutes are an hour past, so that no
/// hour has more than is allowed, wherever it begins.
const SLOT: i64 = 300;
const SLOTS: i64 = 12;

/// Namespaces that are not counted by name any more, all together, and the most that one of them had. Neither is a name
/// that a namespace can have.
const OTHERS: &str = "";
const MOST_OF_OTHERS: &str = "*";

/// So many changes in one slot.
type Count = (i64, u32);

/// Changes of the last hour, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Charged(BTreeMap<String, Vec<Count>>);

fn slot(at: Time) -> i64 {
    at.as_secs().div_euclid(SLOT)
}

fn within_an_hour(counts: &[Count], now: Time) -> u32 {
    let oldest = slot(now) - SLOTS;
    counts
        .iter()
        .filter(|(slot, _)| *slot >= oldest)
        .fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn latest(counts: &[Count]) -> i64 {
    counts.iter().map(|(slot, _)| *slot).max().unwrap_or(i64::MIN)
}

fn is_name(namespace: &str) -> bool {
    !matches!(namespace, OTHERS | MOST_OF_OTHERS)
}

impl Charged {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, namespace: &str, now: Time) -> u32 {
        self.0.get(namespace).map_or(0, |counts| within_an_hour(counts, now))
    }

    /// Of one namespace. Where some are not counted by name, it may be one of them, and the one with the most.
    pub fn in_namespace(&self, namespace: &str, now: Time) -> u32 {
        self.of(namespace, now).saturating_add(self.of(MOST_OF_OTHERS, now))
    }

    /// Of all namespaces.
    pub fn in_cluster(&self, now: Time) -> u32 {
        let counted = self.0.iter().filter(|(namespace, _)| *namespace != MOST_OF_OTHERS);
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
    pub fn forget(&mut self, now: Time) {
        let oldest = slot(now) - SLOTS;
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
    pub fn fold(&mut self) -> bool {
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
            self.fold_into(OTHERS, *last, |known| known.saturating_add(sum));
            self.fold_into(MOST_OF_OTHERS, *last, |known| known.max(sum));
        }
        !names.is_empty()
    }

    fn fold_into(&mut self, name: &str, last: i64, count: impl Fn(u32) -> u32) {
        let counts = self.0.entry(name.to_owned()).or_default();
        let known = counts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        *counts = vec![(latest(counts).max(last), count(known))];
    }
}
