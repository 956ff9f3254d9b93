//! The stored history: read before anything is decided or written, taken over from a richer writer, saved
//! when it changed, and cleared of orphans.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_storage::{
    Error, Key, Record, Sample, SaveReport, Sink, Snapshot, Time, VpaKey, Wanted,
};
use tokio::time::timeout;

use super::{Role, Stop};
use crate::{
    metrics::HistoryState as Progress,
    observe::index::Target,
    recommend::{HistoryState, Restored},
};

/// How many VPAs are saved at a time: their records are in memory until they are written.
const BATCH: usize = 64;

/// How often it is looked whether something is due.
const LOOK: Duration = Duration::from_secs(1);

/// Pauses after a storage that cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a collection of orphans may take at least.
const COLLECTION: Duration = Duration::from_mins(1);

/// How long a final save may take: less than the half minute that a pod is given to end.
const FINAL: Duration = Duration::from_secs(20);

impl Role {
    /// Reads the history of every VPA when it is first seen.
    pub(super) async fn keep_loading(self: Arc<Self>, stop: Stop) {
        let mut pause = FIRST_PAUSE;
        loop {
            let wanted = self.wanted_histories();
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
            match loaded {
                Ok(()) => pause = FIRST_PAUSE,
                Err(error) => {
                    tracing::error!(%error, vpas = wanted.len(), "stored history cannot be read");
                    if self.config.history_optional {
                        let mut core = self.state.lock();
                        for key in wanted.keys() {
                            core.fleet.set_history_state(key, HistoryState::Missing);
                        }
                        continue;
                    }
                    self.health.set_history_state(Progress::Failed);
                    tokio::select! {
                        () = stop.stopped() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The VPAs whose history is to be read, with the owner of their pods. None before the lists are
    /// complete: a target that only seems to be missing would find no history.
    fn wanted_histories(&self) -> HashMap<VpaKey, Option<Box<str>>> {
        if !self.feeds.needed().all(|feed| feed.is_synced()) {
            return HashMap::new();
        }
        self.find_known_targets();
        let core = self.state.lock();
        let sought =
            |key: &VpaKey| core.index.vpa(key).is_some_and(|vpa| *vpa.target() != Target::Unknown);
        let waiting = core.fleet.waiting().filter(|(key, _)| sought(key));
        let wanted: HashMap<_, _> =
            waiting.map(|(key, owner)| (key.clone(), owner.map(Into::into))).collect();
        if core.fleet.waiting().next().is_none() {
            self.health.set_history_state(Progress::Loaded);
        }
        wanted
    }

    async fn load(&self, wanted: &HashMap<VpaKey, Option<Box<str>>>) -> Result<(), Error> {
        let now = self.clock.now();
        let mut intake = Intake::new(self, now, false);
        let report = self.storage.load(&Wanted::Vpas(wanted.clone()), &mut intake).await?;
        let Intake { found, unusable, .. } = intake;
        let mut core = self.state.lock();
        for key in wanted.keys() {
            // Of a VPA that points elsewhere by now, the history of that workload is still to be read.
            let same =
                core.fleet.get(key).is_some_and(|known| known.owner() == wanted[key].as_deref());
            if same {
                core.fleet.set_history_state(key, HistoryState::Loaded);
            }
        }
        for key in &found {
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
            containers = report.snapshots,
            "history loaded"
        );
        self.loaded.notify_one();
        Ok(())
    }

    /// Takes over whatever another writer stored since, where it saw more than this process.
    pub(super) async fn adopt(&self, keys: &[VpaKey]) -> Result<(), Error> {
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

    /// Writes the histories that changed, as long as this process may write.
    pub(super) async fn keep_saving(self: Arc<Self>, stop: Stop) {
        let mut pause = FIRST_PAUSE;
        let mut last_collection = self.clock.now();
        loop {
            tokio::select! {
                () = stop.stopped() => return,
                () = self.saver.woken() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            if !self.may_write() {
                continue;
            }
            let saved = tokio::select! {
                () = stop.stopped() => return,
                saved = self.save_due(self.config.checkpoint_interval, self.config.checkpoints_timeout) => saved,
            };
            match saved {
                Ok(()) => pause = FIRST_PAUSE,
                Err(error) => {
                    tracing::warn!(%error, "history could not be saved; it stays due");
                    tokio::select! {
                        () = stop.stopped() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            }
            let now = self.clock.now();
            let due = last_collection.later(self.config.checkpoints_gc_interval);
            if now >= due || now < last_collection {
                last_collection = now;
                tokio::select! {
                    () = stop.stopped() => return,
                    () = self.collect_garbage() => {}
                }
            }
        }
    }

    /// Saves what is due at this age, a batch at a time, and begins no other batch once the time is over.
    /// Nothing under way is cut off, and each call brings at least one batch further.
    async fn save_due(&self, age: Duration, limit: Duration) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            if !self.may_write() {
                return Ok(());
            }
            let now = self.clock.now();
            let due = self.state.lock().fleet.due(now, age, BATCH);
            if due.is_empty() {
                return Ok(());
            }
            self.save(&due, now).await?;
            if began.elapsed() > limit {
                return Ok(());
            }
        }
    }

    async fn save(&self, due: &[VpaKey], now: Time) -> Result<(), Error> {
        let Some(writer) = self.storage.writer() else { return Ok(()) };
        let records: Vec<Record> = {
            let mut core = self.state.lock();
            due.iter().flat_map(|key| core.fleet.records(key, now)).collect()
        };
        let report = match writer.save(&records, &self.permit).await {
            Ok(report) => report,
            Err(error) => {
                self.not_saved(due);
                return Err(error);
            }
        };
        self.settle(due, &records, &report, now);
        if !report.kept_richer.is_empty() {
            let richer: HashSet<VpaKey> =
                report.kept_richer.iter().map(|key| key.vpa.clone()).collect();
            let richer: Vec<VpaKey> = richer.into_iter().collect();
            self.adopt(&richer).await?;
        }
        if report.failed.is_empty() {
            return Ok(());
        }
        let first = &report.failed[0];
        let why = format!("{} records failed, {}: {}", report.failed.len(), first.what, first.why);
        Err(Error::Unavailable { place: self.storage.name().into(), why })
    }

    fn not_saved(&self, due: &[VpaKey]) {
        let mut core = self.state.lock();
        for key in due {
            core.fleet.not_saved(key);
        }
    }

    fn settle(&self, due: &[VpaKey], records: &[Record], report: &SaveReport, now: Time) {
        let SaveReport { written, unchanged, kept_richer, refused, failed } = report;
        for (outcome, count) in [
            ("written", *written),
            ("unchanged", *unchanged),
            ("kept_richer", kept_richer.len()),
            ("refused", refused.len()),
            ("failed", failed.len()),
        ] {
            self.health.count_checkpoints(outcome, count as u64);
        }
        for refused in refused {
            tracing::warn!(what = refused.what, why = refused.why, "history can never be saved");
        }
        let failed: HashSet<&str> = failed.iter().map(|failed| &*failed.what).collect();
        let mut core = self.state.lock();
        let mut of: HashMap<&VpaKey, (Vec<Arc<str>>, bool)> = HashMap::new();
        for record in records {
            let entry = of.entry(&record.key.vpa).or_default();
            if !failed.is_empty() && failed.contains(&*record.key.to_string()) {
                entry.1 = true;
            } else {
                entry.0.push(Arc::clone(&record.key.container));
            }
        }
        for key in due {
            match of.get(key) {
                Some((_, true)) => core.fleet.not_saved(key),
                Some((containers, false)) => core.fleet.saved(key, containers, now),
                None => core.fleet.saved(key, &[], now),
            }
        }
        drop(core);
        self.health.checkpoints_saved(now);
    }

    /// Removes what nobody owns any more: histories of VPAs that are gone, and those that expired.
    async fn collect_garbage(&self) {
        let Some(writer) = self.storage.writer() else { return };
        if !self.feeds.vpas.is_synced() {
            return;
        }
        let orphaned = |key: &Key| {
            let core = self.state.lock();
            if !core.index.scope().includes(&key.vpa.namespace) {
                return false;
            }
            if !core.index.has_any_vpa(&key.vpa) {
                return true;
            }
            // Upstream keeps those of containers that are gone.
            let watched = core.fleet.get(&key.vpa).filter(|_| !core.fleet.is_upstream());
            watched.is_some_and(|watched| {
                watched.state() == HistoryState::Loaded
                    && watched.history().get(&key.container).is_none()
                    && watched.history().supersedes(&key.container)
            })
        };
        // Its own time: a slow save before must not cost the collection.
        let limit = self.config.checkpoints_timeout.max(COLLECTION);
        match timeout(limit, writer.collect_garbage(&orphaned, &self.permit)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(removed)) => {
                self.health.count_checkpoints("collected", removed as u64);
                tracing::info!(removed, "orphaned histories collected");
            }
            Ok(Err(error)) => tracing::warn!(%error, "orphaned histories were not collected"),
            Err(_) => tracing::warn!(?limit, "orphaned histories were not all collected in time"),
        }
    }

    /// Writes everything that is not saved yet, at the end.
    pub(super) async fn save_all(&self) {
        if !self.may_write() {
            return;
        }
        match timeout(FINAL, self.save_due(Duration::ZERO, FINAL)).await {
            Ok(Ok(())) => tracing::info!("history saved"),
            Ok(Err(error)) => tracing::warn!(%error, "the last changes of history were not saved"),
            Err(_) => tracing::warn!("the last changes of history were not all saved in time"),
        }
    }
}

/// Takes what a storage remembers into the fleet.
struct Intake<'a> {
    role: &'a Role,
    now: Time,
    adopt: bool,
    found: HashSet<VpaKey>,
    adopted: u64,
    unusable: Vec<plimsoll_storage::Skipped>,
}

impl<'a> Intake<'a> {
    fn new(role: &'a Role, now: Time, adopt: bool) -> Self {
        let (found, unusable) = (HashSet::new(), Vec::new());
        Self { role, now, adopt, found, adopted: 0, unusable }
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
                self.found.insert(key.vpa);
            }
            Err(bad) => {
                let (what, why) = (key.to_string(), bad.to_string());
                self.unusable.push(plimsoll_storage::Skipped { what, why });
            }
        }
    }

    fn sample(&mut self, key: &Key, _: Sample) {
        // No storage that can be chosen today keeps single samples.
        let why = "single samples cannot be taken in yet".to_owned();
        self.unusable.push(plimsoll_storage::Skipped { what: key.to_string(), why });
    }
}
