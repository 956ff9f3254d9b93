//! Saves changed histories, the most overdue first, and garbage-collects orphaned ones.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use plimsoll_core::{
    history::{Record, SkippedRecord},
    recommender::{
        HistoryState,
        system_clock_check::{ClockDoubt, ClockEvidence, StoredTimes, TOLERANCE},
    },
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{Error, SaveReport, Writer};
use tokio::{sync::Notify, time::timeout};

use super::{
    MAX_BACKOFF, MIN_BACKOFF, Shared,
    leadership::Leadership,
    storage_loader::{POLL_INTERVAL, StorageLoader},
};
use crate::cluster::{cache::deleted_vpas::deleted_vpas, server_time::server_time};

/// Number of VPAs per batch: their records are in memory until they are written, and an interrupted batch must be
/// written again.
const VPAS_PER_SAVE: usize = 16;

/// Minimum timeout of a garbage collection.
const MIN_GC_TIMEOUT: Duration = Duration::from_mins(1);

/// Timeout of the final save: less than the default termination grace period of 30 seconds.
const FINAL_SAVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Saves histories while this process is the leader.
pub(super) struct CheckpointSaver {
    pub shared: Arc<Shared>,
    pub loader: Arc<StorageLoader>,
    pub leadership: Arc<Leadership>,
    /// Wakes the loop before its interval ends.
    pub trigger: Notify,
}

