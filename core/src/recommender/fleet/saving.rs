//! What of the fleet is to be saved, in which order, and what became of it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::{
    history::Record,
    types::{Key, Time, VpaKey},
};

use super::{Fleet, HistoryState, Watched};
use crate::recommender::clock_doubt::StoredTimes;

/// What happened since the last save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsaved {
    pub(super) since: Time,
    /// An out-of-memory kill is part of it: it goes first.
    pub(super) urgent: bool,
}

impl Fleet {
    /// The VPAs that are to be saved, the most urgent first: those with an out-of-memory kill, then those
    /// whose last save lies longest ago, once their oldest change has that age. Those that could not be saved
    /// the last time come after all others, so that they hold nobody up; `but` are left out.
    pub fn due(&self, now: Time, age: Duration, most: usize, but: &HashSet<VpaKey>) -> Vec<VpaKey> {
        let mut due: Vec<(bool, bool, Option<Time>, &VpaKey)> = self
            .vpas
            .iter()
            .filter(|(key, watched)| {
                watched.state == HistoryState::Loaded
                    && !(watched.failed && but.contains(*key))
                    && !(self.keeps_expired && watched.history.has_expired())
            })
            .filter_map(|(key, watched)| {
                let unsaved = watched.unsaved?;
                // What was never saved has nothing to fall back to.
                let ripe = unsaved.urgent
                    || watched.last_saved.is_none()
                    || now >= unsaved.since.later(age)
                    || now < unsaved.since;
                ripe.then_some((watched.failed, !unsaved.urgent, watched.last_saved, key))
            })
            .collect();
        if due.len() > most {
            due.select_nth_unstable(most);
            due.truncate(most);
        }
        due.sort_unstable();
        due.into_iter().map(|(.., key)| key.clone()).collect()
    }

    /// How the stored records that were read look by the clock.
    pub fn stored_times(&self) -> StoredTimes {
        self.stored_times
    }

    /// Whether VPAs are saved whose stored records look expired, or written in the future. Not while the clock may be wrong:
    /// they would be replaced, though they saw more.
    pub fn keep_expired(&mut self, keep: bool) {
        self.keeps_expired = keep;
    }

    /// The clock was wrong, and is right now: the records that looked expired by it are kept, and taken over with the next
    /// save of their VPAs.
    pub fn forget_expired_by_clock(&mut self) {
        self.vpas.values_mut().for_each(|watched| watched.history.forget_expired_by_clock());
    }

    /// Number of VPAs that are not saved because of that.
    pub fn kept_expired(&self) -> usize {
        let is_kept = |watched: &&Watched| self.keeps_expired && watched.history.has_expired();
        self.vpas.values().filter(is_kept).count()
    }

    /// Number of VPAs with changes that are not saved, and since when the oldest is waiting.
    pub fn unsaved(&self) -> (usize, Option<Time>) {
        let changes = || self.vpas.values().filter_map(|it| it.unsaved.or(it.saving));
        (changes().count(), changes().map(|unsaved| unsaved.since).min())
    }

    /// Everything that is remembered of a VPA, to be saved. What happens from now on is another change, to be
    /// saved another time.
    pub fn records(&mut self, key: &VpaKey, now: Time) -> Vec<Record> {
        let Some(watched) = self.vpas.get_mut(key) else { return Vec::new() };
        watched.saving = watched.unsaved.take().or(watched.saving);
        let owner = watched.owner.clone();
        let Watched { directives, history, .. } = watched;
        let mut records = Vec::with_capacity(history.len());
        for (name, container) in history.iter_mut() {
            if let Some(owner) = &owner
                && container.owner() != Some(owner)
            {
                container.set_owner(owner.clone());
            }
            let rules = directives.rules(Some(container), &self.settings);
            let snapshot = container.to_snapshot(now, &rules);
            records.push(Record::new(Key::new(key.clone(), Arc::clone(name)), snapshot));
        }
        for record in &mut records {
            record.supersede = history.supersedes(&record.key.container);
        }
        records
    }

    /// Notes that a VPA was saved; not if it points to another workload than what was saved.
    pub fn saved(&mut self, key: &VpaKey, containers: &[Arc<str>], now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        if watched.saving.take().is_none() {
            return;
        }
        for container in containers {
            watched.history.saved(container);
        }
        watched.last_saved = Some(now);
        watched.failed = false;
    }

    /// Notes that a VPA could not be saved: it is as due as it was.
    pub fn not_saved(&mut self, key: &VpaKey) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.resume();
            watched.failed = true;
        }
    }

    /// Notes that saves that were under way were cut off: what they were to save is as due as it was.
    pub fn resume_saves(&mut self) {
        self.vpas.values_mut().for_each(Watched::resume);
    }

    /// Notes that a stored history of this VPA was read: it need not be written before it is due.
    pub fn was_stored(&mut self, key: &VpaKey, now: Time) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.last_saved = watched.last_saved.or(Some(now));
        }
    }

    /// Notes that part of a VPA can never be saved. Answers whether that is news.
    pub fn refuse(&mut self, key: &VpaKey) -> bool {
        self.vpas.get_mut(key).is_some_and(|it| !std::mem::replace(&mut it.refused, true))
    }

    /// Forgets which stored records of containers that are gone say nothing any more, once these were
    /// collected. One that is still there is found to be so again.
    pub fn forget_outdated(&mut self) {
        self.vpas.values_mut().for_each(|watched| watched.history.forget_outdated());
    }
}

impl Watched {
    fn resume(&mut self) {
        self.unsaved = match (self.saving.take(), self.unsaved) {
            (Some(before), Some(since)) => {
                Some(Unsaved { since: before.since, urgent: before.urgent || since.urgent })
            }
            (before, since) => before.or(since),
        };
    }
}
