//! Saves records concurrently. Each is one call that changes the status and the annotation together. Deletes orphaned
//! objects one by one.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt};

use super::{
    CheckpointStorage,
    api_error::ApiError,
    cache::{CacheEntry, CachedContent},
    desired::DesiredCheckpoint,
    load::CheckpointPages,
    object::{CheckpointContent, CheckpointObject},
    object_names,
};
use crate::{Error, NotLeader, OrphanPredicate, SaveDecision, SaveReport, WritePermit, Writer};
use plimsoll_core::history::{Record, SkippedRecord};

/// Maximum number of conflicts before a record is left to the next save.
const MAX_CONFLICT_ROUNDS: usize = 8;
/// Maximum number of consecutive records without a response. Then the others are not tried.
const MAX_CONSECUTIVE_FAILURES: usize = 5;

#[async_trait]
impl Writer for CheckpointStorage {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let run = SaveRun {
            storage: self,
            permit,
            stopped: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
        };
        let mut results = Vec::with_capacity(batch.len());
        let mut waiting = batch.iter().enumerate();
        let mut running = FuturesUnordered::new();
        let mut not_leader = None;
        loop {
            while running.len() < self.options.concurrency.max(1) && not_leader.is_none() {
                let Some((index, record)) = waiting.next() else { break };
                let run = &run;
                running.push(async move { (index, run.write(record).await) });
            }
            // Without the lease no new writes start, but running ones complete.
            match running.next().await {
                Some((index, Ok(outcome))) => results.push((index, outcome)),
                Some((_, Err(refusal))) => drop(not_leader.get_or_insert(refusal)),
                None => break,
            }
        }
        if let Some(not_leader) = not_leader {
            return Err(not_leader.into());
        }
        results.sort_unstable_by_key(|&(index, _)| index);
        let mut report = SaveReport::default();
        for (index, outcome) in results {
            let key = &batch[index].key;
            let skipped = |why| SkippedRecord { record: key.to_string(), reason: why };
            match outcome {
                RecordOutcome::Written => report.written += 1,
                RecordOutcome::Unchanged => report.unchanged += 1,
                RecordOutcome::StoredIsRicher => report.stored_richer.push(key.clone()),
                RecordOutcome::Refused(why) => report.refused.push(skipped(why)),
                RecordOutcome::Failed(why) => report.failed.push(skipped(why)),
            }
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let mut removed = 0;
        let mut list = CheckpointPages::new(self.options.namespace.as_deref());
        while let Some(page) = list.next(self).await? {
            for object in page {
                // Objects that cannot be read are kept.
                let Ok(object) = CheckpointObject::read(object) else { continue };
                let ours = matches!(
                    object.content,
                    CheckpointContent::History(_) | CheckpointContent::Empty
                );
                if ours && orphaned(&object.key) {
                    removed += usize::from(remove(self, object, permit).await?);
                }
            }
        }
        self.table.forget_orphans(orphaned);
        Ok(removed)
    }
}

async fn remove(
    storage: &CheckpointStorage,
    object: CheckpointObject,
    permit: &dyn WritePermit,
) -> Result<bool, Error> {
    let namespace = &*object.key.vpa.namespace;
    for failures in 0.. {
        permit.acquire().await?;
        storage.table.mark_unknown(&object.key);
        let (uid, version) = (object.uid.clone(), &*object.version);
        match storage.calls.delete(namespace, &object.name, uid, version).await {
            Ok(()) => {
                storage.table.put(&object.key, None);
                return Ok(true);
            }
            // Already deleted, or changed since: the writer knows of an owner.
            Err(ApiError::NotFound(_) | ApiError::Conflict) => break,
            Err(failure) => match failure.retry_delay(failures) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => {
                    return Err(failure.into_error(&CheckpointStorage::location(Some(namespace))));
                }
            },
        }
    }
    Ok(false)
}

