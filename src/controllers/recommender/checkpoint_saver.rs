//! Saving: the histories that changed, the most urgent first, and the collection of those that nobody owns.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::Record,
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{Error, SaveReport, Writer};
use tokio::time::timeout;

use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, ShutdownToken, storage_loader::POLL_INTERVAL};
use crate::cluster::{
    cache::deleted_vpas::deleted_vpas, server_time::server_time, target::scale::RequestGate,
};
use plimsoll_core::recommender::{
    HistoryState,
    clock_doubt::{ClockDoubt, ClockEvidence, StoredTimes, TOLERANCE},
};

/// How many VPAs are saved at a time: their records are in memory until they are written, and what a stop
/// cuts off has to be written again.
const VPAS_PER_SAVE: usize = 16;

/// How long a collection of orphans may take at least.
const MIN_GC_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a final save may take: less than the half minute that a pod is given to end.
const FINAL_SAVE_TIMEOUT: Duration = Duration::from_secs(20);

impl Recommender {
    /// Writes the histories that changed, as long as this process may write.
    pub(super) async fn run_save_loop(self: Arc<Self>, stop: ShutdownToken) {
        if self.storage.writer().is_none() {
            return;
        }
        let mut pause = MIN_BACKOFF;
        let mut last_collection = self.clock.now();
        let mut clock_check = ClockCheck::new(self.clock.now());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.save_trigger.triggered() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            if !self.may_write() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.check_clock(&mut clock_check) => {}
            }
            let saved = tokio::select! {
                () = stop.cancelled() => return,
                saved = self.save_due(self.config.checkpoint_interval, self.config.checkpoints_timeout) => saved,
            };
            match saved {
                Ok(()) => pause = MIN_BACKOFF,
                Err(error) => {
                    tracing::warn!(%error, "history could not be saved; it stays due");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(MAX_BACKOFF);
                    // Orphans are collected all the same: a single record may fail for ever.
                }
            }
            let now = self.clock.now();
            let due = last_collection.later(self.config.checkpoints_gc_interval);
            if (now >= due || now < last_collection) && clock_check.doubt.is_none() {
                last_collection = now;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.collect_garbage() => {}
                }
            }
        }
    }

    /// Finds out whether the clock may be wrong, as long as that is not settled. While it may be, no stored history is
    /// replaced or collected for looking expired, or written in the future.
    async fn check_clock(&self, check: &mut ClockCheck) {
        let stored = {
            let mut core = self.state.lock();
            // What was judged by the clock before it was set may count after all.
            if self.clock.is_wall() && check.clock_was_set(self.clock.now()) {
                core.vpa_registry.forget_expired_by_clock();
            }
            core.vpa_registry.stored_times()
        };
        if !check.is_due(stored) {
            return;
        }
        // A test's clock is not the server's.
        let server = if stored.needs_evidence() && self.clock.is_wall() {
            server_time(&self.client).await
        } else {
            None
        };
        let now = self.clock.now();
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
                "the clock of this process may be wrong: stored histories look expired or written in the future; none is                  replaced or collected before the clock is right, or an hour is over without contradiction"
            ),
            (Some(_), None) => tracing::info!(
                %now,
                server = server.map(tracing::field::display),
                "the clock of this process is trusted; histories are saved and collected again"
            ),
            _ => {}
        }
        // Before anything was read there is nothing to judge by.
        let keep = doubt.is_some() || stored == StoredTimes::default();
        self.state.lock().vpa_registry.keep_expired(keep);
        check.record(stored, doubt, StoredTimes::is_settled(evidence, doubt));
    }

    /// Saves what is due at this age, a batch at a time, and begins no other batch once the time is over.
    /// Nothing under way is cut off, and each call brings at least one batch further. What fails while others
    /// succeed is left for the next time; then it goes last.
    async fn save_due(&self, age: Duration, limit: Duration) -> Result<(), Error> {
        let began = Instant::now();
        let (mut tried, mut failure) = (HashSet::new(), None);
        loop {
            if !self.may_write() {
                return Ok(());
            }
            let now = self.clock.now();
            let due = self.state.lock().vpa_registry.due_for_save(now, age, VPAS_PER_SAVE, &tried);
            if due.is_empty() {
                if !tried.is_empty() && failure.is_none() {
                    self.health.set_checkpoints_saved_at(now);
                }
                return failure.map_or(Ok(()), Err);
            }
            let saved = self.save(&due, now).await;
            tried.extend(due);
            match saved? {
                SaveOutcome::Complete => {}
                SaveOutcome::Partial(error) => failure = Some(error),
                SaveOutcome::Failed(error) => return Err(error),
            }
            if began.elapsed() > limit {
                // The rest is begun with next time: a large cluster is saved in several turns.
                if failure.is_none() {
                    self.health.set_checkpoints_saved_at(now);
                }
                return failure.map_or(Ok(()), Err);
            }
        }
    }

    async fn save(&self, due: &[ObjectKey], now: Time) -> Result<SaveOutcome, Error> {
        let Some(writer) = self.storage.writer() else { return Ok(SaveOutcome::Complete) };
        let records: Vec<Record> = {
            let mut core = self.state.lock();
            due.iter().flat_map(|key| core.vpa_registry.records(key, now)).collect()
        };
        let report = match writer.save(&records, &self.permit).await {
            Ok(report) => report,
            Err(error) => {
                self.mark_unsaved(due);
                return Err(error);
            }
        };
        self.record_saved(due, &records, &report, now);
        if !report.stored_richer.is_empty() {
            let richer: HashSet<ObjectKey> =
                report.stored_richer.iter().map(|key| key.vpa.clone()).collect();
            let richer: Vec<ObjectKey> = richer.into_iter().collect();
            self.adopt_stored_records(&richer).await?;
        }
        let Some(first) = report.failed.first() else { return Ok(SaveOutcome::Complete) };
        let why =
            format!("{} records failed, {}: {}", report.failed.len(), first.record, first.reason);
        let error = Error::Unavailable { place: self.storage.name().into(), why };
        let none = report.failed.len() == records.len();
        Ok(if none { SaveOutcome::Failed(error) } else { SaveOutcome::Partial(error) })
    }

    fn mark_unsaved(&self, due: &[ObjectKey]) {
        let mut core = self.state.lock();
        for key in due {
            core.vpa_registry.mark_save_failed(key);
        }
    }

    fn record_saved(&self, due: &[ObjectKey], records: &[Record], report: &SaveReport, now: Time) {
        let SaveReport { written, unchanged, stored_richer: kept_richer, refused, failed } = report;
        for (outcome, count) in [
            ("written", *written),
            ("unchanged", *unchanged),
            ("kept_richer", kept_richer.len()),
            ("refused", refused.len()),
            ("failed", failed.len()),
        ] {
            self.health.count_checkpoints(outcome, count as u64);
        }
        let why: HashMap<&str, &str> =
            refused.iter().map(|it| (&*it.record, &*it.reason)).collect();
        let failed: HashSet<&str> = failed.iter().map(|failed| &*failed.record).collect();
        let mut core = self.state.lock();
        if !why.is_empty() {
            for record in records {
                let what = record.key.to_string();
                // It is refused every time; once is enough to say so.
                if let Some(why) = why.get(&*what)
                    && core.vpa_registry.mark_rejected(&record.key.vpa)
                {
                    tracing::warn!(what, why, "history can never be saved");
                }
            }
        }
        let mut of: HashMap<&ObjectKey, (Vec<Arc<str>>, bool)> = HashMap::new();
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
                Some((_, true)) => core.vpa_registry.mark_save_failed(key),
                Some((containers, false)) => core.vpa_registry.mark_saved(key, containers, now),
                None => core.vpa_registry.mark_saved(key, &[], now),
            }
        }
    }

    /// Removes what nobody owns any more: histories of VPAs that are gone, and those that expired.
    async fn collect_garbage(&self) {
        let Some(writer) = self.storage.writer() else { return };
        // Who is not told of new VPAs would take their histories for orphans.
        if !self.watches.vpas.is_synced() || self.watches.vpas.is_failing() {
            return;
        }
        // Its own time: a slow save before must not cost the collection.
        let limit = self.config.checkpoints_timeout.max(MIN_GC_TIMEOUT);
        match timeout(limit, self.collect_orphans(writer)).await {
            Ok(Ok(removed)) => {
                self.state.lock().vpa_registry.clear_stale_records();
                if removed > 0 {
                    self.health.count_checkpoints("collected", removed as u64);
                    tracing::info!(removed, "orphaned histories collected");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "orphaned histories were not collected"),
            Err(_) => tracing::warn!(?limit, "orphaned histories were not all collected in time"),
        }
    }

    async fn collect_orphans(&self, writer: &dyn Writer) -> Result<usize, Error> {
        let without_vpa = Mutex::new(HashSet::new());
        let expired = |key: &ContainerKey| {
            let core = self.state.lock();
            if !core.index.scope().includes(&key.vpa.namespace) {
                return false;
            }
            if !core.index.has_any_vpa(&key.vpa) {
                let mut keys = without_vpa.lock().unwrap_or_else(PoisonError::into_inner);
                keys.insert(key.vpa.clone());
                return false;
            }
            // Upstream keeps those of containers that are gone.
            let watched =
                core.vpa_registry.get(&key.vpa).filter(|_| !core.vpa_registry.is_upstream());
            watched.is_some_and(|watched| {
                watched.state() == HistoryState::Loaded
                    && watched.history().get(&key.container).is_none()
                    && watched.history().supersedes(&key.container)
            })
        };
        let removed = writer.collect_garbage(&expired, &self.permit).await?;
        // A watch that is behind does not know of new VPAs: whether one is deleted, the API server has to say.
        let keys = without_vpa.into_inner().unwrap_or_else(PoisonError::into_inner);
        let limiter = self.permit.limiter().clone();
        let gate: RequestGate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await })
        });
        let deleted = deleted_vpas(&self.client, &gate, keys).await;
        if deleted.is_empty() {
            return Ok(removed);
        }
        let orphaned = |key: &ContainerKey| {
            deleted.contains(&key.vpa) && !self.state.lock().index.has_any_vpa(&key.vpa)
        };
        Ok(removed + writer.collect_garbage(&orphaned, &self.permit).await?)
    }

    /// Writes everything that is not saved yet, at the end.
    pub(super) async fn save_all(&self) {
        if !self.may_write() || self.storage.writer().is_none() {
            return;
        }
        self.state.lock().vpa_registry.resume_saves();
        match timeout(FINAL_SAVE_TIMEOUT, self.save_due(Duration::ZERO, FINAL_SAVE_TIMEOUT)).await {
            Ok(Ok(())) => tracing::info!("history saved"),
            Ok(Err(error)) => tracing::warn!(%error, "the last changes of history were not saved"),
            Err(_) => tracing::warn!("the last changes of history were not all saved in time"),
        }
    }
}

/// How often the time is asked for while the clock may be wrong.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// What is known of this process's clock.
struct ClockCheck {
    started: Instant,
    /// The same moment by both clocks.
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

    /// Whether the clock was set since the last call, by so much that histories are judged otherwise.
    fn clock_was_set(&mut self, now: Time) -> bool {
        let (before, then) = std::mem::replace(&mut self.last_readings, (now, Instant::now()));
        let expected = before.later(then.elapsed());
        let was_set = now.nanos_since(expected).unsigned_abs() > TOLERANCE.as_nanos() as u64;
        if was_set {
            (self.is_settled, self.next_check) = (false, self.last_readings.1);
        }
        was_set
    }

    fn is_due(&self, stored: StoredTimes) -> bool {
        !self.is_settled && (stored != self.stored || Instant::now() >= self.next_check)
    }

    fn record(&mut self, stored: StoredTimes, doubt: Option<ClockDoubt>, is_settled: bool) {
        (self.stored, self.doubt, self.is_settled) = (stored, doubt, is_settled);
        self.next_check = Instant::now() + CLOCK_CHECK_INTERVAL;
    }
}

/// How much of a batch was saved.
enum SaveOutcome {
    Complete,
    Partial(Error),
    Failed(Error),
}
