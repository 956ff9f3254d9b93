//! The stored history: read before anything is decided or written, and taken over from a richer writer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_storage::{Error, Wanted};

use super::{FIRST_PAUSE, LONGEST_PAUSE, Role, Stop};
use crate::observe::index::Target;
use plimsoll_core::recommender::{Bootstrap, Restored};

/// How often it is looked whether something is due.
pub(super) const LOOK: Duration = Duration::from_secs(1);

impl Role {
    /// Reads the history of every VPA when it is first seen, and again later what could not be read and was not
    /// waited for (`--history-optional`).
    pub(super) async fn keep_loading(self: Arc<Self>, stop: Stop) {
        let mut pause = FIRST_PAUSE;
        let mut again = Instant::now();
        loop {
            let wanted = self.wanted_histories(Instant::now() >= again);
            if wanted.is_empty() {
                tokio::select! {
                    () = stop.stopped() => return,
                    () = self.news.notified() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
                continue;
            }
            let loaded = tokio::select! {
                () = stop.stopped() => return,
                loaded = self.load(&wanted) => loaded,
            };
            self.unreadable.store(loaded.is_err(), Ordering::Release);
            let Err(error) = loaded else {
                (pause, again) = (FIRST_PAUSE, Instant::now());
                continue;
            };
            tracing::error!(%error, vpas = wanted.len(), "stored history cannot be read");
            again = Instant::now() + pause;
            if self.config.history_optional {
                let mut core = self.state.lock();
                for key in wanted.keys() {
                    core.fleet.missing(key);
                }
                drop(core);
                self.loaded.notify_one();
            } else {
                tokio::select! {
                    () = stop.stopped() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The VPAs whose history is to be read, with the owner of their pods; `again`: also those that could not be
    /// read before. None before the lists are complete: a target that only seems to be missing would find no
    /// history.
    pub(super) fn wanted_histories(&self, again: bool) -> HashMap<VpaKey, Option<Box<str>>> {
        if !self.feeds.needed().all(|feed| feed.is_synced()) {
            return HashMap::new();
        }
        if self.state.lock().fleet.waiting().next().is_some() {
            self.find_known_targets();
        }
        let core = self.state.lock();
        let sought =
            |key: &VpaKey| core.index.vpa(key).is_some_and(|vpa| *vpa.target() != Target::Unknown);
        let unread = core.fleet.unread().filter(|_| again);
        let wanted = core.fleet.waiting().chain(unread).filter(|(key, _)| sought(key));
        wanted.map(|(key, owner)| (key.clone(), owner.map(Into::into))).collect()
    }

    async fn load(&self, wanted: &HashMap<VpaKey, Option<Box<str>>>) -> Result<(), Error> {
        let now = self.clock.now();
        let sightings: Vec<(&VpaKey, u64)> = {
            let core = self.state.lock();
            let of = |key: &VpaKey| {
                let owner = core.fleet.get(key)?.owner();
                core.fleet.sighting(key).filter(|_| owner == wanted[key].as_deref())
            };
            wanted.keys().filter_map(|key| Some((key, of(key)?))).collect()
        };
        let mut intake = Intake::new(self, now, false);
        let report = self.storage.load(&Wanted::Vpas(wanted.clone()), &mut intake).await?;
        let Intake { found, unusable, bootstrap, partial, .. } = intake;
        let tally = bootstrap.tally();
        let mut containers = report.snapshots;
        for (key, folded) in bootstrap.finish() {
            containers += self.state.lock().fleet.take_folded(&key, folded, now);
        }
        let mut core = self.state.lock();
        for (key, sighting) in sightings.into_iter().filter(|(key, _)| !partial.contains(*key)) {
            core.fleet.loaded(key, sighting);
        }
        for key in found.keys() {
            core.fleet.was_stored(key, now);
        }
        drop(core);
        for skipped in report.skipped.iter().chain(&unusable) {
            self.health.count_checkpoints("skipped", 1);
            tracing::warn!(
                what = skipped.what,
                why = skipped.why,
                "stored history was passed over"
            );
        }
        self.health.count_checkpoints("loaded", report.snapshots as u64);
        tracing::info!(
            storage = self.storage.name(),
            vpas = wanted.len(),
            containers,
            samples = tally.taken,
            known = tally.known,
            senseless = tally.senseless,
            in_future = tally.in_future,
            "history loaded"
        );
        self.loaded.notify_one();
        if partial.is_empty() {
            return Ok(());
        }
        let place = self.storage.name().to_owned();
        let why = format!("the history of {} VPAs came in part, and does not count", partial.len());
        Err(Error::Unavailable { place, why })
    }

    /// Takes what the storage remembers of these VPAs into the fleet. Answers of which ones that is anything, and until
    /// when.
    pub(super) async fn restore(
        &self,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
    ) -> Result<HashMap<VpaKey, Time>, Error> {
        let mut intake = Intake::new(self, self.clock.now(), false);
        self.storage.load(&Wanted::Vpas(wanted.clone()), &mut intake).await?;
        for skipped in &intake.unusable {
            tracing::warn!(what = skipped.what, why = skipped.why, "a checkpoint was passed over");
        }
        Ok(intake.found)
    }

    /// Takes over whatever another writer stored since, where it saw more than this process. Where nobody writes there
    /// is nothing to take over: what was measured by others was seen live.
    pub(super) async fn adopt(&self, keys: &[VpaKey]) -> Result<(), Error> {
        if self.storage.writer().is_none() {
            return Ok(());
        }
        let now = self.clock.now();
        let wanted = {
            let core = self.state.lock();
            let owner = |key: &VpaKey| core.fleet.get(key)?.owner().map(Into::into);
            keys.iter().map(|key| (key.clone(), owner(key))).collect()
        };
        let mut intake = Intake::new(self, now, true);
        self.storage.load(&Wanted::Vpas(wanted), &mut intake).await?;
        if intake.adopted > 0 {
            tracing::info!(
                containers = intake.adopted,
                "took over richer histories of another writer"
            );
            self.health.count_checkpoints("adopted", intake.adopted);
        }
        Ok(())
    }
}

/// Takes what a storage remembers into the fleet.
struct Intake<'a> {
    role: &'a Role,
    now: Time,
    adopt: bool,
    /// Of which VPAs something was found, and until when the container was seen that was seen least.
    found: HashMap<VpaKey, Time>,
    adopted: u64,
    unusable: Vec<plimsoll_core::history::Skipped>,
    /// What single samples have come to so far.
    bootstrap: Bootstrap,
    /// The VPAs whose history came in part.
    partial: HashSet<VpaKey>,
}

impl<'a> Intake<'a> {
    fn new(role: &'a Role, now: Time, adopt: bool) -> Self {
        let (found, partial, unusable) = (HashMap::new(), HashSet::new(), Vec::new());
        let bootstrap = Bootstrap::new(role.state.lock().fleet.settings(), now);
        Self { role, now, adopt, found, adopted: 0, unusable, bootstrap, partial }
    }
}

impl Sink for Intake<'_> {
    fn snapshot(&mut self, key: Key, snapshot: Snapshot) {
        let mut core = self.role.state.lock();
        let restored = if self.adopt {
            core.fleet.adopt(&key, &snapshot, self.now)
        } else {
            core.fleet.restore(&key, &snapshot, self.now)
        };
        drop(core);
        match restored {
            Ok(restored) => {
                self.adopted += u64::from(self.adopt && restored == Restored::Taken);
                let last = snapshot.cpu_seen.last.max(snapshot.memory_seen.last);
                let last = last.unwrap_or(Time::EPOCH);
                let found = self.found.entry(key.vpa).or_insert(last);
                *found = last.min(*found);
            }
            Err(bad) => {
                let (what, why) = (key.to_string(), bad.to_string());
                self.unusable.push(plimsoll_core::history::Skipped { what, why });
            }
        }
    }

    fn may_inherit_from(&self, vpa: &VpaKey) -> bool {
        !self.role.state.lock().index.is_of_others(vpa)
    }

    fn sample(&mut self, key: &Key, sample: Sample) {
        if self.adopt {
            return;
        }
        let role = self.role;
        let begin = |vpa: &VpaKey| role.state.lock().fleet.begin_folding(vpa);
        self.bootstrap.take(key, &sample, begin);
    }

    fn discard(&mut self, vpa: &VpaKey) {
        self.bootstrap.discard(vpa);
        self.partial.insert(vpa.clone());
    }
}
