//! Loads stored history before anything is decided or written, and adopts richer histories of other writers.

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

use super::{
    MAX_BACKOFF, MIN_BACKOFF, Recommender, history_loader::from_checkpoint::record_last_alive,
};
use crate::cluster::cache::vpa_index::TargetState;
use plimsoll_core::recommender::{HistoryBootstrap, RestoreResult};

/// How often to check whether something is due.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Recommender {
    /// Loads the history of every new VPA. Retries later what could not be loaded and was skipped
    /// (`--history-optional`).
    pub(super) async fn run_storage_load_loop(self: Arc<Self>) {
        let mut pause = MIN_BACKOFF;
        let mut retry_at = Instant::now();
        loop {
            let wanted = self.vpas_without_history(Instant::now() >= retry_at);
            if wanted.is_empty() {
                tokio::select! {
                    () = self.history_wanted.notified() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                continue;
            }
            let result = self.load(&wanted).await;
            self.history_unreadable.store(result.is_err(), Ordering::Release);
            let Err(error) = result else {
                (pause, retry_at) = (MIN_BACKOFF, Instant::now());
                continue;
            };
            tracing::error!(%error, vpas = wanted.len(), "failed to load stored history");
            retry_at = Instant::now() + pause;
            if self.config.history_optional {
                self.continue_without_history(wanted.keys());
            } else {
                tokio::time::sleep(pause).await;
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    pub(super) fn continue_without_history<'a>(&self, vpas: impl Iterator<Item = &'a ObjectKey>) {
        let mut state = self.state.lock();
        for key in vpas {
            state.vpa_registry.mark_missing(key);
        }
        drop(state);
        self.history_loaded.notify_one();
    }

    /// The VPAs whose history must be loaded, with the owner of their pods. `again` includes those that failed
    /// before. Empty until the caches are synced: a target that only seems to be missing would match no history.
    pub(super) fn vpas_without_history(&self, again: bool) -> HashMap<ObjectKey, Option<Box<str>>> {
        if !self.watches.required().all(|status| status.is_synced()) {
            return HashMap::new();
        }
        if self.state.lock().vpa_registry.waiting_for_history().next().is_some() {
            self.resolve_watched_targets();
        }
        let state = self.state.lock();
        let has_target = |key: &ObjectKey| {
            state.index.vpa(key).is_some_and(|vpa| *vpa.target() != TargetState::Unknown)
        };
        let unread = state.vpa_registry.with_missing_history().filter(|_| again);
        let wanted = state
            .vpa_registry
            .waiting_for_history()
            .chain(unread)
            .filter(|(key, _)| has_target(key));
        wanted.map(|(key, owner)| (key.clone(), owner.map(Into::into))).collect()
    }

    async fn load(&self, wanted: &HashMap<ObjectKey, Option<Box<str>>>) -> Result<(), Error> {
        let now = self.clock.now();
        let generations: Vec<(&ObjectKey, u64)> = {
            let state = self.state.lock();
            let generation = |key: &ObjectKey| {
                let owner = state.vpa_registry.get(key)?.owner();
                state.vpa_registry.load_generation(key).filter(|_| owner == wanted[key].as_deref())
            };
            wanted.keys().filter_map(|key| Some((key, generation(key)?))).collect()
        };
        let mut sink = HistorySink::new(self, now, false);
        let report = self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut sink).await?;
        let HistorySink { last_alive, unusable, bootstrap, partial, .. } = sink;
        let counts = bootstrap.counts();
        let mut containers = report.snapshots;
        for (key, history) in bootstrap.finish() {
            containers += self.state.lock().vpa_registry.merge_history(&key, history, now);
        }
        let mut state = self.state.lock();
        for (key, generation) in generations.into_iter().filter(|(key, _)| !partial.contains(*key))
        {
            state.vpa_registry.mark_loaded(key, generation);
        }
        for key in last_alive.keys() {
            state.vpa_registry.mark_stored(key, now);
        }
        drop(state);
        for skipped in report.skipped.iter().chain(&unusable) {
            self.health.count_checkpoints("skipped", 1);
            tracing::warn!(
                record = skipped.record,
                reason = skipped.reason,
                "ignoring stored history"
            );
        }
        self.health.count_checkpoints("loaded", report.snapshots as u64);
        tracing::info!(
            storage = self.storage.name(),
            vpas = wanted.len(),
            containers,
            samples = counts.accepted,
            already_known = counts.already_known,
            invalid = counts.invalid,
            in_future = counts.in_future,
            "loaded history"
        );
        self.history_loaded.notify_one();
        if partial.is_empty() {
            return Ok(());
        }
        let place = self.storage.name().to_owned();
        let why = format!("the history of {} VPAs was incomplete and was discarded", partial.len());
        Err(Error::Unavailable { place, why })
    }

    /// Loads what the storage has of these VPAs into the registry. Returns the VPAs that were found, with the time
    /// when they were last seen.
    pub(super) async fn restore(
        &self,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
    ) -> Result<HashMap<ObjectKey, Time>, Error> {
        let mut sink = HistorySink::new(self, self.clock.now(), false);
        self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut sink).await?;
        for skipped in &sink.unusable {
            tracing::warn!(record = skipped.record, reason = skipped.reason, "ignoring checkpoint");
        }
        Ok(sink.last_alive)
    }

    /// Adopts histories of another writer that saw more than this process. With a read-only storage there is nothing
    /// to adopt: usage was observed live.
    pub(super) async fn adopt_stored_records(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        if self.storage.writer().is_none() {
            return Ok(());
        }
        let now = self.clock.now();
        let wanted = {
            let state = self.state.lock();
            let owner = |key: &ObjectKey| state.vpa_registry.get(key)?.owner().map(Into::into);
            keys.iter().map(|key| (key.clone(), owner(key))).collect()
        };
        let mut sink = HistorySink::new(self, now, true);
        self.storage.load(&LoadRequest::Vpas(wanted), &mut sink).await?;
        if sink.adopted > 0 {
            tracing::info!(containers = sink.adopted, "adopted richer histories of another writer");
            self.health.count_checkpoints("adopted", sink.adopted);
        }
        Ok(())
    }
}

