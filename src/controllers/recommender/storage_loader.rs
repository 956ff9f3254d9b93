//! Loads stored history before anything is decided or written, and adopts richer histories of other writers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Sink, SkippedRecord, Snapshot},
    recommender::RestoreResult,
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{Error, LoadRequest, Storage};

use super::{
    MAX_BACKOFF, MIN_BACKOFF, Shared, history_loader::from_checkpoint::record_last_alive,
    history_source::VpaOwners, state::SharedState, target_lookup::TargetLookup,
};

/// How often to check whether something is due.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Loads histories from the storage into the state.
pub(super) struct StorageLoader {
    pub shared: Arc<Shared>,
    pub targets: Arc<TargetLookup>,
    pub storage: Arc<dyn Storage>,
}

impl StorageLoader {
    /// Loads the history of every new VPA. Retries later what could not be loaded and was skipped
    /// (`--history-optional`).
    pub async fn run(self: Arc<Self>) {
        let mut pause = MIN_BACKOFF;
        let mut retry_at = Instant::now();
        loop {
            let wanted = self.targets.vpas_without_history(Instant::now() >= retry_at);
            if wanted.is_empty() {
                tokio::select! {
                    () = self.shared.state.signals.history_wanted.notified() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                continue;
            }
            let result = self.load(&wanted).await;
            self.shared.state.lock().history_unreadable = result.is_err();
            let Err(error) = result else {
                (pause, retry_at) = (MIN_BACKOFF, Instant::now());
                continue;
            };
            tracing::error!(%error, vpas = wanted.len(), "failed to load stored history");
            retry_at = Instant::now() + pause;
            if self.shared.config.history_optional {
                self.shared.state.lock().continue_without_history(wanted.keys());
            } else {
                tokio::time::sleep(pause).await;
            }
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    async fn load(&self, wanted: &VpaOwners) -> Result<(), Error> {
        let now = self.shared.clock.now();
        let generations: Vec<(&ObjectKey, u64)> = {
            let state = self.shared.state.lock();
            let generation = |key: &ObjectKey| {
                let owner = state.vpa_registry.get(key)?.owner();
                state.vpa_registry.load_generation(key).filter(|_| owner == wanted[key].as_deref())
            };
            wanted.keys().filter_map(|key| Some((key, generation(key)?))).collect()
        };
        let mut sink = HistorySink::new(&self.shared.state, now, false);
        let report = self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut sink).await?;
        {
            let mut state = self.shared.state.lock();
            for (key, generation) in generations {
                state.vpa_registry.mark_loaded(key, generation);
            }
            for key in sink.last_alive.keys() {
                state.vpa_registry.saves().mark_stored(key, now);
            }
        }
        for SkippedRecord { record, reason } in report.skipped.iter().chain(&sink.unusable) {
            self.shared.health.count_checkpoints("skipped", 1);
            tracing::warn!(record, reason, "ignoring stored history");
        }
        let containers = report.snapshots;
        self.shared.health.count_checkpoints("loaded", containers as u64);
        let (storage, vpas) = (self.storage.name(), wanted.len());
        tracing::info!(storage, vpas, containers, "loaded history");
        self.shared.state.signals.history_loaded.notify_one();
        Ok(())
    }

    /// Loads what the storage has of these VPAs into the registry. Returns the VPAs that were found, with the time
    /// when they were last seen.
    pub async fn restore(&self, wanted: &VpaOwners) -> Result<HashMap<ObjectKey, Time>, Error> {
        let mut sink = HistorySink::new(&self.shared.state, self.shared.clock.now(), false);
        self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut sink).await?;
        for SkippedRecord { record, reason } in &sink.unusable {
            tracing::warn!(record, reason, "ignoring checkpoint");
        }
        Ok(sink.last_alive)
    }

    /// Adopts histories of another writer that saw more than this process. With a read-only storage there is nothing
    /// to adopt: usage was observed live.
    pub async fn adopt_stored_records(&self, keys: &HashSet<ObjectKey>) -> Result<(), Error> {
        if self.storage.writer().is_none() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let wanted = {
            let state = self.shared.state.lock();
            let owner = |key: &ObjectKey| state.vpa_registry.get(key)?.owner().map(Into::into);
            keys.iter().map(|key| (key.clone(), owner(key))).collect()
        };
        let mut sink = HistorySink::new(&self.shared.state, now, true);
        self.storage.load(&LoadRequest::Vpas(wanted), &mut sink).await?;
        if sink.adopted > 0 {
            tracing::info!(containers = sink.adopted, "adopted richer histories of another writer");
            self.shared.health.count_checkpoints("adopted", sink.adopted);
        }
        Ok(())
    }
}

struct HistorySink<'a> {
    state: &'a SharedState,
    now: Time,
    adopt: bool,
    /// When each VPA was last seen: the earliest time over its containers.
    last_alive: HashMap<ObjectKey, Time>,
    adopted: u64,
    unusable: Vec<SkippedRecord>,
}

impl<'a> HistorySink<'a> {
    fn new(state: &'a SharedState, now: Time, adopt: bool) -> Self {
        let (last_alive, unusable) = (HashMap::new(), Vec::new());
        Self { state, now, adopt, last_alive, adopted: 0, unusable }
    }
}

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let mut state = self.state.lock();
        let restored = state.vpa_registry.restore(&key, &snapshot, self.now, self.adopt);
        drop(state);
        match restored {
            Ok(result) => {
                self.adopted += u64::from(self.adopt && result == RestoreResult::Merged);
                let last = snapshot.cpu_seen.last.max(snapshot.memory_seen.last);
                record_last_alive(&mut self.last_alive, key.vpa, last.unwrap_or(Time::EPOCH));
            }
            Err(error) => {
                let (record, reason) = (key.to_string(), error.to_string());
                self.unusable.push(SkippedRecord { record, reason });
            }
        }
    }

    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        !self.state.lock().index.belongs_to_other_recommender(vpa)
    }
}
