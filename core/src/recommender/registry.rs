//! All VPAs of one recommender: what each says about itself, what is remembered of it, and what was last
//! decided. Plain data in, decisions out.

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
    ingest::{OomResult, UsageResult, UsageSample},
    vpa_state::{HistoryState, VpaState},
};

use super::{
    clock_doubt::StoredTimes,
    container::ContainerHistory,
    history::RestoreResult,
    history_builder::HistoryBuilder,
    recommendation::{Recommendation, recommend},
    settings::{ModelRules, Settings},
    snapshot_conv::InvalidSnapshot,
    summary::RecommendationSummary,
    vpa_settings::VpaSettings,
};
use crate::types::compat::{Compat, Fix};

/// What the recommender knows and decides, for all of its VPAs.
#[derive(Debug)]
pub struct VpaRegistry {
    settings: Settings,
    compat: Compat,
    vpas: HashMap<ObjectKey, VpaState>,
    /// Their keys in order, for those who visit them a page at a time.
    sorted_keys: BTreeSet<ObjectKey>,
    /// How often a VPA began to wait for its stored history.
    load_generations: u64,
    /// How the stored records that were read look by the clock.
    stored_times: StoredTimes,
    /// Whether nothing stored is replaced for its age: the clock may be wrong.
    keeps_expired: bool,
}

/// A VPA whose stored history is to be read.
pub type VpaWithOwner<'a> = (&'a ObjectKey, Option<&'a str>);

impl VpaRegistry {
    /// A fleet without any VPA.
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

    /// The settings of the model.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes over what a VPA says about itself.
    pub fn track(&mut self, key: &ObjectKey, directives: VpaSettings, created: Time) {
        match self.vpas.entry(key.clone()) {
            Entry::Occupied(entry) => {
                let watched = entry.into_mut();
                watched.settings = directives;
                watched.created = created;
            }
            Entry::Vacant(entry) => {
                self.sorted_keys.insert(key.clone());
                self.load_generations += 1;
                let sighting = self.load_generations;
                entry.insert(VpaState {
                    settings: directives,
                    created,
                    load_generation: sighting,
                    ..VpaState::default()
                });
            }
        }
    }

    /// Forgets a VPA. Its stored history stays, until it is collected as an orphan.
    pub fn untrack(&mut self, key: &ObjectKey) {
        self.vpas.remove(key);
        self.sorted_keys.remove(key);
    }

