//! All VPAs of one recommender: what each says about itself, what is remembered of it, and what was last
//! decided. Plain data in, decisions out.

mod intake;
mod saving;
#[cfg(test)]
mod tests;
mod watched;

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    ops::Bound,
    sync::Arc,
};

use crate::{
    history::Snapshot,
    types::{Key, Time, VpaKey},
};

pub use self::{
    intake::{KillOutcome, Taken, Usage},
    watched::{HistoryState, Watched},
};

use super::{
    advice::Advice,
    clock_doubt::StoredTimes,
    container::ContainerHistory,
    directives::Directives,
    folding::Folding,
    history::Restored,
    recommendation::{Recommendation, recommend},
    remembered::BadSnapshot,
    settings::{Rules, Settings},
};
use crate::types::compat::{Compat, Fix};

/// What the recommender knows and decides, for all of its VPAs.
#[derive(Debug)]
pub struct Fleet {
    settings: Settings,
    compat: Compat,
    vpas: HashMap<VpaKey, Watched>,
    /// Their keys in order, for those who visit them a page at a time.
    order: BTreeSet<VpaKey>,
    /// How often a VPA began to wait for its stored history.
    sightings: u64,
    /// How the stored records that were read look by the clock.
    stored_times: StoredTimes,
    /// Whether nothing stored is replaced for its age: the clock may be wrong.
    keeps_expired: bool,
}

/// A VPA whose stored history is to be read.
pub type Waiting<'a> = (&'a VpaKey, Option<&'a str>);

impl Fleet {
    /// A fleet without any VPA.
    pub fn new(settings: Settings, compat: Compat) -> Self {
        Self {
            settings,
            compat,
            vpas: HashMap::new(),
            order: BTreeSet::new(),
            sightings: 0,
            stored_times: StoredTimes::default(),
            keeps_expired: false,
        }
    }

    /// The settings of the model.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes over what a VPA says about itself.
    pub fn track(&mut self, key: &VpaKey, directives: Directives, created: Time) {
        match self.vpas.entry(key.clone()) {
            Entry::Occupied(entry) => {
                let watched = entry.into_mut();
                watched.directives = directives;
                watched.created = created;
            }
            Entry::Vacant(entry) => {
                self.order.insert(key.clone());
                self.sightings += 1;
                let sighting = self.sightings;
                entry.insert(Watched { directives, created, sighting, ..Watched::default() });
            }
        }
    }

    /// Forgets a VPA. Its stored history stays, until it is collected as an orphan.
    pub fn untrack(&mut self, key: &VpaKey) {
        self.vpas.remove(key);
        self.order.remove(key);
    }

    /// Notes the topmost owner of a VPA's pods. Another one than before means another workload: what is
    /// remembered does not tell of it, and the stored history is looked for anew. So it is when nothing
    /// stored was found while the owner was unknown: there may be something to inherit.
    pub fn set_owner(&mut self, key: &VpaKey, owner: &str) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        if watched.owner.as_deref() == Some(owner) {
            return;
        }
        let of_another = |(_, container): (_, &ContainerHistory)| {
            container.owner().is_some_and(|it| it != owner)
        };
        if watched.owner.is_some() || watched.history.iter().any(of_another) {
            watched.begin_anew();
        } else if !watched.history.iter().any(|(_, container)| container.restored) {
            watched.state = HistoryState::Waiting;
        }
        watched.owner = Some(owner.into());
        self.sightings += 1;
        watched.sighting = self.sightings;
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
    pub fn get(&self, key: &VpaKey) -> Option<&Watched> {
        self.vpas.get(key)
    }