/// Decides from the cache, without a call, whether the record has to be written. `None` if it has.
fn decide_without_call(
    record: &Record,
    desired: &DesiredCheckpoint,
    cached: Option<&CacheEntry>,
    attempt: &Attempt,
) -> Option<RecordOutcome> {
    match &cached?.content {
        CachedContent::Unknown | CachedContent::Empty => None,
        CachedContent::Foreign(_) if record.supersede => None,
        CachedContent::Foreign(why) => Some(RecordOutcome::Refused(why.to_string())),
        CachedContent::History(stored) => {
            let (richness, same) = (record.snapshot.sample_rank(), desired.equals_stored(stored));
            match SaveDecision::decide(richness, record.supersede, Some(stored.richness), same) {
                // An earlier write succeeded, although its response was lost.
                SaveDecision::Unchanged if attempt.write_unconfirmed => {
                    Some(RecordOutcome::Written)
                }
                SaveDecision::Unchanged => Some(RecordOutcome::Unchanged),
                SaveDecision::StoredIsRicher => Some(RecordOutcome::StoredIsRicher),
                SaveDecision::Write => None,
            }
        }
    }
}

enum RecordOutcome {
    Written,
    Unchanged,
    StoredIsRicher,
    Refused(String),
    Failed(String),
}

#[derive(Default)]
struct Attempt {
    /// Upstream's name is used by another container.
    plain_is_taken: bool,
    write_unconfirmed: bool,
    failures: usize,
    invalid: bool,
    why: Option<ApiError>,
}

struct SaveRun<'a> {
    storage: &'a CheckpointStorage,
    permit: &'a dyn WritePermit,
    stopped: AtomicBool,
    /// Number of consecutive records without a response.
    unanswered: AtomicUsize,
}

