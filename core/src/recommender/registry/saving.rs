//! What of the fleet is to be saved, in which order, and what became of it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::{
    history::Record,
    types::{ContainerKey, ObjectKey, Time},
};

use super::{HistoryState, VpaRegistry, VpaState};
use crate::recommender::clock_doubt::StoredTimes;

/// What happened since the last save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsaved {
    pub(super) since: Time,
    /// An out-of-memory kill is part of it: it goes first.
    pub(super) urgent: bool,
}

impl VpaRegistry {
    /// The VPAs that are to be saved, the most urgent first: those with an out-of-memory kill, then those
    /// whose last save lies longest ago, once their oldest change has that age. Those that could not be saved
    /// the last time come after all others, so that they hold nobody up; `but` are left out.
    pub fn due_for_save(
        &self,
        now: Time,
        age: Duration,
        most: usize,
        but: &HashSet<ObjectKey>,
    ) -> Vec<ObjectKey> {
        let mut due: Vec<(bool, bool, Option<Time>, &ObjectKey)> = self
            .vpas
            .iter()
            .filter(|(key, watched)| {
                watched.state == HistoryState::Loaded
                    && !(watched.save_failed && but.contains(*key))
                    && !(self.keeps_expired && watched.history.has_expired())
            })
            .filter_map(|(key, watched)| {
                let unsaved = watched.unsaved?;
                // What was never saved has nothing to fall back to.
                let ripe = unsaved.urgent
                    || watched.last_saved.is_none()
                    || now >= unsaved.since.later(age)
                    || now < unsaved.since;
                ripe.then_some((watched.save_failed, !unsaved.urgent, watched.last_saved, key))
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
    pub fn expired_count(&self) -> usize {
        let is_kept = |watched: &&VpaState| self.keeps_expired && watched.history.has_expired();
        self.vpas.values().filter(is_kept).count()
    }

    /// Number of VPAs with changes that are not saved, and since when the oldest is waiting.
    pub fn unsaved_stats(&self) -> (usize, Option<Time>) {
        let changes = || self.vpas.values().filter_map(|it| it.unsaved.or(it.saving));
        (changes().count(), changes().map(|unsaved| unsaved.since).min())
    }

    /// Everything that is remembered of a VPA, to be saved. What happens from now on is another change, to be
    /// saved another time.
    pub fn records(&mut self, key: &ObjectKey, now: Time) -> Vec<Record> {
        let Some(watched) = self.vpas.get_mut(key) else { return Vec::new() };
        watched.saving = watched.unsaved.take().or(watched.saving);
        let owner = watched.owner.clone();
        let VpaState { settings: directives, history, .. } = watched;
        let mut records = Vec::with_capacity(history.len());
        for (name, container) in history.iter_mut() {
            if let Some(owner) = &owner
                && container.owner() != Some(owner)
            {
                container.set_owner(owner.clone());
            }
            let rules = directives.rules(Some(container), &self.settings);
            let snapshot = container.to_snapshot(now, &rules);
            records.push(Record::new(ContainerKey::new(key.clone(), Arc::clone(name)), snapshot));
        }
        for record in &mut records {
            record.supersede = history.supersedes(&record.key.container);
        }
        records
    }

    /// Notes that a VPA was saved; not if it points to another workload than what was saved.
    pub fn mark_saved(&mut self, key: &ObjectKey, containers: &[Arc<str>], now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        if watched.saving.take().is_none() {
            return;
        }
        for container in containers {
            watched.history.mark_saved(container);
        }
        watched.last_saved = Some(now);
        watched.save_failed = false;
    }

    /// Notes that a VPA could not be saved: it is as due as it was.
    pub fn mark_save_failed(&mut self, key: &ObjectKey) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.return_unsaved();
            watched.save_failed = true;
        }
    }

    /// Notes that saves that were under way were cut off: what they were to save is as due as it was.
    pub fn resume_saves(&mut self) {
        self.vpas.values_mut().for_each(VpaState::return_unsaved);
    }

    /// Notes that a stored history of this VPA was read: it need not be written before it is due.
    pub fn mark_stored(&mut self, key: &ObjectKey, now: Time) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.last_saved = watched.last_saved.or(Some(now));
        }
    }

    /// Notes that part of a VPA can never be saved. Answers whether that is news.
    pub fn mark_rejected(&mut self, key: &ObjectKey) -> bool {
        self.vpas.get_mut(key).is_some_and(|it| !std::mem::replace(&mut it.save_rejected, true))
    }

    /// Forgets which stored records of containers that are gone say nothing any more, once these were
    /// collected. One that is still there is found to be so again.
    pub fn clear_stale_records(&mut self) {
        self.vpas.values_mut().for_each(|watched| watched.history.clear_stale_records());
    }
}

impl VpaState {
    fn return_unsaved(&mut self) {
        self.unsaved = match (self.saving.take(), self.unsaved) {
            (Some(before), Some(since)) => {
                Some(Unsaved { since: before.since, urgent: before.urgent || since.urgent })
            }
            (before, since) => before.or(since),
        };
    }
}