    /// The keys of all VPAs in order, from the first one after `after` on.
    pub fn keys_after<'a>(&'a self, after: Option<&VpaKey>) -> impl Iterator<Item = &'a VpaKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded))
    }

    /// The VPAs whose stored history is to be read, with the owner of their pods.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        let waiting = |(_, watched): &(&VpaKey, &Watched)| watched.state == HistoryState::Waiting;
        self.vpas.iter().filter(waiting).map(|(key, watched)| (key, watched.owner.as_deref()))
    }

    /// The VPAs whose stored history could not be read, with the owner of their pods.
    pub fn unread(&self) -> impl Iterator<Item = Waiting<'_>> {
        let unread = |(_, watched): &(&VpaKey, &Watched)| watched.state == HistoryState::Missing;
        self.vpas.iter().filter(unread).map(|(key, watched)| (key, watched.owner.as_deref()))
    }

    /// All VPAs, in no order.
    pub fn watched(&self) -> impl Iterator<Item = &Watched> {
        self.vpas.values()
    }

    /// Takes in what a storage remembers of a container, on top of what was seen since.
    pub fn restore(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Restored, BadSnapshot> {
        self.remember(key, snapshot, now, false)
    }

    /// Takes what a storage remembers in place of what is known, if it saw more.
    pub fn adopt(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Restored, BadSnapshot> {
        self.remember(key, snapshot, now, true)
    }

    fn remember(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
        in_place: bool,
    ) -> Result<Restored, BadSnapshot> {
        let Some(remembered) = self.recall(key, snapshot, now)? else {
            return Ok(Restored::Expired);
        };
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return Ok(Restored::Expired) };
        let rules = watched.directives.rules(None, &self.settings);
        if in_place {
            let ours = watched.history.get(&key.container);
            if ours.is_some_and(|ours| ours.richness() >= snapshot.richness()) {
                return Ok(Restored::Already);
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
    pub fn recall(
        &mut self,
        key: &Key,
        snapshot: &Snapshot,
        now: Time,
    ) -> Result<Option<ContainerHistory>, BadSnapshot> {
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return Ok(None) };
        // The same name was given to another workload: what is stored tells nothing of this one.
        let foreign = watched.owner.as_deref().zip(snapshot.owner.as_deref());
        // A record that says nothing of its owner is of the workload that the VPA had before.
        let former = snapshot.owner.is_none() && watched.history.supersedes(&key.container);
        if former || foreign.is_some_and(|(ours, theirs)| ours != theirs) {
            watched.history.outdate(Arc::clone(&key.container));
            return Ok(None);
        }
        let rules = watched.directives.rules(None, &self.settings);
        let remembered = ContainerHistory::from_snapshot(snapshot, now, &rules);
        let is_expired = remembered.as_ref().is_ok_and(|it| it.is_expired(now, &rules));
        self.stored_times.count([snapshot.cpu_seen, snapshot.memory_seen], is_expired, now);
        remembered.inspect_err(|_| watched.history.expire(Arc::clone(&key.container))).map(Some)
    }

    /// When a VPA that waits for its stored history was first seen to use anything.
    pub fn first_seen(&self, key: &VpaKey) -> Option<Time> {
        self.vpas.get(key)?.history.early().first()
    }

    /// What the history of a VPA begins with that a storage tells in single samples.
    pub fn begin_folding(&self, key: &VpaKey) -> Option<Folding> {
        let watched = self.vpas.get(key)?;
        let early = watched.history.early().clone();
        Some(Folding::new(watched.sighting, watched.directives.clone(), early))
    }

    /// Takes in what single samples came to, on top of what was seen since. Answers how many containers that is:
    /// none for a VPA that was made anew or points elsewhere since.
    pub fn take_folded(&mut self, key: &VpaKey, folded: Folding, now: Time) -> usize {
        let sighting = folded.sighting;
        let watched = self.vpas.get_mut(key).filter(|it| it.sighting == sighting);
        let Some(watched) = watched else { return 0 };
        let (mut taken, fills) = (0, folded.fills());
        for (name, mut history) in folded.finish() {
            if let Some(owner) = &watched.owner {
                history.set_owner(owner.clone());
            }
            let rules = watched.directives.rules(Some(&history), &self.settings);
            let last = history.cpu_seen().last.max(history.memory_seen().last);
            let outcome = if fills {
                watched.history.fill(name, history, now, &rules)
            } else {
                watched.history.restore(name, history, now, &rules)
            };
            if outcome == Restored::Taken {
                watched.last_sample = watched.last_sample.max(last);
                taken += 1;
            }
        }
        if taken > 0 {
            watched.change(now, false);
        }
        taken
    }

    /// Which of its sights of a VPA a load is for: a VPA that was made anew or points elsewhere by the end of
    /// the load still waits for its own.
    pub fn sighting(&self, key: &VpaKey) -> Option<u64> {
        self.vpas.get(key).map(|watched| watched.sighting)
    }

    /// Notes that the stored history that was wanted at this sighting is part of what is known.
    pub fn loaded(&mut self, key: &VpaKey, sighting: u64) {
        if let Some(watched) = self.vpas.get_mut(key).filter(|it| it.sighting == sighting) {
            watched.state = HistoryState::Loaded;
            watched.history.settle();
        }
    }

    /// Notes that the stored history of a VPA that waits for it cannot be read, and is not waited for. It may be
    /// read later; until then nothing is saved over it.
    pub fn missing(&mut self, key: &VpaKey) {
        let waiting = |it: &&mut Watched| it.state == HistoryState::Waiting;
        if let Some(watched) = self.vpas.get_mut(key).filter(waiting) {
            watched.state = HistoryState::Missing;
        }
    }

    /// Notes that no history was found, though there is one of other pods.
    pub fn history_not_found(&mut self, key: &VpaKey, now: Time) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.not_found = Some(now);
        }
    }

    /// Forgets what was kept for single pods that are gone; what they used stays. Their windows count as closed from
    /// then on, so the history is another one to those who read it without windows: it is saved again. So it is when
    /// a window closes with time, though no sample comes any more: upstream, or `--compat=upstream` after a kill,
    /// would not learn of its peak.
    pub fn retain_pods(&mut self, key: &VpaKey, lives: impl Fn(&str) -> bool, now: Time) {
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
            watched.change(now, false);
        }
    }

    /// Works out what the containers of a VPA should request, each by itself. `None` while its history is not
    /// loaded.
    pub fn recommend(&self, key: &VpaKey, now: Time) -> Option<Recommendation> {
        let watched = self.vpas.get(key).filter(|it| it.state != HistoryState::Waiting)?;
        Some(recommend(&watched.directives, &watched.history, &self.settings, now))
    }

    /// Keeps what was decided, for metrics and for judging samples to come. Answers how long it took from
    /// the VPA's creation when this is its first recommendation.
    pub fn keep_advice(
        &mut self,
        key: &VpaKey,
        said: &Recommendation,
        now: Time,
    ) -> Option<std::time::Duration> {
        let watched = self.vpas.get_mut(key)?;
        watched.advice = said
            .containers
            .iter()
            .map(|one| {
                let history = watched.history.get(&one.container);
                let rules = watched.directives.rules(history, &self.settings);
                Advice::new(one, history, &rules)
            })
            .collect();
        watched.empty_since = match (said.containers.is_empty(), watched.empty_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        let first = !watched.advised && !said.containers.is_empty();
        watched.advised |= first;
        let took = now.nanos_since(watched.created);
        first.then(|| std::time::Duration::from_nanos(u64::try_from(took).unwrap_or(0)))
    }

    /// Notes that a VPA had a recommendation before this process began.
    pub fn was_advised(&mut self, key: &VpaKey) {
        if let Some(watched) = self.vpas.get_mut(key) {
            watched.advised = true;
        }
    }

    /// Forgets containers whose history says nothing any more, and answers their keys.
    pub fn forget_expired(&mut self, now: Time) -> Vec<Key> {
        let settings = &self.settings;
        let mut gone = Vec::new();
        for (key, watched) in &mut self.vpas {
            let names = watched.history.forget_expired(now, &watched.directives, settings);
            gone.extend(names.into_iter().map(|name| Key::new(key.clone(), name)));
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
    pub fn rules(&self, key: &VpaKey, container: &str) -> Option<Rules> {
        let watched = self.vpas.get(key)?;
        Some(watched.directives.rules(watched.history.get(container), &self.settings))
    }
}