impl SaveRun<'_> {
    /// Writes one record, unless the stored one is the same or richer.
    async fn write(&self, record: &Record) -> Result<RecordOutcome, NotLeader> {
        if let Some(why) = object_names::invalid_key_reason(&record.key) {
            return Ok(RecordOutcome::Refused(why));
        }
        let desired = match DesiredCheckpoint::new(
            record,
            (self.storage.now)(),
            self.storage.options.write_annotations,
        ) {
            Ok(desired) => desired,
            Err(error) => return Ok(RecordOutcome::Refused(error.to_string())),
        };
        let mut attempt = Attempt::default();
        for _ in 0..MAX_CONFLICT_ROUNDS {
            let cached = self.storage.table.get(&record.key);
            if let Some(outcome) = decide_without_call(record, &desired, cached.as_ref(), &attempt)
            {
                return Ok(outcome);
            }
            let result = match &cached {
                Some(CacheEntry { content: CachedContent::Unknown, .. }) => {
                    self.refresh_cached(record, &mut attempt).await.map(|()| false)
                }
                _ if self.unanswered.load(Relaxed) >= MAX_CONSECUTIVE_FAILURES => {
                    return Ok(RecordOutcome::Failed(
                        "not tried, because the API server did not respond to other writes".into(),
                    ));
                }
                _ => {
                    self.acquire().await?;
                    self.send(record, &desired, cached.as_ref(), &mut attempt).await
                }
            };
            let failure = match result {
                Ok(true) => {
                    self.unanswered.store(0, Relaxed);
                    return Ok(RecordOutcome::Written);
                }
                Ok(false) => continue,
                Err(failure) => failure,
            };
            if let Some(outcome) = self.handle_error(failure, &mut attempt).await {
                return Ok(outcome);
            }
        }
        Ok(RecordOutcome::Failed(attempt.why.unwrap_or(ApiError::Conflict).why()))
    }

    /// Creates or changes the object, and returns whether that succeeded. The cached state is unknown from sending until
    /// the response, even if this future is dropped.
    async fn send(
        &self,
        record: &Record,
        desired: &DesiredCheckpoint,
        cached: Option<&CacheEntry>,
        attempt: &mut Attempt,
    ) -> Result<bool, ApiError> {
        use ApiError::{AlreadyExists, Conflict, Invalid, NotFound};
        let (key, namespace) = (&record.key, &*record.key.vpa.namespace);
        let name = match cached {
            Some(stored) => stored.name(key),
            None => object_names::object_name(key, attempt.plain_is_taken),
        };
        let result = if let Some(stored) = cached {
            self.storage.table.mark_unknown(key);
            self.storage.calls.patch(namespace, &name, &desired.operations(stored)).await
        } else {
            self.storage.table.put(key, Some(CacheEntry::unsure(key, &name)));
            self.storage.calls.create(namespace, &desired.object(record, &name)).await
        };
        attempt.write_unconfirmed =
            !matches!(result, Err(Conflict | AlreadyExists | NotFound(_) | Invalid(_)));
        match result {
            Ok(version) => {
                let mut entry = CacheEntry::unsure(key, &name);
                entry.version = version;
                entry.annotated = cached.is_some_and(|stored| stored.annotated)
                    || desired.fingerprint.annotation.is_some();
                entry.content = CachedContent::History(desired.fingerprint_after(cached));
                self.storage.table.put(key, Some(entry));
                Ok(true)
            }
            // Another writer changed or created it: read it and decide again in the next round.
            Err(Conflict | AlreadyExists) => Ok(false),
            Err(NotFound(why)) => {
                self.storage.table.put(key, None);
                // Deleted since it was cached: create it again. If a create fails, the namespace is missing.
                if cached.is_some() { Ok(false) } else { Err(NotFound(why)) }
            }
            Err(Invalid(why)) => {
                if cached.is_none() {
                    self.storage.table.put(key, None);
                    attempt.invalid = true;
                }
                Err(Invalid(why))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reads the object, which may exist, into the cache.
    async fn refresh_cached(&self, record: &Record, attempt: &mut Attempt) -> Result<(), ApiError> {
        let key = &record.key;
        let Some(name) = self.storage.table.get(key).map(|entry| entry.name(key)) else {
            return Ok(());
        };
        let found = self.storage.calls.get(&key.vpa.namespace, &name).await?;
        match found.map(CheckpointObject::read) {
            Some(Ok(object)) if object.key == *key => {
                self.storage.table.put(key, Some(CacheEntry::from_object(&object)));
            }
            // The object belongs to another container, or is malformed.
            Some(_) => {
                self.storage.table.put(key, None);
                if attempt.plain_is_taken {
                    return Err(ApiError::AlreadyExists);
                }
                attempt.plain_is_taken = true;
            }
            None => self.storage.table.put(key, None),
        }
        Ok(())
    }

    async fn acquire(&self) -> Result<(), NotLeader> {
        if self.stopped.load(SeqCst) {
            return Err(NotLeader("another write of the same batch was not permitted".into()));
        }
        let granted = self.permit.acquire().await;
        if granted.is_err() {
            self.stopped.store(true, SeqCst);
        }
        granted
    }

    /// Decides whether to retry after a failure: `None` to retry, after the delay.
    async fn handle_error(
        &self,
        failure: ApiError,
        attempt: &mut Attempt,
    ) -> Option<RecordOutcome> {
        match &failure {
            ApiError::Transient(..) => {
                let Some(delay) = failure.retry_delay(attempt.failures) else {
                    self.unanswered.fetch_add(1, Relaxed);
                    return Some(RecordOutcome::Failed(failure.why()));
                };
                attempt.failures += 1;
                attempt.why = Some(failure);
                tokio::time::sleep(delay).await;
                None
            }
            // The server also rejects a patch that does not apply to the stored object: read it and try once more.
            ApiError::Invalid(_) if !attempt.invalid => {
                attempt.invalid = true;
                attempt.why = Some(failure);
                None
            }
            ApiError::Invalid(_) => Some(RecordOutcome::Refused(failure.why())),
            _ => Some(RecordOutcome::Failed(failure.why())),
        }
    }
}
