//! Saving: which VPAs are due, in which order, and the results.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    history::Record,
    types::{ContainerKey, ObjectKey, Time},
};

use super::{HistoryState, VpaState};
use crate::recommender::model_settings::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsaved {
    pub(super) since: Time,
    /// There was an OOM kill, so save this VPA first.
    pub(super) urgent: bool,
}

/// Selects the VPAs to save, and records the results.
#[derive(Debug)]
pub struct Saves<'a> {
    pub(super) vpas: &'a mut HashMap<ObjectKey, VpaState>,
    pub(super) settings: &'a Settings,
    pub(super) keeps_expired: bool,
}

impl Saves<'_> {
    /// Returns the VPAs to save, the most urgent first: those with an OOM kill, then the least recently saved ones, as
    /// soon as their oldest change is `age` old. VPAs whose last save failed come last, so that they do not delay
    /// others; of these, `exclude` is left out.
    pub fn due_for_save(
        &self,
        now: Time,
        age: Duration,
        limit: usize,
        exclude: &HashSet<ObjectKey>,
    ) -> Vec<ObjectKey> {
        let mut due: Vec<(bool, bool, Option<Time>, &ObjectKey)> = self
            .vpas
            .iter()
            .filter(|(key, vpa)| {
                vpa.state == HistoryState::Loaded
                    && !(vpa.save_failed && exclude.contains(*key))
                    && !(self.keeps_expired && vpa.history.has_expired())
            })
            .filter_map(|(key, vpa)| {
                let unsaved = vpa.unsaved?;
                // A VPA that was never saved would lose everything on a restart.
                let is_due = unsaved.urgent
                    || vpa.last_saved.is_none()
                    || now >= unsaved.since.later(age)
                    || now < unsaved.since;
                is_due.then_some((vpa.save_failed, !unsaved.urgent, vpa.last_saved, key))
            })
            .collect();
        if due.len() > limit {
            due.select_nth_unstable(limit);
            due.truncate(limit);
        }
        due.sort_unstable();
        due.into_iter().map(|(.., key)| key.clone()).collect()
    }

    /// Keeps the records that looked expired, because the clock was wrong and is right now. They are merged with the
    /// next save of their VPAs.
    pub fn forget_expired_by_clock(&mut self) {
        self.vpas.values_mut().for_each(|vpa| vpa.history.forget_expired_by_clock());
    }

    /// Returns the histories of a VPA as records to save. Later changes need another save.
    pub fn records(&mut self, key: &ObjectKey, now: Time) -> Vec<Record> {
        let Some(vpa) = self.vpas.get_mut(key) else { return Vec::new() };
        vpa.saving = vpa.unsaved.take().or(vpa.saving);
        let owner = vpa.owner.clone();
        let VpaState { settings: vpa_settings, history, .. } = vpa;
        let mut records = Vec::with_capacity(history.iter().len());
        for (name, container) in history.iter_mut() {
            if let Some(owner) = &owner
                && container.owner() != Some(owner)
            {
                container.set_owner(owner.clone());
            }
            let rules = vpa_settings.rules(Some(container), self.settings);
            let snapshot = container.to_snapshot(now, &rules);
            records.push(Record::new(ContainerKey::new(key.clone(), Arc::clone(name)), snapshot));
        }
        for record in &mut records {
            record.supersede = history.supersedes(&record.key.container);
        }
        records
    }

    /// Records that a VPA was saved, unless it has another target since.
    pub fn mark_saved(&mut self, key: &ObjectKey, containers: &[Arc<str>], now: Time) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        if vpa.saving.take().is_none() {
            return;
        }
        for container in containers {
            vpa.history.mark_saved(container);
        }
        vpa.last_saved = Some(now);
        vpa.save_failed = false;
    }

    /// Records that saving a VPA failed: its changes are unsaved again.
    pub fn mark_save_failed(&mut self, key: &ObjectKey) {
        if let Some(vpa) = self.vpas.get_mut(key) {
            vpa.return_unsaved();
            vpa.save_failed = true;
        }
    }

    /// Records that running saves were aborted: their changes are unsaved again.
    pub fn resume_saves(&mut self) {
        self.vpas.values_mut().for_each(VpaState::return_unsaved);
    }

    /// Records that a stored history of this VPA was loaded, so it need not be saved before it is due.
    pub fn mark_stored(&mut self, key: &ObjectKey, now: Time) {
        if let Some(vpa) = self.vpas.get_mut(key) {
            vpa.last_saved = vpa.last_saved.or(Some(now));
        }
    }

    /// Records that part of a VPA can never be saved. Returns whether this is new.
    pub fn mark_rejected(&mut self, key: &ObjectKey) -> bool {
        self.vpas.get_mut(key).is_some_and(|vpa| !std::mem::replace(&mut vpa.save_rejected, true))
    }

    /// Drops the stale records of removed containers, after they were garbage collected. One that still exists is detected
    /// again.
    pub fn clear_stale_records(&mut self) {
        self.vpas.values_mut().for_each(|vpa| vpa.history.clear_stale_records());
    }
}
