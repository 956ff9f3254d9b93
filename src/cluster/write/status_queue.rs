//! Writes statuses in background workers, so that a pass never waits for the server.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use parking_lot::Mutex;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cluster::write::{
    Permit, StatusPatch, StatusSource, UpdateError, VpaWriteResult, WriteContext, WriteError,
    WriteStats, stats::WriteKind, vpa_status, workqueue::WorkQueue,
};

/// How often a key is retried immediately after a conflict, before other keys are served.
const MAX_CONFLICT_RETRIES: u32 = 3;
/// Upper bound of the pause that a server may ask for.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// How long a shutdown waits for requests in flight. A request that is cancelled is either applied or not, as a whole.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Statuses to be written, the stalest first.
pub struct StatusQueue {
    client: Client,
    permit: Permit,
    source: Arc<dyn StatusSource>,
    stats: Arc<WriteStats>,
    workers: usize,
    queue: Mutex<WorkQueue>,
    /// Whether the last completed write failed.
    failing: AtomicBool,
    /// Like `failing`, for annotations.
    annotations_failing: AtomicBool,
    /// Shutting down: annotations may no longer delay other statuses.
    draining: AtomicBool,
    /// Notified when a key may be ready.
    key_added: Notify,
    /// Notified when a key has been handled.
    key_settled: Notify,
}

/// What to do with a key that a worker has handled.
enum DeliveryResult {
    Done,
    Requeue,
    /// The write failed: retry after at least this long.
    RetryAfter(Duration),
}

