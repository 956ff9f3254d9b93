//! All VPAs of one recommender: their settings, their histories, and their last recommendations. Pure: data in,
//! decisions out.

mod ingest;
mod saving;
#[cfg(test)]
mod tests;
mod vpa_state;

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    ops::Bound,
    sync::Arc,
};

use crate::{
    history::Snapshot,
    types::{ContainerKey, ObjectKey, Time},
};

pub use self::{
    ingest::{Ingest, OomResult, UsageResult, UsageSample},
    saving::Saves,
    vpa_state::{HistoryState, VpaState},
};

use super::{
    container::ContainerHistory,
    history::RestoreResult,
    history_builder::HistoryBuilder,
    model_settings::{ModelRules, Settings},
    recommendation::{Recommendation, recommend},
    recommendation_summary::RecommendationSummary,
    snapshot_conv::InvalidSnapshot,
    system_clock_check::StoredTimes,
    vpa_settings::VpaSettings,
};
use crate::types::compat::{Compat, Fix};

/// The state of all VPAs of a recommender.
#[derive(Debug)]
pub struct VpaRegistry {
    pub settings: Settings,
    compat: Compat,
    vpas: HashMap<ObjectKey, VpaState>,
    /// The keys in order, for iteration in pages.
    sorted_keys: BTreeSet<ObjectKey>,
    /// The number of times that a VPA started to wait for its stored history.
    load_generations: u64,
    /// The ages of the stored records that were loaded.
    pub stored_times: StoredTimes,
    /// Whether expired records are not replaced, because the clock may be wrong.
    keeps_expired: bool,
}

/// A VPA whose stored history is to be loaded, with the owner of its pods.
pub type VpaWithOwner<'a> = (&'a ObjectKey, Option<&'a str>);

impl VpaRegistry {
    /// Creates a registry without VPAs.
    pub fn new(settings: Settings, compat: Compat) -> Self {
        Self {
            settings,
            compat,
            vpas: HashMap::new(),
            sorted_keys: BTreeSet::new(),
            load_generations: 0,
            stored_times: StoredTimes::default(),
            keeps_expired: false,
        }
    }

    /// Adds a VPA or updates its settings.
    pub fn track(&mut self, key: &ObjectKey, settings: VpaSettings, created: Time) {
        match self.vpas.entry(key.clone()) {
            Entry::Occupied(entry) => {
                let vpa = entry.into_mut();
                vpa.settings = settings;
                vpa.created = created;
            }
            Entry::Vacant(entry) => {
                self.sorted_keys.insert(key.clone());
                self.load_generations += 1;
                let load_generation = self.load_generations;
                entry.insert(VpaState {
                    settings,
                    created,
                    load_generation,
                    ..VpaState::default()
                });
            }
        }
    }

    /// Removes a VPA. Its stored history stays until it is garbage collected.
    pub fn untrack(&mut self, key: &ObjectKey) {
        self.vpas.remove(key);
        self.sorted_keys.remove(key);
    }

