//! The outbox: workers that write statuses beside the passes, so that a pass never waits for the server.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use plimsoll_core::types::{Time, VpaKey};
use tokio::time::Instant;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::act::{
    Outcome, Permit, Source, WriteStats,
    queue::Queue,
    status::{self, Attempt, Part, REQUEST_LIMIT},
};

/// How often a key is prepared anew right after a conflict, before others get their turn.
const CONFLICTS_IN_A_ROW: u32 = 3;
/// A server may ask for any pause; beyond this it is asked again.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How long a stop waits for requests under way. What is cut off is either stored or not, as a whole.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Statuses on their way to the server, the stalest first. Clones are the same outbox.
#[derive(Clone)]
pub struct Outbox {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    permit: Permit,
    source: Arc<dyn Source>,
    stats: Arc<WriteStats>,
    workers: usize,
    request_limit: Duration,
    queue: Mutex<Queue>,
    /// The last write that was answered or not failed.
    failing: AtomicBool,
    /// The same, of annotations.
    annotations_failing: AtomicBool,
    /// It is ending: what goes with a status may no longer keep others from being written.
    ending: AtomicBool,
    /// There may be something to take.
    pushed: Notify,
    /// A key has been dealt with.
    settled: Notify,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What becomes of a key that a worker had.
enum Settled {
    Done,
    /// It was not tried.
    Back,
    /// It failed, and is not tried again before that long.
    Later(Duration),
}

impl Outbox {
    /// An outbox of so many workers, at least one. The client must not retry by itself.
    pub fn new(client: Client, permit: Permit, workers: usize, source: Arc<dyn Source>) -> Self {
        let inner = Inner {
            client,
            permit,
            source,
            stats: Arc::default(),
            workers: workers.max(1),
            request_limit: REQUEST_LIMIT,
            queue: Mutex::default(),
            failing: AtomicBool::new(false),
            annotations_failing: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            pushed: Notify::new(),
            settled: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Counts into these. To be called before the first clone.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.stats = stats;
        }
        self
    }

    /// Gives up on a request after that long instead of thirty seconds. To be called before the first clone.
    #[must_use]
    pub fn with_request_limit(mut self, limit: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.request_limit = limit;
        }
        self
    }

    /// Queues a key, unless it is queued. `last_written` is when its status was last written, as far as
    /// that is known. What is written is asked of the source when the key's turn comes.
    pub fn push(&self, key: VpaKey, last_written: Option<Time>) {
        self.inner.queue().push(key, last_written, Instant::now());
        self.inner.pushed.notify_one();
    }