impl StatusQueue {
    /// A queue with this many workers, at least one. The client must not retry on its own.
    pub fn new(
        client: Client,
        permit: Permit,
        workers: usize,
        source: Arc<dyn StatusSource>,
        stats: Arc<WriteStats>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            permit,
            source,
            stats,
            workers: workers.max(1),
            queue: Mutex::default(),
            failing: AtomicBool::new(false),
            annotations_failing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            key_added: Notify::new(),
            key_settled: Notify::new(),
        })
    }

    /// Queues a key, unless it is queued already. `last_written` is when its status was last written, if known. The patch is
    /// requested from the source when the key is due.
    pub fn push(&self, key: ObjectKey, last_written: Option<Time>) {
        self.queue.lock().push(key, last_written);
        self.key_added.notify_one();
    }

    /// The number of keys that are queued or being written.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs until shutdown is requested. Then no further request starts, and those in flight get a few seconds.
    pub async fn run(self: Arc<Self>, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(Arc::clone(&self).run_worker(stop.clone()));
        }
        shutdown.await;
        stop.cancel();
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
            tracing::warn!("status writes still in flight at shutdown; cancelling them");
        }
    }

    /// Waits until all statuses are written or the deadline has passed, while [`StatusQueue::run`] continues. Returns the
    /// number of keys that are left. From now on annotations are not written while a status is queued.
    pub async fn drain(&self, deadline: Instant) -> usize {
        self.draining.store(true, Ordering::Relaxed);
        loop {
            let settled = self.key_settled.notified();
            tokio::pin!(settled);
            // Before checking the queue, so that no notification is missed.
            settled.as_mut().enable();
            let remaining = self.len();
            if remaining == 0 {
                return 0;
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return remaining,
                () = settled => {}
            }
        }
    }

    async fn run_worker(self: Arc<Self>, stopped: CancellationToken) {
        loop {
            let Some(key) = stopped.run_until_cancelled(self.next_key()).await else { return };
            let result = self.write_status(&key, &stopped).await;
            let now = Instant::now();
            match result {
                DeliveryResult::Done => self.queue.lock().done(&key),
                DeliveryResult::Requeue => self.queue.lock().requeue(&key),
                DeliveryResult::RetryAfter(at_least) => {
                    self.queue.lock().requeue_after(&key, now, at_least);
                }
            }
            self.key_added.notify_one();
            self.key_settled.notify_waiters();
        }
    }

    /// The next key, once this process may write. Cancel safe.
    async fn next_key(&self) -> ObjectKey {
        loop {
            self.permit.fence.acquired().await;
            let wakeup = {
                let mut queue = self.queue.lock();
                let now = Instant::now();
                if let Some(key) = queue.pop(now) {
                    // One push wakes one worker, so each worker that takes a key wakes the next.
                    if queue.has_ready() {
                        self.key_added.notify_one();
                    }
                    return key;
                }
                queue.next_wakeup(now)
            };
            let due = tokio::time::sleep_until(wakeup.unwrap_or_else(Instant::now));
            tokio::select! {
                () = due, if wakeup.is_some() => {}
                () = self.key_added.notified() => {}
            }
        }
    }

    async fn write_status(&self, key: &ObjectKey, stopped: &CancellationToken) -> DeliveryResult {
        for _ in 0..=MAX_CONFLICT_RETRIES {
            if stopped.is_cancelled() {
                return DeliveryResult::Requeue;
            }
            let Some(patch) = self.source.next_patch(key) else { return DeliveryResult::Done };
            let result = self.send(&patch, WriteKind::Status).await;
            self.source.on_result(key, &result);
            let pause = self.apply_retry_after(&result);
            match result {
                Ok(_) => {
                    self.failing.store(false, Ordering::Relaxed);
                    self.write_annotations(key, stopped).await;
                    return DeliveryResult::Done;
                }
                Err(UpdateError::Conflict(_)) => {
                    tracing::debug!(vpa = %key, "conflict while writing status; recomputing it");
                }
                Err(UpdateError::Failed(WriteError::NotFound)) => return DeliveryResult::Done,
                Err(UpdateError::Failed(WriteError::NotLeader)) => return DeliveryResult::Requeue,
                Err(UpdateError::Failed(WriteError::Conflict(why))) => {
                    tracing::debug!(vpa = %key, why, "conflict while writing status; retrying");
                    return DeliveryResult::RetryAfter(pause);
                }
                Err(UpdateError::Failed(error)) => {
                    // Log one warning at the beginning, not ten thousand while the server is down.
                    if self.failing.swap(true, Ordering::Relaxed) {
                        tracing::debug!(vpa = %key, %error, "failed to write status");
                    } else {
                        tracing::warn!(vpa = %key, %error, "failed to write status; retrying");
                    }
                    return DeliveryResult::RetryAfter(pause);
                }
            }
        }
        DeliveryResult::RetryAfter(Duration::ZERO)
    }

    /// Writes the annotations that belong to a status that was just written. Best effort.
    async fn write_annotations(&self, key: &ObjectKey, stopped: &CancellationToken) {
        while let Some(patch) = self.source.next_annotation_patch(key) {
            if stopped.is_cancelled()
                || (self.draining.load(Ordering::Relaxed) && self.queue.lock().has_ready())
            {
                return self.source.on_annotation_result(key, &Err(WriteError::NotLeader.into()));
            }
            let result = self.send(&patch, WriteKind::Annotations).await;
            self.source.on_annotation_result(key, &result);
            self.apply_retry_after(&result);
            match result {
                Ok(_) => self.annotations_failing.store(false, Ordering::Relaxed),
                Err(UpdateError::Conflict(_)) => continue,
                Err(UpdateError::Failed(
                    WriteError::Conflict(_) | WriteError::NotFound | WriteError::NotLeader,
                )) => {}
                Err(UpdateError::Failed(error)) => {
                    if self.annotations_failing.swap(true, Ordering::Relaxed) {
                        tracing::debug!(vpa = %key, %error, "failed to write annotation");
                    } else {
                        tracing::warn!(
                            vpa = %key,
                            %error,
                            "failed to write annotation; retrying with its next status"
                        );
                    }
                }
            }
            return;
        }
    }

    async fn send(&self, patch: &StatusPatch, kind: WriteKind) -> VpaWriteResult {
        let Self { client, permit, stats, .. } = self;
        let writer = WriteContext { client, permit, stats, field_manager: patch.field_manager };
        vpa_status::try_write(writer, patch, kind).await
    }

    /// Pauses the queue for the server's `Retry-After`: the server is overloaded for all keys, not for one.
    fn apply_retry_after(&self, result: &VpaWriteResult) -> Duration {
        let retry_after = match result {
            Err(UpdateError::Failed(error)) => error.retry_after(),
            _ => None,
        };
        let pause = retry_after.unwrap_or_default().min(MAX_PAUSE);
        if !pause.is_zero() {
            self.queue.lock().pause(Instant::now() + pause);
        }
        pause
    }
}
