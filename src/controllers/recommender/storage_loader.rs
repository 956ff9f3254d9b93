//! The stored history: read before anything is decided or written, and taken over from a richer writer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{Error, LoadRequest};

use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, ShutdownToken};
use crate::cluster::cache::vpa_index::TargetState;
use plimsoll_core::recommender::{HistoryBootstrap, RestoreResult};

/// How often it is looked whether something is due.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Recommender {
    /// Reads the history of every VPA when it is first seen, and again later what could not be read and was not
    /// waited for (`--history-optional`).
    pub(super) async fn run_storage_load_loop(self: Arc<Self>, stop: ShutdownToken) {
        let mut pause = MIN_BACKOFF;
        let mut again = Instant::now();
        loop {
            let wanted = self.vpas_without_history(Instant::now() >= again);
            if wanted.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.history_wanted.notified() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                continue;
            }
            let loaded = tokio::select! {
                () = stop.cancelled() => return,
                loaded = self.load(&wanted) => loaded,
            };
            self.history_unreadable.store(loaded.is_err(), Ordering::Release);
            let Err(error) = loaded else {
                (pause, again) = (MIN_BACKOFF, Instant::now());
                continue;
            };
            tracing::error!(%error, vpas = wanted.len(), "stored history cannot be read");
            again = Instant::now() + pause;
            if self.config.history_optional {
                let mut core = self.state.lock();
                for key in wanted.keys() {
                    core.vpa_registry.mark_missing(key);
                }
                drop(core);
                self.history_loaded.notify_one();
            } else {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    /// The VPAs whose history is to be read, with the owner of their pods; `again`: also those that could not be
    /// read before. None before the lists are complete: a target that only seems to be missing would find no
    /// history.
    pub(super) fn vpas_without_history(&self, again: bool) -> HashMap<ObjectKey, Option<Box<str>>> {
        if !self.watches.required().all(|feed| feed.is_synced()) {
            return HashMap::new();
        }
        if self.state.lock().vpa_registry.waiting_for_history().next().is_some() {
            self.resolve_watched_targets();
        }
        let core = self.state.lock();
        let sought = |key: &ObjectKey| {
            core.index.vpa(key).is_some_and(|vpa| *vpa.target() != TargetState::Unknown)
        };
        let unread = core.vpa_registry.with_missing_history().filter(|_| again);
        let wanted =
            core.vpa_registry.waiting_for_history().chain(unread).filter(|(key, _)| sought(key));
        wanted.map(|(key, owner)| (key.clone(), owner.map(Into::into))).collect()
    }

    async fn load(&self, wanted: &HashMap<ObjectKey, Option<Box<str>>>) -> Result<(), Error> {
        let now = self.clock.now();
        let sightings: Vec<(&ObjectKey, u64)> = {
            let core = self.state.lock();
            let of = |key: &ObjectKey| {
                let owner = core.vpa_registry.get(key)?.owner();
                core.vpa_registry.load_generation(key).filter(|_| owner == wanted[key].as_deref())
            };
            wanted.keys().filter_map(|key| Some((key, of(key)?))).collect()
        };
        let mut intake = HistorySink::new(self, now, false);
        let report = self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut intake).await?;
        let HistorySink { last_alive: found, unusable, bootstrap, partial, .. } = intake;
        let tally = bootstrap.counts();
        let mut containers = report.snapshots;
        for (key, folded) in bootstrap.finish() {
            containers += self.state.lock().vpa_registry.merge_history(&key, folded, now);
        }
        let mut core = self.state.lock();
        for (key, sighting) in sightings.into_iter().filter(|(key, _)| !partial.contains(*key)) {
            core.vpa_registry.mark_loaded(key, sighting);
        }
        for key in found.keys() {
            core.vpa_registry.mark_stored(key, now);
        }
        drop(core);
        for skipped in report.skipped.iter().chain(&unusable) {
            self.health.count_checkpoints("skipped", 1);
            tracing::warn!(
                what = skipped.record,
                why = skipped.reason,
                "stored history was passed over"
            );
        }
        self.health.count_checkpoints("loaded", report.snapshots as u64);
        tracing::info!(
            storage = self.storage.name(),
            vpas = wanted.len(),
            containers,
            samples = tally.accepted,
            known = tally.already_known,
            senseless = tally.invalid,
            in_future = tally.in_future,
            "history loaded"
        );
        self.history_loaded.notify_one();
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
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
    ) -> Result<HashMap<ObjectKey, Time>, Error> {
        let mut intake = HistorySink::new(self, self.clock.now(), false);
        self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut intake).await?;
        for skipped in &intake.unusable {
            tracing::warn!(
                what = skipped.record,
                why = skipped.reason,
                "a checkpoint was passed over"
            );
        }
        Ok(intake.last_alive)
    }

    /// Takes over whatever another writer stored since, where it saw more than this process. Where nobody writes there
    /// is nothing to take over: what was measured by others was seen live.
    pub(super) async fn adopt_stored_records(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        if self.storage.writer().is_none() {
            return Ok(());
        }
        let now = self.clock.now();
        let wanted = {
            let core = self.state.lock();
            let owner = |key: &ObjectKey| core.vpa_registry.get(key)?.owner().map(Into::into);
            keys.iter().map(|key| (key.clone(), owner(key))).collect()
        };
        let mut intake = HistorySink::new(self, now, true);
        self.storage.load(&LoadRequest::Vpas(wanted), &mut intake).await?;
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
struct HistorySink<'a> {
    role: &'a Recommender,
    now: Time,
    adopt: bool,
    /// Of which VPAs something was found, and until when the container was seen that was seen least.
    last_alive: HashMap<ObjectKey, Time>,
    adopted: u64,
    unusable: Vec<plimsoll_core::history::SkippedRecord>,
    /// What single samples have come to so far.
    bootstrap: HistoryBootstrap,
    /// The VPAs whose history came in part.
    partial: HashSet<ObjectKey>,
}