    /// How many keys wait or are being written.
    pub fn len(&self) -> usize {
        self.inner.queue().len()
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long the oldest key has waited. `None` when none does, or while it is not this process's turn to write.
    pub fn oldest_wait(&self) -> Option<Duration> {
        let held = self.inner.permit.fence().is_held();
        let oldest = if held { self.inner.queue().oldest() } else { None };
        oldest.map(|since| since.elapsed())
    }

    /// What came of the writes.
    pub fn stats(&self) -> &Arc<WriteStats> {
        &self.inner.stats
    }

    /// Writes until told to stop; then no other request begins, and those under way get a few seconds.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let mut workers = JoinSet::new();
        for _ in 0..self.inner.workers {
            workers.spawn(Arc::clone(&self.inner).work(stopped.clone()));
        }
        shutdown.await;
        stop.send_replace(true);
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_LIMIT, ended).await.is_err() {
            tracing::warn!(
                "the server did not answer before the stop; its last requests are cut off"
            );
        }
    }

    /// Waits until everything is written or the time is over, while [`Outbox::run`] goes on, and
    /// answers how many keys are left. From now on no annotations are written while a status waits.
    pub async fn drain(&self, deadline: Instant) -> usize {
        self.inner.ending.store(true, Ordering::Relaxed);
        loop {
            let settled = self.inner.settled.notified();
            tokio::pin!(settled);
            // Before looking, so that what happens in between is not missed.
            settled.as_mut().enable();
            let left = self.len();
            if left == 0 {
                return 0;
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return left,
                () = settled => {}
            }
        }
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            let key = tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => return,
                key = self.next() => key,
            };
            let settled = self.deliver(&key, &stopped).await;
            let now = Instant::now();
            match settled {
                Settled::Done => self.queue().done(&key, now),
                Settled::Back => self.queue().back(&key),
                Settled::Later(at_least) => self.queue().later(&key, now, at_least),
            }
            self.pushed.notify_one();
            self.settled.notify_waiters();
        }
    }

    /// The next key, once this process may write. Loses nothing when it is given up.
    async fn next(&self) -> VpaKey {
        loop {
            self.permit.fence().held().await;
            let wakes = {
                let mut queue = self.queue();
                let now = Instant::now();
                if let Some(key) = queue.take(now) {
                    // One push wakes one worker, so each that takes wakes the next.
                    if queue.has_ready() {
                        self.pushed.notify_one();
                    }
                    return key;
                }
                queue.wakes(now)
            };
            let due = async {
                match wakes {
                    Some(wakes) => tokio::time::sleep_until(wakes).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.pushed.notified() => {}
            }
        }
    }

    async fn deliver(&self, key: &VpaKey, stopped: &watch::Receiver<bool>) -> Settled {
        for _ in 0..=CONFLICTS_IN_A_ROW {
            if *stopped.borrow() {
                return Settled::Back;
            }
            let Some(patch) = self.source.prepare(key) else { return Settled::Done };
            let Attempt { outcome, retry_after } = status::attempt(
                &self.client,
                &self.permit,
                &patch,
                Part::Status,
                &self.stats,
                self.request_limit,
            )
            .await;
            self.source.done(key, &outcome);
            let pause = self.note_pause(retry_after);
            match outcome {
                Outcome::Written { .. } => {
                    self.failing.store(false, Ordering::Relaxed);
                    self.annotate(key, stopped).await;
                    return Settled::Done;
                }
                Outcome::Gone => return Settled::Done,
                Outcome::Conflict(current) => {
                    tracing::debug!(vpa = %key, "the object has changed meanwhile; its status is decided anew");
                    if current.is_none() {
                        return Settled::Later(pause);
                    }
                }
                Outcome::Fenced => return Settled::Back,
                Outcome::Failed { why } => {
                    // One line when it begins, not ten thousand while the server is away.
                    if self.failing.swap(true, Ordering::Relaxed) {
                        tracing::debug!(vpa = %key, "{why}");
                    } else {
                        tracing::warn!(vpa = %key, "{why}; it is tried again");
                    }
                    return Settled::Later(pause);
                }
            }
        }
        Settled::Later(Duration::ZERO)
    }

    /// Writes what goes with a status that was just written. Nothing depends on it.
    async fn annotate(&self, key: &VpaKey, stopped: &watch::Receiver<bool>) {
        while let Some(patch) = self.source.prepare_annotations(key) {
            if *stopped.borrow()
                || (self.ending.load(Ordering::Relaxed) && self.queue().has_ready())
            {
                return self.source.done_annotations(key, &Outcome::Fenced);
            }
            let Attempt { outcome, retry_after } = status::attempt(
                &self.client,
                &self.permit,
                &patch,
                Part::Annotations,
                &self.stats,
                self.request_limit,
            )
            .await;
            self.source.done_annotations(key, &outcome);
            self.note_pause(retry_after);
            match outcome {
                Outcome::Written { .. } => self.annotations_failing.store(false, Ordering::Relaxed),
                Outcome::Conflict(Some(_)) => continue,
                Outcome::Conflict(None) | Outcome::Gone | Outcome::Fenced => {}
                Outcome::Failed { why } => {
                    if self.annotations_failing.swap(true, Ordering::Relaxed) {
                        tracing::debug!(vpa = %key, "{why}");
                    } else {
                        tracing::warn!(vpa = %key, "{why}; the next one goes with its next status");
                    }
                }
            }
            return;
        }
    }

    /// The pause that the server asked for: it is too busy for any of us, not for one key.
    fn note_pause(&self, asked: Option<Duration>) -> Duration {
        let pause = asked.unwrap_or_default().min(LONGEST_PAUSE);
        if !pause.is_zero() {
            self.queue().pause(Instant::now() + pause);
        }
        pause
    }
}
