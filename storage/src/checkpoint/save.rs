//! Saving: many records at once, each by one call in which status and annotation change together.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use futures::stream::{FuturesUnordered, StreamExt};

use super::{
    calls::pause,
    failure::Failure,
    names,
    object::Object,
    plan::Plan,
    store::Checkpoints,
    table::{Entry, Holds},
};
use crate::{Error, Fenced, SaveReport, Standing, WritePermit};
use plimsoll_core::history::{Record, Skipped};

/// So often others may get in between before a record is left for the next save.
const ROUNDS: usize = 8;
/// After so many records in a row for which the server had no answer, the others are not tried.
const HOPELESS: usize = 5;

impl Checkpoints {
    /// Saves a batch.
    pub(super) async fn save_all(
        &self,
        batch: &[Record],
        permit: &dyn WritePermit,
    ) -> Result<SaveReport, Error> {
        let run = Run { permit, stopped: AtomicBool::new(false), unanswered: AtomicUsize::new(0) };
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
            let named = |why| Skipped { what: key.to_string(), why };
            match outcome {
                Outcome::Written => report.written += 1,
                Outcome::Unchanged => report.unchanged += 1,
                Outcome::KeptRicher => report.kept_richer.push(key.clone()),
                Outcome::Refused(why) => report.refused.push(named(why)),
                Outcome::Failed(why) => report.failed.push(named(why)),
            }
        }
        Ok(report)
    }

    async fn write_nth(
        &self,
        index: usize,
        record: &Record,
        run: &Run<'_>,
    ) -> (usize, Result<Outcome, Fenced>) {
        (index, self.write(record, run).await)
    }

    /// Writes one record, unless what is stored is the same or richer.
    async fn write(&self, record: &Record, run: &Run<'_>) -> Result<Outcome, Fenced> {
        if let Some(why) = names::why_impossible(&record.key) {
            return Ok(Outcome::Refused(why));
        }
        let plan = match Plan::new(record, (self.now)(), self.options.extras) {
            Ok(plan) => plan,
            Err(error) => return Ok(Outcome::Refused(error.to_string())),
        };
        let mut attempt = Attempt::default();
        for _ in 0..ROUNDS {
            let known = self.table.get(&record.key);
            if let Some(outcome) = judge(record, &plan, known.as_ref(), &attempt) {
                return Ok(outcome);
            }
            let done = match &known {
                Some(Entry { holds: Holds::Unsure, .. }) => {
                    self.look(record, &mut attempt).await.map(|()| false)
                }
                _ if run.is_hopeless() => {
                    return Ok(Outcome::Failed("not tried, as others were not answered".into()));
                }
                _ => {
                    run.acquire().await?;
                    self.send(record, &plan, known.as_ref(), &mut attempt).await
                }
            };
            let failure = match done {
                Ok(true) => {
                    run.unanswered.store(0, Relaxed);
                    return Ok(Outcome::Written);
                }
                Ok(false) => continue,
                Err(failure) => failure,
            };
            if let Some(outcome) = run.after(failure, &mut attempt).await {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Failed(attempt.why.unwrap_or(Failure::Conflict).why()))
    }

    /// Creates or changes the object; answers whether that is done. From the moment of sending until the answer nobody knows what is
    /// stored, even if this is never resumed.
    async fn send(
        &self,
        record: &Record,
        plan: &Plan,
        known: Option<&Entry>,
        attempt: &mut Attempt,
    ) -> Result<bool, Failure> {
        let (key, namespace) = (&record.key, &*record.key.vpa.namespace);
        attempt.sent = true;
        let name = match known {
            Some(stored) => stored.name(key),
            None => names::of(key, attempt.plain_is_taken),
        };
        let sent = if let Some(stored) = known {
            self.table.doubt(key);
            self.calls.patch(namespace, &name, &plan.operations(stored)).await
        } else {
            self.table.put(key, Some(Entry::unsure(key, &name)));
            self.calls.create(namespace, &plan.object(record, &name)).await
        };
        match sent {
            Ok(version) => {
                let mut entry = Entry::unsure(key, &name);
                entry.version = version;
                entry.annotated = match known {
                    Some(stored) => plan.leaves_annotated(stored),
                    None => plan.print.annotation.is_some(),
                };
                entry.holds = Holds::History(plan.leaves(known));
                self.table.put(key, Some(entry));
                Ok(true)
            }
            // Somebody has changed or created it: it is read in the next round, and judged again.
            Err(Failure::Conflict | Failure::Exists) => {
                attempt.sent = false;
                Ok(false)
            }
            Err(Failure::Absent(why)) => {
                attempt.sent = false;
                self.table.put(key, None);
                // Gone since it was seen: it is made anew. What cannot be made for want of a namespace is not.
                if known.is_some() { Ok(false) } else { Err(Failure::Absent(why)) }
            }
            Err(Failure::Invalid(why)) => {
                attempt.sent = false;
                if known.is_none() {
                    self.table.put(key, None);
                    attempt.invalid = true;
                }
                Err(Failure::Invalid(why))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reads the object that may be there.
    async fn look(&self, record: &Record, attempt: &mut Attempt) -> Result<(), Failure> {
        let key = &record.key;
        let Some(name) = self.table.get(key).map(|entry| entry.name(key)) else { return Ok(()) };
        let found = self.calls.get(&key.vpa.namespace, &name).await?;
        match found.map(Object::read) {
            Some(Ok(object)) if object.key == *key => {
                self.table.put(key, Some(Entry::of(&object)));
            }
            // The name belongs to another container, or to nobody who says so.
            Some(_) => {
                self.table.put(key, None);
                if attempt.plain_is_taken {
                    return Err(Failure::Exists);
                }
                attempt.plain_is_taken = true;
            }
            None => self.table.put(key, None),
        }
        Ok(())
    }
}

/// What becomes of a record, as far as it is known without a call.
fn judge(
    record: &Record,
    plan: &Plan,
    known: Option<&Entry>,
    attempt: &Attempt,
) -> Option<Outcome> {
    match &known?.holds {
        Holds::Unsure | Holds::Nothing => None,
        Holds::Foreign(_) if record.supersede => None,
        Holds::Foreign(why) => Some(Outcome::Refused(why.to_string())),
        Holds::History(stored) => {
            let (richness, same) = (record.snapshot.richness(), plan.is_stored(stored));
            match Standing::of(richness, record.supersede, Some(stored.richness), same) {
                // It went through, though nobody said so.
                Standing::Unchanged if attempt.sent => Some(Outcome::Written),
                Standing::Unchanged => Some(Outcome::Unchanged),
                Standing::Poorer => Some(Outcome::KeptRicher),
                Standing::Changes => None,
            }
        }
    }
}

/// What became of a record.
enum Outcome {
    Written,
    Unchanged,
    KeptRicher,
    Refused(String),
    Failed(String),
}

/// What was tried for one record.
#[derive(Default)]
struct Attempt {
    /// The name that upstream would choose is that of another container.
    plain_is_taken: bool,
    /// A write went out whose answer did not come.
    sent: bool,
    /// Calls that were not answered.
    failures: usize,
    /// It was refused for what it says.
    invalid: bool,
    why: Option<Failure>,
}

/// One save.
struct Run<'a> {
    permit: &'a dyn WritePermit,
    stopped: AtomicBool,
    /// Records in a row for which there was no answer.
    unanswered: AtomicUsize,
}

impl Run<'_> {
    fn is_hopeless(&self) -> bool {
        self.unanswered.load(Relaxed) >= HOPELESS
    }

    /// The permit for one call that writes.
    async fn acquire(&self) -> Result<(), Fenced> {
        let lost = || Fenced("another write of the same batch was refused".into());
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
    async fn after(&self, failure: Failure, attempt: &mut Attempt) -> Option<Outcome> {
        match &failure {
            Failure::Passing(_, asked) => {
                let Some(pause) = pause(attempt.failures, *asked) else {
                    self.unanswered.fetch_add(1, Relaxed);
                    return Some(Outcome::Failed(failure.why()));
                };
                attempt.failures += 1;
                attempt.why = Some(failure);
                tokio::time::sleep(pause).await;
                None
            }
            // A patch that does not fit what is stored is refused so too: looked at once more.
            Failure::Invalid(_) if !attempt.invalid => {
                attempt.invalid = true;
                attempt.why = Some(failure);
                None
            }
            Failure::Invalid(_) => Some(Outcome::Refused(failure.why())),
            _ => Some(Outcome::Failed(failure.why())),
        }
    }
}