impl CheckpointSaver {
    /// Saves changed histories, and collects garbage.
    pub async fn run(self: Arc<Self>) {
        if self.loader.storage.writer().is_none() {
            return;
        }
        let mut pause = MIN_BACKOFF;
        let Shared { config, clock, .. } = &*self.shared;
        let mut last_gc = clock.now();
        let mut clock_check = ClockCheck::new(clock.now());
        loop {
            // Either the trigger or the timeout.
            let _ = timeout(POLL_INTERVAL, self.trigger.notified()).await;
            if !self.leadership.may_write() {
                continue;
            }
            self.check_clock(&mut clock_check).await;
            match self.save_due(config.checkpoint_interval, config.checkpoints_timeout).await {
                Ok(()) => pause = MIN_BACKOFF,
                Err(error) => {
                    tracing::warn!(%error, "failed to save history; will retry");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_BACKOFF);
                    // Collect garbage anyway: a single record may fail on every attempt.
                }
            }
            let now = clock.now();
            let due = last_gc.later(config.checkpoints_gc_interval);
            if (now >= due || now < last_gc) && clock_check.doubt.is_none() {
                last_gc = now;
                self.collect_garbage().await;
            }
        }
    }

    /// Checks whether the clock may be wrong, until that is settled. While it may be, no stored history is replaced
    /// or collected because it looks expired or is dated in the future.
    async fn check_clock(&self, check: &mut ClockCheck) {
        let Shared { clock, state, .. } = &*self.shared;
        let stored = {
            let mut state = state.lock();
            // Records that expired by the previous clock may be valid after all.
            if clock.is_wall() && check.clock_was_set(clock.now()) {
                state.vpa_registry.saves().forget_expired_by_clock();
            }
            state.vpa_registry.stored_times
        };
        if !check.is_due(stored) {
            return;
        }
        // A test's clock is unrelated to the server's.
        let server = if stored.needs_evidence() && clock.is_wall() {
            server_time(&self.shared.client).await
        } else {
            None
        };
        let now = clock.now();
        let evidence = ClockEvidence { now, running: check.started.elapsed(), server };
        let doubt = stored.doubt(evidence);
        let StoredTimes { usable, expired, in_future } = stored;
        match (check.doubt, doubt) {
            (None, Some(doubt)) => tracing::warn!(
                %now,
                expired,
                in_future,
                usable,
                why = %doubt,
                "local clock may be wrong: stored histories appear expired or have future timestamps; not overwriting \
                 or deleting any until the clock is corrected, or an hour passes without contradiction"
            ),
            (Some(_), None) => tracing::info!(
                %now,
                server = server.map(tracing::field::display),
                "local clock is plausible again; resuming saves and garbage collection"
            ),
            _ => {}
        }
        // Before any history was read there is no evidence.
        let keep = doubt.is_some() || stored == StoredTimes::default();
        state.lock().vpa_registry.keep_expired(keep);
        (check.stored, check.doubt) = (stored, doubt);
        check.is_settled = StoredTimes::is_settled(evidence, doubt);
        check.next_check = Instant::now() + CLOCK_CHECK_INTERVAL;
    }

    /// Saves VPAs whose last save is older than `age`, in batches, and starts no new batch after `limit`. A running
    /// batch is not interrupted, and each call completes at least one. Failed VPAs are retried by the next call,
    /// after all others.
    async fn save_due(&self, age: Duration, limit: Duration) -> Result<(), Error> {
        let Shared { clock, state, health, .. } = &*self.shared;
        let started = Instant::now();
        let (mut attempted, mut failure) = (HashSet::new(), None);
        loop {
            if !self.leadership.may_write() {
                return Ok(());
            }
            let now = clock.now();
            let due =
                state.lock().vpa_registry.saves().due_for_save(now, age, VPAS_PER_SAVE, &attempted);
            let is_last = due.is_empty();
            if !is_last {
                let saved = self.save(&due, now).await;
                attempted.extend(due);
                failure = saved?.or(failure);
            }
            // The next call continues with the rest: a large cluster is saved over several calls.
            if is_last || started.elapsed() > limit {
                if !attempted.is_empty() && failure.is_none() {
                    health.checkpoints_saved.with_labels([]).set_time(now);
                }
                return failure.map_or(Ok(()), Err);
            }
        }
    }

    /// Returns the failure of some records, or of all as an error.
    async fn save(&self, due: &[ObjectKey], now: Time) -> Result<Option<Error>, Error> {
        let Some(writer) = self.loader.storage.writer() else { return Ok(None) };
        let records: Vec<Record> = {
            let mut state = self.shared.state.lock();
            due.iter().flat_map(|key| state.vpa_registry.saves().records(key, now)).collect()
        };
        let report = match writer.save(&records, &self.leadership.permit).await {
            Ok(report) => report,
            Err(error) => {
                let mut state = self.shared.state.lock();
                for key in due {
                    state.vpa_registry.saves().mark_save_failed(key);
                }
                return Err(error);
            }
        };
        self.record_saved(due, &records, &report, now);
        if !report.stored_richer.is_empty() {
            let richer: HashSet<ObjectKey> =
                report.stored_richer.iter().map(|key| key.vpa.clone()).collect();
            self.loader.adopt_stored_records(&richer).await?;
        }
        let Some(first) = report.failed.first() else { return Ok(None) };
        let message =
            format!("{} records failed, {}: {}", report.failed.len(), first.record, first.reason);
        let error = Error::Unavailable { place: self.loader.storage.name().into(), why: message };
        let all_failed = report.failed.len() == records.len();
        if all_failed { Err(error) } else { Ok(Some(error)) }
    }

    fn record_saved(&self, due: &[ObjectKey], records: &[Record], report: &SaveReport, now: Time) {
        let SaveReport { written, unchanged, stored_richer, refused, failed } = report;
        for (outcome, count) in [
            ("written", *written),
            ("unchanged", *unchanged),
            ("kept_richer", stored_richer.len()),
            ("refused", refused.len()),
            ("failed", failed.len()),
        ] {
            self.shared.health.count_checkpoints(outcome, count as u64);
        }
        let mut state = self.shared.state.lock();
        for SkippedRecord { record, reason } in refused {
            let refused = records.iter().find(|candidate| candidate.key.to_string() == *record);
            // It is rejected on every attempt; log it only once.
            if refused
                .is_some_and(|refused| state.vpa_registry.saves().mark_rejected(&refused.key.vpa))
            {
                tracing::warn!(record, reason, "failed to save history: record was rejected");
            }
        }
        let failed: HashSet<&str> = failed.iter().map(|failed| &*failed.record).collect();
        for key in due {
            let of_vpa = || records.iter().filter(|record| record.key.vpa == *key);
            if !failed.is_empty()
                && of_vpa().any(|record| failed.contains(&*record.key.to_string()))
            {
                state.vpa_registry.saves().mark_save_failed(key);
            } else {
                let saved: Vec<_> =
                    of_vpa().map(|record| Arc::clone(&record.key.container)).collect();
                state.vpa_registry.saves().mark_saved(key, &saved, now);
            }
        }
    }

    /// Removes orphaned histories: those of deleted VPAs, and expired ones.
    async fn collect_garbage(&self) {
        let Some(writer) = self.loader.storage.writer() else { return };
        // While the watch fails, new VPAs are not known, and their histories would look orphaned.
        let vpas = &self.loader.targets.watches.vpas;
        if !vpas.is_synced() || vpas.is_failing() {
            return;
        }
        // A timeout of its own, so that a slow save does not prevent the collection.
        let limit = self.shared.config.checkpoints_timeout.max(MIN_GC_TIMEOUT);
        match timeout(limit, self.collect_orphans(writer)).await {
            Ok(Ok(removed)) => {
                self.shared.state.lock().vpa_registry.saves().clear_stale_records();
                if removed > 0 {
                    self.shared.health.count_checkpoints("collected", removed as u64);
                    tracing::info!(removed, "deleted orphaned histories");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "failed to delete orphaned histories"),
            Err(_) => tracing::warn!(?limit, "timed out deleting orphaned histories"),
        }
    }

    async fn collect_orphans(&self, writer: &dyn Writer) -> Result<usize, Error> {
        let without_vpa = Mutex::new(HashSet::new());
        let expired = |key: &ContainerKey| {
            let state = self.shared.state.lock();
            if !state.index.scope.includes(&key.vpa.namespace) {
                return false;
            }
            if !state.index.has_any_vpa(&key.vpa) {
                let mut keys = without_vpa.lock();
                keys.insert(key.vpa.clone());
                return false;
            }
            // Upstream keeps the histories of removed containers.
            let vpa =
                state.vpa_registry.get(&key.vpa).filter(|_| !state.vpa_registry.is_upstream());
            vpa.is_some_and(|vpa| {
                vpa.state == HistoryState::Loaded
                    && vpa.history.get(&key.container).is_none()
                    && vpa.history.supersedes(&key.container)
            })
        };
        let removed = writer.collect_garbage(&expired, &self.leadership.permit).await?;
        // The watch may lag behind and not know of new VPAs: verify with the API server that they are deleted.
        let keys = without_vpa.into_inner();
        let deleted =
            deleted_vpas(&self.shared.client, &self.leadership.permit.limiter, keys).await;
        if deleted.is_empty() {
            return Ok(removed);
        }
        let orphaned = |key: &ContainerKey| {
            deleted.contains(&key.vpa) && !self.shared.state.lock().index.has_any_vpa(&key.vpa)
        };
        Ok(removed + writer.collect_garbage(&orphaned, &self.leadership.permit).await?)
    }

    /// Saves all unsaved history at shutdown.
    pub async fn save_all(&self) {
        if !self.leadership.may_write() || self.loader.storage.writer().is_none() {
            return;
        }
        self.shared.state.lock().vpa_registry.saves().resume_saves();
        match timeout(FINAL_SAVE_TIMEOUT, self.save_due(Duration::ZERO, FINAL_SAVE_TIMEOUT)).await {
            Ok(Ok(())) => tracing::info!("saved history"),
            Ok(Err(error)) => tracing::warn!(%error, "failed to save the latest history"),
            Err(_) => tracing::warn!("timed out saving the latest history"),
        }
    }
}