    /// Notes the topmost owner of a VPA's pods. Another one than before means another workload: what is
    /// remembered does not tell of it, and the stored history is looked for anew. So it is when nothing
    /// stored was found while the owner was unknown: there may be something to inherit.
    pub fn set_owner(&mut self, key: &ObjectKey, owner: &str) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        if watched.owner.as_deref() == Some(owner) {
            return;
        }
        let of_another = |(_, container): (_, &ContainerHistory)| {
            container.owner().is_some_and(|it| it != owner)
        };
        if watched.owner.is_some() || watched.history.iter().any(of_another) {
            watched.reset();
        } else if !watched.history.iter().any(|(_, container)| container.restored) {
            watched.state = HistoryState::Waiting;
        }
        watched.owner = Some(owner.into());
        self.load_generations += 1;
        watched.load_generation = self.load_generations;
    }

    /// Number of VPAs.
    pub fn len(&self) -> usize {
        self.vpas.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.vpas.is_empty()
    }

    /// Number of containers with a history.
    pub fn containers(&self) -> usize {
        self.vpas.values().map(|watched| watched.history.len()).sum()
    }

    /// One VPA.
    pub fn get(&self, key: &ObjectKey) -> Option<&VpaState> {
        self.vpas.get(key)
    }

    /// The keys of all VPAs in order, from the first one after `after` on.
    pub fn keys_after<'a>(
        &'a self,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.sorted_keys.range((from, Bound::Unbounded))
    }

    /// The VPAs whose stored history is to be read, with the owner of their pods.
    pub fn waiting_for_history(&self) -> impl Iterator<Item = VpaWithOwner<'_>> {
        let waiting =
            |(_, watched): &(&ObjectKey, &VpaState)| watched.state == HistoryState::Waiting;
        self.vpas.iter().filter(waiting).map(|(key, watched)| (key, watched.owner.as_deref()))
    }

    /// The VPAs whose stored history could not be read, with the owner of their pods.
    pub fn with_missing_history(&self) -> impl Iterator<Item = VpaWithOwner<'_>> {
        let unread =
            |(_, watched): &(&ObjectKey, &VpaState)| watched.state == HistoryState::Missing;
        self.vpas.iter().filter(unread).map(|(key, watched)| (key, watched.owner.as_deref()))
    }

    /// All VPAs, in no order.
    pub fn states(&self) -> impl Iterator<Item = &VpaState> {
        self.vpas.values()
    }

    /// Takes in what a storage remembers of a container, on top of what was seen since.
    pub fn restore(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<RestoreResult, InvalidSnapshot> {
        self.merge_snapshot(key, snapshot, now, false)
    }

    /// Takes what a storage remembers in place of what is known, if it saw more.
    pub fn restore_if_richer(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<RestoreResult, InvalidSnapshot> {
        self.merge_snapshot(key, snapshot, now, true)
    }

    fn merge_snapshot(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
        in_place: bool,
    ) -> Result<RestoreResult, InvalidSnapshot> {
        let Some(remembered) = self.read_snapshot(key, snapshot, now)? else {
            return Ok(RestoreResult::Expired);
        };
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return Ok(RestoreResult::Expired) };
        let rules = watched.settings.rules(None, &self.settings);
        if in_place {
            let ours = watched.history.get(&key.container);
            if ours.is_some_and(|ours| ours.sample_rank() >= snapshot.sample_rank()) {
                return Ok(RestoreResult::AlreadyLoaded);
            }
            // What has expired takes the place of nothing.
            if !remembered.is_expired(now, &rules) {
                watched.history.remove(&key.container);
            }
        }
        Ok(watched.history.restore(Arc::clone(&key.container), remembered, now, &rules))
    }

    /// What a storage remembers of a container, without taking it in yet: single samples may go on from it
    /// ([`Bootstrap::go_on_from`](super::Bootstrap::go_on_from)). `None` where it tells nothing of this VPA.
    pub fn read_snapshot(
        &mut self,
        key: &ContainerKey,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Option<ContainerHistory>, InvalidSnapshot> {
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return Ok(None) };
        // The same name was given to another workload: what is stored tells nothing of this one.
        let foreign = watched.owner.as_deref().zip(snapshot.owner.as_deref());
        // A record that says nothing of its owner is of the workload that the VPA had before.
        let former = snapshot.owner.is_none() && watched.history.supersedes(&key.container);
        if former || foreign.is_some_and(|(ours, theirs)| ours != theirs) {
            watched.history.mark_stale(Arc::clone(&key.container));
            return Ok(None);
        }
        let rules = watched.settings.rules(None, &self.settings);
        let remembered = ContainerHistory::from_snapshot(snapshot, now, &rules);
        let is_expired = remembered.as_ref().is_ok_and(|it| it.is_expired(now, &rules));
        self.stored_times.record([snapshot.cpu_seen, snapshot.memory_seen], is_expired, now);
        remembered
            .inspect_err(|_| watched.history.mark_expired(Arc::clone(&key.container)))
            .map(Some)
    }

    /// When a VPA that waits for its stored history was first seen to use anything.
    pub fn first_seen(&self, key: &ObjectKey) -> Option<Time> {
        self.vpas.get(key)?.history.early_samples().first()
    }

    /// What the history of a VPA begins with that a storage tells in single samples.
    pub fn start_history(&self, key: &ObjectKey) -> Option<HistoryBuilder> {
        let watched = self.vpas.get(key)?;
        let early = watched.history.early_samples().clone();
        Some(HistoryBuilder::new(watched.load_generation, watched.settings.clone(), early))
    }

    /// Takes in what single samples came to, on top of what was seen since. Answers how many containers that is:
    /// none for a VPA that was made anew or points elsewhere since.
    pub fn merge_history(&mut self, key: &ObjectKey, folded: HistoryBuilder, now: Time) -> usize {
        let sighting = folded.load_generation;
        let watched = self.vpas.get_mut(key).filter(|it| it.load_generation == sighting);
        let Some(watched) = watched else { return 0 };
        let (mut taken, fills) = (0, folded.fills_gap());
        for (name, mut history) in folded.finish() {
            if let Some(owner) = &watched.owner {
                history.set_owner(owner.clone());
            }
            let rules = watched.settings.rules(Some(&history), &self.settings);
            let last = history.cpu_samples().last.max(history.memory_samples().last);
            let outcome = if fills {
                watched.history.fill_gap(name, history, now, &rules)
            } else {
                watched.history.restore(name, history, now, &rules)
            };
            if outcome == RestoreResult::Merged {
                watched.last_sample = watched.last_sample.max(last);
                taken += 1;
            }
        }
        if taken > 0 {
            watched.mark_changed(now, false);
        }
        taken
    }

    /// Which of its sights of a VPA a load is for: a VPA that was made anew or points elsewhere by the end of
    /// the load still waits for its own.
    pub fn load_generation(&self, key: &ObjectKey) -> Option<u64> {
        self.vpas.get(key).map(|watched| watched.load_generation)
    }

    /// Notes that the stored history that was wanted at this sighting is part of what is known.
    pub fn mark_loaded(&mut self, key: &ObjectKey, sighting: u64) {
        if let Some(watched) = self.vpas.get_mut(key).filter(|it| it.load_generation == sighting) {
            watched.state = HistoryState::Loaded;
            watched.history.finish_loading();
        }
    }

    /// Notes that the stored history of a VPA that waits for it cannot be read, and is not waited for. It may be
    /// read later; until then nothing is saved over it.
    pub fn mark_missing(&mut self, key: &ObjectKey) {
        let waiting = |it: &&mut VpaState| it.state == HistoryState::Waiting;
        if let Some(watched) = self.vpas.get_mut(key).filter(waiting) {
            watched.state = HistoryState::Missing;
        }
    }

    /// Notes that no history was found, though there is one of other pods.
    pub fn mark_not_found(&mut self, key: &ObjectKey, now: Time) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.not_found = Some(now);
        }
    }

    /// Forgets what was kept for single pods that are gone; what they used stays. Their windows count as closed from
    /// then on, so the history is another one to those who read it without windows: it is saved again. So it is when
    /// a window closes with time, though no sample comes any more: upstream, or `--compat=upstream` after a kill,
    /// would not learn of its peak.
    pub fn retain_pods(&mut self, key: &ObjectKey, lives: impl Fn(&str) -> bool, now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        let (mut any, since) = (false, watched.last_saved);
        for (_, container) in watched.history.iter_mut() {
            any |= since.is_some_and(|since| container.has_window_closed(since, now));
            if !container.replicas().all(&lives) {
                container.retain_replicas(&lives);
                any = true;
            }
        }
        if any {
            watched.mark_changed(now, false);
        }
    }

    /// Works out what the containers of a VPA should request, each by itself. `None` while its history is not
    /// loaded.
    pub fn recommend(&self, key: &ObjectKey, now: Time) -> Option<Recommendation> {
        let watched = self.vpas.get(key).filter(|it| it.state != HistoryState::Waiting)?;
        Some(recommend(&watched.settings, &watched.history, &self.settings, now))
    }

    /// Keeps what was decided, for metrics and for judging samples to come. Answers how long it took from
    /// the VPA's creation when this is its first recommendation.
    pub fn store_summary(
        &mut self,
        key: &ObjectKey,
        said: &Recommendation,
        now: Time,
    ) -> Option<std::time::Duration> {
        let watched = self.vpas.get_mut(key)?;
        watched.summaries = said
            .containers
            .iter()
            .map(|one| {
                let history = watched.history.get(&one.container);
                let rules = watched.settings.rules(history, &self.settings);
                RecommendationSummary::new(one, history, &rules)
            })
            .collect();
        watched.without_recommendation_since =
            match (said.containers.is_empty(), watched.without_recommendation_since) {
                (true, since) => since.or(Some(now)),
                (false, _) => None,
            };
        let first = !watched.has_been_recommended && !said.containers.is_empty();
        watched.has_been_recommended |= first;
        let took = now.nanos_since(watched.created);
        first.then(|| std::time::Duration::from_nanos(u64::try_from(took).unwrap_or(0)))
    }

    /// Notes that a VPA had a recommendation before this process began.
    pub fn mark_recommended(&mut self, key: &ObjectKey) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.has_been_recommended = true;
        }
    }

    /// Forgets containers whose history says nothing any more, and answers their keys.
    pub fn forget_expired(&mut self, now: Time) -> Vec<ContainerKey> {
        let settings = &self.settings;
        let mut gone = Vec::new();
        for (key, watched) in &mut self.vpas {
            let names = watched.history.forget_expired(now, &watched.settings, settings);
            gone.extend(names.into_iter().map(|name| ContainerKey::new(key.clone(), name)));
        }
        gone
    }

    /// Whether the mode is upstream's.
    pub fn is_upstream(&self) -> bool {
        self.compat == Compat::Upstream
    }

    /// Whether a fix is on.
    pub fn has(&self, fix: Fix) -> bool {
        self.settings.fixes.has(fix)
    }

    /// The rules by which a container's samples are taken.
    pub fn rules(&self, key: &ObjectKey, container: &str) -> Option<ModelRules> {
        let watched = self.vpas.get(key)?;
        Some(watched.settings.rules(watched.history.get(container), &self.settings))
    }
}