struct HistorySink<'a> {
    role: &'a Recommender,
    now: Time,
    adopt: bool,
    /// When each VPA was last seen: the earliest time over its containers.
    last_alive: HashMap<ObjectKey, Time>,
    adopted: u64,
    unusable: Vec<plimsoll_core::history::SkippedRecord>,
    /// Histories built from single samples so far.
    bootstrap: HistoryBootstrap,
    /// VPAs whose history was incomplete.
    partial: HashSet<ObjectKey>,
}

impl<'a> HistorySink<'a> {
    fn new(role: &'a Recommender, now: Time, adopt: bool) -> Self {
        let (last_alive, partial, unusable) = (HashMap::new(), HashSet::new(), Vec::new());
        let bootstrap = HistoryBootstrap::new(role.state.lock().vpa_registry.settings(), now);
        Self { role, now, adopt, last_alive, adopted: 0, unusable, bootstrap, partial }
    }
}

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let mut state = self.role.state.lock();
        let restored = if self.adopt {
            state.vpa_registry.restore_if_richer(&key, &snapshot, self.now)
        } else {
            state.vpa_registry.restore(&key, &snapshot, self.now)
        };
        drop(state);
        match restored {
            Ok(result) => {
                self.adopted += u64::from(self.adopt && result == RestoreResult::Merged);
                let last = snapshot.cpu_seen.last.max(snapshot.memory_seen.last);
                record_last_alive(&mut self.last_alive, key.vpa, last.unwrap_or(Time::EPOCH));
            }
            Err(error) => {
                let (record, reason) = (key.to_string(), error.to_string());
                self.unusable.push(plimsoll_core::history::SkippedRecord { record, reason });
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
        let start_history = |vpa: &ObjectKey| role.state.lock().vpa_registry.start_history(vpa);
        self.bootstrap.add_sample(key, &sample, start_history);
    }

    fn abandon(&mut self, vpa: &ObjectKey) {
        self.bootstrap.abandon(vpa);
        self.partial.insert(vpa.clone());
    }
}