/// How often the server's time is queried while the clock may be wrong.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Evidence about the local clock.
struct ClockCheck {
    started: Instant,
    /// The same instant on the wall clock and the monotonic clock.
    last_readings: (Time, Instant),
    stored: StoredTimes,
    next_check: Instant,
    is_settled: bool,
    doubt: Option<ClockDoubt>,
}

impl ClockCheck {
    fn new(now: Time) -> Self {
        let started = Instant::now();
        Self {
            started,
            last_readings: (now, started),
            stored: StoredTimes::default(),
            next_check: started,
            is_settled: false,
            doubt: None,
        }
    }

    /// Whether the clock was set since the last call, by more than the tolerance.
    fn clock_was_set(&mut self, now: Time) -> bool {
        let (last_time, last_instant) =
            std::mem::replace(&mut self.last_readings, (now, Instant::now()));
        let expected = last_time.later(last_instant.elapsed());
        let was_set = now.nanos_since(expected).unsigned_abs() > TOLERANCE.as_nanos() as u64;
        if was_set {
            (self.is_settled, self.next_check) = (false, self.last_readings.1);
        }
        was_set
    }

    fn is_due(&self, stored: StoredTimes) -> bool {
        !self.is_settled && (stored != self.stored || Instant::now() >= self.next_check)
    }
}