impl<'a> HistorySink<'a> {
    fn new(role: &'a Recommender, now: Time, adopt: bool) -> Self {
        let (found, partial, unusable) = (HashMap::new(), HashSet::new(), Vec::new());
        let bootstrap = HistoryBootstrap::new(role.state.lock().vpa_registry.settings(), now);
        Self { role, now, adopt, last_alive: found, adopted: 0, unusable, bootstrap, partial }
    }
}

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let mut core = self.role.state.lock();
        let restored = if self.adopt {
            core.vpa_registry.restore_if_richer(&key, &snapshot, self.now)
        } else {
            core.vpa_registry.restore(&key, &snapshot, self.now)
        };
        drop(core);
        match restored {
            Ok(restored) => {
                self.adopted += u64::from(self.adopt && restored == RestoreResult::Merged);
                let last = snapshot.cpu_seen.last.max(snapshot.memory_seen.last);
                let last = last.unwrap_or(Time::EPOCH);
                let found = self.last_alive.entry(key.vpa).or_insert(last);
                *found = last.min(*found);
            }
            Err(bad) => {
                let (what, why) = (key.to_string(), bad.to_string());
                self.unusable
                    .push(plimsoll_core::history::SkippedRecord { record: what, reason: why });
            }
        }
    }

    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        !self.role.state.lock().index.belongs_to_other_recommender(vpa)
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        if self.adopt {
            return;
        }
        let role = self.role;
        let begin = |vpa: &ObjectKey| role.state.lock().vpa_registry.start_history(vpa);
        self.bootstrap.add_sample(key, &sample, begin);
    }

    fn abandon(&mut self, vpa: &ObjectKey) {
        self.bootstrap.abandon(vpa);
        self.partial.insert(vpa.clone());
    }
}
