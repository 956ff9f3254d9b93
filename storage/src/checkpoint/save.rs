//! Saving: many records at once, each by one call in which status and annotation change together.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use futures::stream::{FuturesUnordered, StreamExt};

use super::{
    api_error::ApiError,
    backend::CheckpointStorage,
    cache::{CacheEntry, CachedContent},
    client::pause,
    desired::DesiredCheckpoint,
    object::CheckpointObject,
    object_names,
};
use crate::{Error, NotLeader, SaveDecision, SaveReport, WritePermit};
use plimsoll_core::history::{Record, SkippedRecord};

/// So often others may get in between before a record is left for the next save.
const MAX_CONFLICT_ROUNDS: usize = 8;
/// After so many records in a row for which the server had no answer, the others are not tried.
const MAX_CONSECUTIVE_FAILURES: usize = 5;

impl CheckpointStorage {
    /// Saves a batch.
    pub(super) async fn save_all(
        &self,
        batch: &[Record],
        permit: &dyn WritePermit,
    ) -> Result<SaveReport, Error> {
        let run =
            SaveRun { permit, stopped: AtomicBool::new(false), unanswered: AtomicUsize::new(0) };
        let mut results = Vec::with_capacity(batch.len());
        let mut waiting = batch.iter().enumerate();
        let mut running = FuturesUnordered::new();
        let mut fenced = None;
        loop {
            while running.len() < self.options.concurrency.max(1) && fenced.is_none() {
                let Some((index, record)) = waiting.next() else { break };
                running.push(self.write_nth(index, record, &run));
            }
            // Without the right to write nothing more begins; what is under way ends.
            match running.next().await {
                Some((index, Ok(outcome))) => results.push((index, outcome)),
                Some((_, Err(refusal))) => drop(fenced.get_or_insert(refusal)),
                None => break,
            }
        }
        if let Some(fenced) = fenced {
            return Err(fenced.into());
        }
        results.sort_unstable_by_key(|&(index, _)| index);
        let mut report = SaveReport::default();
        for (index, outcome) in results {
            let key = &batch[index].key;
            let named = |why| SkippedRecord { record: key.to_string(), reason: why };
            match outcome {
                RecordOutcome::Written => report.written += 1,
                RecordOutcome::Unchanged => report.unchanged += 1,
                RecordOutcome::StoredIsRicher => report.stored_richer.push(key.clone()),
                RecordOutcome::Refused(why) => report.refused.push(named(why)),
                RecordOutcome::Failed(why) => report.failed.push(named(why)),
            }
        }
        Ok(report)
    }

    async fn write_nth(
        &self,
        index: usize,
        record: &Record,
        run: &SaveRun<'_>,
    ) -> (usize, Result<RecordOutcome, NotLeader>) {
        (index, self.write(record, run).await)
    }

    /// Writes one record, unless what is stored is the same or richer.
    async fn write(&self, record: &Record, run: &SaveRun<'_>) -> Result<RecordOutcome, NotLeader> {
        if let Some(why) = object_names::invalid_key_reason(&record.key) {
            return Ok(RecordOutcome::Refused(why));
        }
        let plan =
            match DesiredCheckpoint::new(record, (self.now)(), self.options.write_annotations) {
                Ok(plan) => plan,
                Err(error) => return Ok(RecordOutcome::Refused(error.to_string())),
            };
        let mut attempt = Attempt::default();
        for _ in 0..MAX_CONFLICT_ROUNDS {
            let known = self.table.get(&record.key);
            if let Some(outcome) = decide_without_call(record, &plan, known.as_ref(), &attempt) {
                return Ok(outcome);
            }
            let done = match &known {
                Some(CacheEntry { content: CachedContent::Unknown, .. }) => {
                    self.refresh_cached(record, &mut attempt).await.map(|()| false)
                }
                _ if run.should_give_up() => {
                    return Ok(RecordOutcome::Failed(
                        "not tried, as others were not answered".into(),
                    ));
                }
                _ => {
                    run.acquire().await?;
                    self.send(record, &plan, known.as_ref(), &mut attempt).await
                }
            };
            let failure = match done {
                Ok(true) => {
                    run.unanswered.store(0, Relaxed);
                    return Ok(RecordOutcome::Written);
                }
                Ok(false) => continue,
                Err(failure) => failure,
            };
            if let Some(outcome) = run.handle_error(failure, &mut attempt).await {
                return Ok(outcome);
            }
        }
        Ok(RecordOutcome::Failed(attempt.why.unwrap_or(ApiError::Conflict).why()))
    }