    /// Sets the topmost owner of a VPA's pods. A different owner means another workload: the history is discarded, and the
    /// stored history is loaded again. The latter also happens if nothing stored was found while the owner was unknown,
    /// because there may be a history to inherit.
    pub fn set_owner(&mut self, key: &ObjectKey, owner: &str) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        if vpa.owner.as_deref() == Some(owner) {
            return;
        }
        let has_other_owner = |(_, container): (_, &ContainerHistory)| {
            container.owner().is_some_and(|current| current != owner)
        };
        if vpa.owner.is_some() || vpa.history.iter().any(has_other_owner) {
            vpa.reset();
        } else if !vpa.history.iter().any(|(_, container)| container.restored) {
            vpa.state = HistoryState::Waiting;
        }
        vpa.owner = Some(owner.into());
        self.load_generations += 1;
        vpa.load_generation = self.load_generations;
    }

    pub fn len(&self) -> usize {
        self.vpas.len()
    }

    /// Whether there are no VPAs.
    pub fn is_empty(&self) -> bool {
        self.vpas.is_empty()
    }

    /// Number of containers with a history.
    pub fn containers(&self) -> usize {
        self.vpas.values().map(|vpa| vpa.history.iter().len()).sum()
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&VpaState> {
        self.vpas.get(key)
    }

    /// Returns the keys of all VPAs after `after`, in order.
    pub fn keys_after<'a>(
        &'a self,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.sorted_keys.range((from, Bound::Unbounded))
    }

    /// Returns the VPAs whose stored history is to be loaded, with the owner of their pods.
    pub fn waiting_for_history(&self) -> impl Iterator<Item = VpaWithOwner<'_>> {
        let waiting = |(_, vpa): &(&ObjectKey, &VpaState)| vpa.state == HistoryState::Waiting;
        self.vpas.iter().filter(waiting).map(|(key, vpa)| (key, vpa.owner.as_deref()))
    }

    /// Returns the VPAs whose stored history could not be loaded, with the owner of their pods.
    pub fn with_missing_history(&self) -> impl Iterator<Item = VpaWithOwner<'_>> {
        let is_missing = |(_, vpa): &(&ObjectKey, &VpaState)| vpa.state == HistoryState::Missing;
        self.vpas.iter().filter(is_missing).map(|(key, vpa)| (key, vpa.owner.as_deref()))
    }

    /// Returns all VPAs, unordered.
    pub fn states(&self) -> impl Iterator<Item = &VpaState> {
        self.vpas.values()
    }

    /// Merges the stored history of a container into its live history, or with `replaces` takes its place if it has more
    /// samples.
    pub fn restore(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
        replaces: bool,
    ) -> Result<RestoreResult, InvalidSnapshot> {
        let Some(stored) = self.read_snapshot(key, snapshot, now)? else {
            return Ok(RestoreResult::Expired);
        };
        let Some(vpa) = self.vpas.get_mut(&key.vpa) else { return Ok(RestoreResult::Expired) };
        let rules = vpa.settings.rules(None, &self.settings);
        if replaces {
            let ours = vpa.history.get(&key.container);
            if ours.is_some_and(|ours| ours.sample_rank() >= snapshot.sample_rank()) {
                return Ok(RestoreResult::AlreadyLoaded);
            }
            // An expired record does not replace anything.
            if !stored.is_expired(now, &rules) {
                vpa.history.remove(&key.container);
            }
        }
        Ok(vpa.history.restore(Arc::clone(&key.container), stored, now, &rules))
    }

    /// Reads a stored history without merging it, so that single samples may continue from it
    /// ([`HistoryBootstrap::resume_from`](super::HistoryBootstrap::resume_from)). `None` if it does not belong to this VPA.
    pub fn read_snapshot(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Option<ContainerHistory>, InvalidSnapshot> {
        let Some(vpa) = self.vpas.get_mut(&key.vpa) else { return Ok(None) };
        // The VPA's name was reused for another workload, so the stored history does not apply.
        let owners = vpa.owner.as_deref().zip(snapshot.owner.as_deref());
        // A record without an owner belongs to the previous workload of the VPA.
        let is_former = snapshot.owner.is_none() && vpa.history.supersedes(&key.container);
        if is_former || owners.is_some_and(|(ours, theirs)| ours != theirs) {
            vpa.history.mark_stale(Arc::clone(&key.container), false);
            return Ok(None);
        }
        let rules = vpa.settings.rules(None, &self.settings);
        let stored = ContainerHistory::from_snapshot(snapshot, now, &rules);
        let is_expired = stored.as_ref().is_ok_and(|history| history.is_expired(now, &rules));
        self.stored_times.record([snapshot.cpu_seen, snapshot.memory_seen], is_expired, now);
        stored.inspect_err(|_| vpa.history.mark_stale(Arc::clone(&key.container), true)).map(Some)
    }

    /// Returns the time of the first live sample of a VPA that waits for its stored history.
    pub fn first_seen(&self, key: &ObjectKey) -> Option<Time> {
        self.vpas.get(key)?.history.early_samples.first()
    }

    /// Returns a builder for the history of a VPA from the single samples of a storage.
    pub fn start_history(&self, key: &ObjectKey) -> Option<HistoryBuilder> {
        let vpa = self.vpas.get(key)?;
        let early = vpa.history.early_samples.clone();
        Some(HistoryBuilder::new(vpa.load_generation, vpa.settings.clone(), early))
    }

    /// Merges a history that was built from single samples into the live one. Returns the number of merged containers: none
    /// if the VPA was recreated or has another target since.
    pub fn merge_history(&mut self, key: &ObjectKey, builder: HistoryBuilder, now: Time) -> usize {
        let load_generation = builder.load_generation;
        let vpa = self.vpas.get_mut(key).filter(|vpa| vpa.load_generation == load_generation);
        let Some(vpa) = vpa else { return 0 };
        let (mut merged, fills_gap) = (0, builder.fills_gap());
        for (name, mut history) in builder.finish() {
            if let Some(owner) = &vpa.owner {
                history.set_owner(owner.clone());
            }
            let rules = vpa.settings.rules(Some(&history), &self.settings);
            let last = history.cpu_samples.last.max(history.memory_samples.last);
            let outcome = if fills_gap {
                vpa.history.fill_gap(name, history, now, &rules)
            } else {
                vpa.history.restore(name, history, now, &rules)
            };
            if outcome == RestoreResult::Merged {
                vpa.last_sample = vpa.last_sample.max(last);
                merged += 1;
            }
        }
        if merged > 0 {
            vpa.mark_changed(now, false);
        }
        merged
    }

    /// Returns the load generation of a VPA. A load that was started for an older generation does not count: the VPA was
    /// recreated or has another target since, and still waits for its own history.
    pub fn load_generation(&self, key: &ObjectKey) -> Option<u64> {
        self.vpas.get(key).map(|vpa| vpa.load_generation)
    }

    /// Records that the stored history for this load generation was merged.
    pub fn mark_loaded(&mut self, key: &ObjectKey, load_generation: u64) {
        let vpa = self.vpas.get_mut(key).filter(|vpa| vpa.load_generation == load_generation);
        if let Some(vpa) = vpa {
            vpa.state = HistoryState::Loaded;
            vpa.history.finish_loading();
        }
    }

    /// Records that the stored history of a waiting VPA is not available, and stops waiting for it. It may be loaded later;
    /// until then it is not overwritten.
    pub fn mark_missing(&mut self, key: &ObjectKey) {
        let waiting = |vpa: &&mut VpaState| vpa.state == HistoryState::Waiting;
        if let Some(vpa) = self.vpas.get_mut(key).filter(waiting) {
            vpa.state = HistoryState::Missing;
        }
    }

    /// Records that no history was found, although there is one of other pods.
    pub fn mark_not_found(&mut self, key: &ObjectKey, now: Time) {
        if let Some(vpa) = self.vpas.get_mut(key) {
            vpa.not_found = Some(now);
        }
    }

    /// Drops the per-pod state of deleted pods; their samples stay. Their windows count as closed from then on, which
    /// changes the history for readers without windows, so it is saved again. The same applies if a window closes by
    /// time without any new sample: otherwise upstream, or `--compat=upstream` after a kill, would not get its peak.
    pub fn retain_pods(&mut self, key: &ObjectKey, is_alive: impl Fn(&str) -> bool, now: Time) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        let (mut changed, last_saved) = (false, vpa.last_saved);
        for (_, container) in vpa.history.iter_mut() {
            changed |= last_saved.is_some_and(|since| container.has_window_closed(since, now));
            if !container.replicas().all(&is_alive) {
                container.retain_replicas(&is_alive);
                changed = true;
            }
        }
        if changed {
            vpa.mark_changed(now, false);
        }
    }

    /// Decides on the planned requests of a VPA, if its requests are planned. To be called once per pass, before
    /// [`recommend`](Self::recommend).
    pub fn decide_plans(&mut self, key: &ObjectKey, now: Time) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        let rules = vpa.settings.rules(None, &self.settings);
        if rules.plan.is_none() || vpa.state == HistoryState::Waiting {
            return;
        }
        let VpaState { history, summaries, .. } = vpa;
        for (name, container) in history.iter_mut() {
            let summary = summaries.iter().find(|summary| summary.container == *name);
            let resources = summary.map(|summary| summary.resources).unwrap_or_default();
            container.decide_plan(&rules, now, resources.map(|summary| summary.target));
        }
    }

    /// Computes the recommendation of a VPA's containers, without the pod's maximum. `None` if its history is not loaded.
    pub fn recommend(&self, key: &ObjectKey, now: Time) -> Option<Recommendation> {
        let vpa = self.vpas.get(key).filter(|vpa| vpa.state != HistoryState::Waiting)?;
        Some(recommend(&vpa.settings, &vpa.history, &self.settings, now))
    }

    /// Stores a summary of the recommendation, for metrics and to compare it with usage. Returns the time since the creation
    /// of the VPA if this is its first recommendation.
    pub fn store_summary(
        &mut self,
        key: &ObjectKey,
        recommendation: &Recommendation,
        now: Time,
    ) -> Option<std::time::Duration> {
        let vpa = self.vpas.get_mut(key)?;
        vpa.summaries = recommendation
            .containers
            .iter()
            .map(|container| {
                let history = vpa.history.get(&container.container);
                let rules = vpa.settings.rules(history, &self.settings);
                RecommendationSummary::new(container, history, &rules)
            })
            .collect();
        vpa.without_recommendation_since =
            match (recommendation.containers.is_empty(), vpa.without_recommendation_since) {
                (true, since) => since.or(Some(now)),
                (false, _) => None,
            };
        let first = !vpa.has_been_recommended && !recommendation.containers.is_empty();
        vpa.has_been_recommended |= first;
        let took = now.nanos_since(vpa.created);
        first.then(|| std::time::Duration::from_nanos(u64::try_from(took).unwrap_or(0)))
    }

    /// Records that a VPA already had a recommendation when this process started.
    pub fn mark_recommended(&mut self, key: &ObjectKey) {
        if let Some(vpa) = self.vpas.get_mut(key) {
            vpa.has_been_recommended = true;
        }
    }

    /// Removes expired histories and returns their keys.
    pub fn forget_expired(&mut self, now: Time) -> Vec<ContainerKey> {
        let settings = &self.settings;
        let mut removed = Vec::new();
        for (key, vpa) in &mut self.vpas {
            let names = vpa.history.forget_expired(now, &vpa.settings, settings);
            removed.extend(names.into_iter().map(|name| ContainerKey::new(key.clone(), name)));
        }
        removed
    }

    /// Adds containers, samples, OOM kills and throttling.
    pub fn ingest(&mut self) -> Ingest<'_> {
        Ingest { vpas: &mut self.vpas, settings: &self.settings }
    }

    /// Selects what to save, and records the results.
    pub fn saves(&mut self) -> Saves<'_> {
        let (settings, keeps_expired) = (&self.settings, self.keeps_expired);
        Saves { vpas: &mut self.vpas, settings, keeps_expired }
    }

    /// Sets whether VPAs whose stored records look expired or written in the future are not saved. While the clock may be
    /// wrong, saving would replace records that have more samples.
    pub fn keep_expired(&mut self, keep: bool) {
        self.keeps_expired = keep;
    }

    /// Number of VPAs that are not saved because of [`Self::keep_expired`].
    pub fn expired_count(&self) -> usize {
        let is_kept = |vpa: &&VpaState| self.keeps_expired && vpa.history.has_expired();
        self.vpas.values().filter(is_kept).count()
    }

    /// Number of VPAs with unsaved changes, and the time of the oldest change.
    pub fn unsaved_stats(&self) -> (usize, Option<Time>) {
        let changes = || self.vpas.values().filter_map(|vpa| vpa.unsaved.or(vpa.saving));
        (changes().count(), changes().map(|unsaved| unsaved.since).min())
    }

    /// Whether this is upstream mode.
    pub fn is_upstream(&self) -> bool {
        self.compat == Compat::Upstream
    }

    /// Whether a fix is enabled.
    pub fn has(&self, fix: Fix) -> bool {
        self.settings.fixes.has(fix)
    }

    /// Returns the rules for the samples of a container.
    pub fn rules(&self, key: &ObjectKey, container: &str) -> Option<ModelRules> {
        let vpa = self.vpas.get(key)?;
        Some(vpa.settings.rules(vpa.history.get(container), &self.settings))
    }
}
