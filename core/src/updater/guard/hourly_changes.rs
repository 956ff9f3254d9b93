//! Changes of one kind within the last hour, by namespace.

use std::collections::BTreeMap;

use crate::types::Time;
use serde::{Deserialize, Serialize};

/// Changes are counted in slots of five minutes. A slot expires when all of it is more than an hour ago, so that no
/// sliding hour exceeds the budget.
const SLOT_SECONDS: i64 = 300;
const SLOTS_PER_HOUR: i64 = 12;

/// Keys of the total of merged namespaces, and of the maximum of one of them. Neither is a valid namespace name.
const OTHER_NAMESPACES: &str = "";
const MAX_OF_OTHER_NAMESPACES: &str = "*";

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
    total(counts.iter().filter(|(slot, _)| *slot >= oldest))
}

fn total<'a>(counts: impl IntoIterator<Item = &'a SlotCount>) -> u32 {
    counts.into_iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn latest(counts: &[SlotCount]) -> i64 {
    counts.iter().map(|(slot, _)| *slot).max().unwrap_or(i64::MIN)
}

fn is_name(namespace: &str) -> bool {
    !matches!(namespace, OTHER_NAMESPACES | MAX_OF_OTHER_NAMESPACES)
}

impl HourlyChanges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn exactly_in_namespace(&self, namespace: &str, now: Time) -> u32 {
        self.0.get(namespace).map_or(0, |counts| within_an_hour(counts, now))
    }

    /// Returns the changes of one namespace. If namespaces were merged, it may be the one with the most changes.
    pub fn in_namespace(&self, namespace: &str, now: Time) -> u32 {
        self.exactly_in_namespace(namespace, now)
            .saturating_add(self.exactly_in_namespace(MAX_OF_OTHER_NAMESPACES, now))
    }

    /// Returns the changes of all namespaces.
    pub fn in_cluster(&self, now: Time) -> u32 {
        let counted = self.0.iter().filter(|(namespace, _)| *namespace != MAX_OF_OTHER_NAMESPACES);
        counted.fold(0, |sum, (_, counts)| sum.saturating_add(within_an_hour(counts, now)))
    }

    pub fn add(&mut self, namespace: &str, at: Time) {
        let counts = self.0.entry(namespace.to_owned()).or_default();
        let slot = slot(at);
        match counts.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((slot, 1)),
        }
    }

    /// Removes changes that are more than an hour ago.
    pub fn expire(&mut self, now: Time) {
        let oldest = slot(now) - SLOTS_PER_HOUR;
        self.0.retain(|_, counts| {
            counts.retain(|(slot, _)| *slot >= oldest);
            !counts.is_empty()
        });
    }

    /// Moves all changes of a namespace to its latest slot, so that they count for longer than necessary.
    pub fn coarsen(&mut self) {
        for counts in self.0.values_mut() {
            *counts = vec![(latest(counts), total(&*counts))];
        }
    }

    /// Merges the eighth of the namespaces whose last change is the oldest. This never raises the budget of a namespace,
    /// and lowers that of some. Returns whether there were any.
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
            let sum = total(&counts);
            self.merge_namespace(OTHER_NAMESPACES, *last, |known| known.saturating_add(sum));
            self.merge_namespace(MAX_OF_OTHER_NAMESPACES, *last, |known| known.max(sum));
        }
        !names.is_empty()
    }

    fn merge_namespace(&mut self, name: &str, last: i64, count: impl Fn(u32) -> u32) {
        let counts = self.0.entry(name.to_owned()).or_default();
        *counts = vec![(latest(counts).max(last), count(total(&*counts)))];
    }
}