    /// Creates or changes the object; answers whether that is done. From the moment of sending until the answer nobody knows what is
    /// stored, even if this is never resumed.
    async fn send(
        &self,
        record: &Record,
        plan: &DesiredCheckpoint,
        known: Option<&CacheEntry>,
        attempt: &mut Attempt,
    ) -> Result<bool, ApiError> {
        let (key, namespace) = (&record.key, &*record.key.vpa.namespace);
        attempt.write_unconfirmed = true;
        let name = match known {
            Some(stored) => stored.name(key),
            None => object_names::object_name(key, attempt.plain_is_taken),
        };
        let sent = if let Some(stored) = known {
            self.table.mark_unknown(key);
            self.calls.patch(namespace, &name, &plan.operations(stored)).await
        } else {
            self.table.put(key, Some(CacheEntry::unsure(key, &name)));
            self.calls.create(namespace, &plan.object(record, &name)).await
        };
        match sent {
            Ok(version) => {
                let mut entry = CacheEntry::unsure(key, &name);
                entry.version = version;
                entry.annotated = match known {
                    Some(stored) => plan.has_annotations_after(stored),
                    None => plan.fingerprint.annotation.is_some(),
                };
                entry.content = CachedContent::History(plan.fingerprint_after(known));
                self.table.put(key, Some(entry));
                Ok(true)
            }
            // Somebody has changed or created it: it is read in the next round, and judged again.
            Err(ApiError::Conflict | ApiError::AlreadyExists) => {
                attempt.write_unconfirmed = false;
                Ok(false)
            }
            Err(ApiError::NotFound(why)) => {
                attempt.write_unconfirmed = false;
                self.table.put(key, None);
                // Gone since it was seen: it is made anew. What cannot be made for want of a namespace is not.
                if known.is_some() { Ok(false) } else { Err(ApiError::NotFound(why)) }
            }
            Err(ApiError::Invalid(why)) => {
                attempt.write_unconfirmed = false;
                if known.is_none() {
                    self.table.put(key, None);
                    attempt.invalid = true;
                }
                Err(ApiError::Invalid(why))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reads the object that may be there.
    async fn refresh_cached(&self, record: &Record, attempt: &mut Attempt) -> Result<(), ApiError> {
        let key = &record.key;
        let Some(name) = self.table.get(key).map(|entry| entry.name(key)) else { return Ok(()) };
        let found = self.calls.get(&key.vpa.namespace, &name).await?;
        match found.map(CheckpointObject::read) {
            Some(Ok(object)) if object.key == *key => {
                self.table.put(key, Some(CacheEntry::from_object(&object)));
            }
            // The name belongs to another container, or to nobody who says so.
            Some(_) => {
                self.table.put(key, None);
                if attempt.plain_is_taken {
                    return Err(ApiError::AlreadyExists);
                }
                attempt.plain_is_taken = true;
            }
            None => self.table.put(key, None),
        }
        Ok(())
    }
}

/// What becomes of a record, as far as it is known without a call.
fn decide_without_call(
    record: &Record,
    plan: &DesiredCheckpoint,
    known: Option<&CacheEntry>,
    attempt: &Attempt,
) -> Option<RecordOutcome> {
    match &known?.content {
        CachedContent::Unknown | CachedContent::Empty => None,
        CachedContent::Foreign(_) if record.supersede => None,
        CachedContent::Foreign(why) => Some(RecordOutcome::Refused(why.to_string())),
        CachedContent::History(stored) => {
            let (richness, same) = (record.snapshot.sample_rank(), plan.equals_stored(stored));
            match SaveDecision::decide(richness, record.supersede, Some(stored.richness), same) {
                // It went through, though nobody said so.
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

/// What became of a record.
enum RecordOutcome {
    Written,
    Unchanged,
    StoredIsRicher,
    Refused(String),
    Failed(String),
}

/// What was tried for one record.
#[derive(Default)]
struct Attempt {
    /// The name that upstream would choose is that of another container.
    plain_is_taken: bool,
    /// A write went out whose answer did not come.
    write_unconfirmed: bool,
    /// Calls that were not answered.
    failures: usize,
    /// It was refused for what it says.
    invalid: bool,
    why: Option<ApiError>,
}

/// One save.
struct SaveRun<'a> {
    permit: &'a dyn WritePermit,
    stopped: AtomicBool,
    /// Records in a row for which there was no answer.
    unanswered: AtomicUsize,
}

impl SaveRun<'_> {
    fn should_give_up(&self) -> bool {
        self.unanswered.load(Relaxed) >= MAX_CONSECUTIVE_FAILURES
    }

    /// The permit for one call that writes.
    async fn acquire(&self) -> Result<(), NotLeader> {
        let lost = || NotLeader("another write of the same batch was refused".into());
        if self.stopped.load(SeqCst) {
            return Err(lost());
        }
        let granted = self.permit.acquire().await;
        if granted.is_err() {
            self.stopped.store(true, SeqCst);
        }
        granted
    }

    /// What a failure means for the record: `None` to go on after a while.
    async fn handle_error(
        &self,
        failure: ApiError,
        attempt: &mut Attempt,
    ) -> Option<RecordOutcome> {
        match &failure {
            ApiError::Transient(_, asked) => {
                let Some(pause) = pause(attempt.failures, *asked) else {
                    self.unanswered.fetch_add(1, Relaxed);
                    return Some(RecordOutcome::Failed(failure.why()));
                };
                attempt.failures += 1;
                attempt.why = Some(failure);
                tokio::time::sleep(pause).await;
                None
            }
            // A patch that does not fit what is stored is refused so too: looked at once more.
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
