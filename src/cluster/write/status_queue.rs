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
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use crate::cluster::write::{
    Permit, StatusSource, StatusWriteResult, WriteStats,
    vpa_status::{self, PatchTarget, REQUEST_LIMIT, StatusWriteAttempt},
    workqueue::WorkQueue,
};

/// How often a key is prepared anew right after a conflict, before others get their turn.
const MAX_CONFLICT_RETRIES: u32 = 3;
/// A server may ask for any pause; beyond this it is asked again.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// How long a stop waits for requests under way. What is cut off is either stored or not, as a whole.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Statuses on their way to the server, the stalest first. Clones are the same outbox.
#[derive(Clone)]
pub struct StatusQueue {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    permit: Permit,
    source: Arc<dyn StatusSource>,
    stats: Arc<WriteStats>,
    workers: usize,
    request_timeout: Duration,
    queue: Mutex<WorkQueue>,
    /// The last write that was answered or not failed.
    failing: AtomicBool,
    /// The same, of annotations.
    annotations_failing: AtomicBool,
    /// It is ending: what goes with a status may no longer keep others from being written.
    draining: AtomicBool,
    /// There may be something to take.
    key_added: Notify,
    /// A key has been dealt with.
    key_settled: Notify,
}

impl std::fmt::Debug for StatusQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What becomes of a key that a worker had.
enum DeliveryResult {
    Done,
    /// It was not tried.
    Requeue,
    /// It failed, and is not tried again before that long.
    RetryAfter(Duration),
}

impl StatusQueue {
    /// An outbox of so many workers, at least one. The client must not retry by itself.
    pub fn new(
        client: Client,
        permit: Permit,
        workers: usize,
        source: Arc<dyn StatusSource>,
    ) -> Self {
        let inner = Inner {
            client,
            permit,
            source,
            stats: Arc::default(),
            workers: workers.max(1),
            request_timeout: REQUEST_LIMIT,
            queue: Mutex::default(),
            failing: AtomicBool::new(false),
            annotations_failing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            key_added: Notify::new(),
            key_settled: Notify::new(),
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
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.request_timeout = limit;
        }
        self
    }

    /// Queues a key, unless it is queued. `last_written` is when its status was last written, as far as
    /// that is known. What is written is asked of the source when the key's turn comes.
    pub fn push(&self, key: ObjectKey, last_written: Option<Time>) {
        self.inner.queue().push(key, last_written, Instant::now());
        self.inner.key_added.notify_one();
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
        let held = self.inner.permit.fence().is_granted();
        let oldest = if held { self.inner.queue().oldest_queued_at() } else { None };
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
            workers.spawn(Arc::clone(&self.inner).run_worker(stopped.clone()));
        }
        shutdown.await;
        stop.send_replace(true);
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
            tracing::warn!(
                "the server did not answer before the stop; its last requests are cut off"
            );
        }
    }

    /// Waits until everything is written or the time is over, while [`Outbox::run`] goes on, and
    /// answers how many keys are left. From now on no annotations are written while a status waits.
    pub async fn drain(&self, deadline: Instant) -> usize {
        self.inner.draining.store(true, Ordering::Relaxed);
        loop {
            let settled = self.inner.key_settled.notified();
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
    fn queue(&self) -> MutexGuard<'_, WorkQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run_worker(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            let key = tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => return,
                key = self.next_key() => key,
            };
            let settled = self.write_status(&key, &stopped).await;
            let now = Instant::now();
            match settled {
                DeliveryResult::Done => self.queue().done(&key, now),
                DeliveryResult::Requeue => self.queue().requeue(&key),
                DeliveryResult::RetryAfter(at_least) => {
                    self.queue().requeue_after(&key, now, at_least);
                }
            }
            self.key_added.notify_one();
            self.key_settled.notify_waiters();
        }
    }

    /// The next key, once this process may write. Loses nothing when it is given up.
    async fn next_key(&self) -> ObjectKey {
        loop {
            self.permit.fence().acquired().await;
            let wakes = {
                let mut queue = self.queue();
                let now = Instant::now();
                if let Some(key) = queue.pop(now) {
                    // One push wakes one worker, so each that takes wakes the next.
                    if queue.has_ready() {
                        self.key_added.notify_one();
                    }
                    return key;
                }
                queue.next_wakeup(now)
            };
            let due = async {
                match wakes {
                    Some(wakes) => tokio::time::sleep_until(wakes).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.key_added.notified() => {}
            }
        }
    }

    async fn write_status(
        &self,
        key: &ObjectKey,
        stopped: &watch::Receiver<bool>,
    ) -> DeliveryResult {
        for _ in 0..=MAX_CONFLICT_RETRIES {
            if *stopped.borrow() {
                return DeliveryResult::Requeue;
            }
            let Some(patch) = self.source.next_patch(key) else { return DeliveryResult::Done };
            let StatusWriteAttempt { outcome, retry_after } = vpa_status::try_write(
                &self.client,
                &self.permit,
                &patch,
                PatchTarget::Status,
                &self.stats,
                self.request_timeout,
            )
            .await;
            self.source.on_result(key, &outcome);
            let pause = self.apply_retry_after(retry_after);
            match outcome {
                StatusWriteResult::Written { .. } => {
                    self.failing.store(false, Ordering::Relaxed);
                    self.write_annotations(key, stopped).await;
                    return DeliveryResult::Done;
                }
                StatusWriteResult::NotFound => return DeliveryResult::Done,
                StatusWriteResult::Conflict(current) => {
                    tracing::debug!(vpa = %key, "the object has changed meanwhile; its status is decided anew");
                    if current.is_none() {
                        return DeliveryResult::RetryAfter(pause);
                    }
                }
                StatusWriteResult::NotLeader => return DeliveryResult::Requeue,
                StatusWriteResult::Failed { why } => {
                    // One line when it begins, not ten thousand while the server is away.
                    if self.failing.swap(true, Ordering::Relaxed) {
                        tracing::debug!(vpa = %key, "{why}");
                    } else {
                        tracing::warn!(vpa = %key, "{why}; it is tried again");
                    }
                    return DeliveryResult::RetryAfter(pause);
                }
            }
        }
        DeliveryResult::RetryAfter(Duration::ZERO)
    }

    /// Writes what goes with a status that was just written. Nothing depends on it.
    async fn write_annotations(&self, key: &ObjectKey, stopped: &watch::Receiver<bool>) {
        while let Some(patch) = self.source.next_annotation_patch(key) {
            if *stopped.borrow()
                || (self.draining.load(Ordering::Relaxed) && self.queue().has_ready())
            {
                return self.source.on_annotation_result(key, &StatusWriteResult::NotLeader);
            }
            let StatusWriteAttempt { outcome, retry_after } = vpa_status::try_write(
                &self.client,
                &self.permit,
                &patch,
                PatchTarget::Annotations,
                &self.stats,
                self.request_timeout,
            )
            .await;
            self.source.on_annotation_result(key, &outcome);
            self.apply_retry_after(retry_after);
            match outcome {
                StatusWriteResult::Written { .. } => {
                    self.annotations_failing.store(false, Ordering::Relaxed);
                }
                StatusWriteResult::Conflict(Some(_)) => continue,
                StatusWriteResult::Conflict(None)
                | StatusWriteResult::NotFound
                | StatusWriteResult::NotLeader => {}
                StatusWriteResult::Failed { why } => {
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
    fn apply_retry_after(&self, asked: Option<Duration>) -> Duration {
        let pause = asked.unwrap_or_default().min(MAX_PAUSE);
        if !pause.is_zero() {
            self.queue().pause(Instant::now() + pause);
        }
        pause
    }
}
