//! Writes that wait for the rate limit, by priority: a reconcile queues its writes and waits for none of them.
//!
//! The first write of the highest class is taken when a token of the rate limit is available, so that a write which comes
//! later but is more urgent still goes first. Within a class, namespaces take turns. Statuses and events also wait, for a
//! short time, while a scale may still come.

mod status_delay;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::{NotLeader, WritePermit as _};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use self::status_delay::{StatusDelay, WorkId};
use crate::cluster::write::{Permit, PrepaidPermit};

/// How often a drain checks the queue.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How urgent a write is, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controllers) enum WriteClass {
    ScaleUp,
    ScaleDown,
    Status,
    Event,
}

/// What a write changes. At most one write waits for each part of an object, except for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::controllers) enum WritePart {
    Scale,
    Status,
    Metadata,
    Event,
}

/// The maximum numbers of waiting writes of each class.
#[derive(Clone, Copy, Debug)]
struct Limits {
    total: usize,
    per_namespace: usize,
}

impl WriteClass {
    const COUNT: usize = 4;

    const fn limits(self) -> Limits {
        match self {
            Self::ScaleUp | Self::ScaleDown | Self::Status => {
                Limits { total: 100_000, per_namespace: 20_000 }
            }
            Self::Event => Limits { total: 1024, per_namespace: 256 },
        }
    }

    const fn of(part: WritePart, grows: bool) -> Self {
        match part {
            WritePart::Scale if grows => Self::ScaleUp,
            WritePart::Scale => Self::ScaleDown,
            WritePart::Status | WritePart::Metadata => Self::Status,
            WritePart::Event => Self::Event,
        }
    }
}

pub(in crate::controllers) trait QueuedWrite: Send + 'static {
    fn part(&self) -> WritePart;
    fn adds_replicas(&self) -> bool;
    /// How many requests it makes if none fails, at least 1.
    fn requests(&self) -> usize;
}

/// Identifies a waiting write; the number distinguishes events of the same object.
type WriteId = (ObjectKey, WritePart, u64);

#[derive(Debug)]
struct Waiting<W> {
    class: WriteClass,
    /// Its position within the class and the namespace.
    position: u64,
    write: W,
}

/// The waiting writes of a class, by namespace and position.
#[derive(Debug, Default)]
struct ClassQueue {
    namespaces: BTreeMap<Arc<str>, BTreeMap<u64, WriteId>>,
    last_served: Option<Arc<str>>,
    len: usize,
}

impl ClassQueue {
    fn is_full(&self, namespace: &str, limits: Limits) -> bool {
        self.len >= limits.total
            || self.namespaces.get(namespace).map_or(0, BTreeMap::len) >= limits.per_namespace
    }

    fn insert(&mut self, position: u64, id: WriteId) {
        let waiting = self.namespaces.entry(Arc::clone(&id.0.namespace)).or_default();
        self.len += usize::from(waiting.insert(position, id).is_none());
    }

    fn remove(&mut self, namespace: &str, position: u64) {
        let Some(waiting) = self.namespaces.get_mut(namespace) else { return };
        self.len -= usize::from(waiting.remove(&position).is_some());
        if waiting.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// The first write of the namespace whose turn it is, among those that `may_start`.
    fn next(&self, may_start: impl Fn(&WriteId) -> bool) -> Option<&WriteId> {
        let after = match &self.last_served {
            Some(last) => {
                self.namespaces.range::<str, _>((Bound::Excluded(&**last), Bound::Unbounded))
            }
            None => self.namespaces.range::<str, _>(..),
        };
        let mut all = after.chain(self.namespaces.iter());
        all.find_map(|(_, waiting)| waiting.values().find(|id| may_start(id)))
    }
}

#[derive(Debug)]
struct Inner<W> {
    waiting: HashMap<WriteId, Waiting<W>>,
    classes: [ClassQueue; WriteClass::COUNT],
    /// Objects that are being written, and objects for which an event is. Further writes or events of them wait.
    in_flight: HashSet<(ObjectKey, bool)>,
    /// Writes that are being made.
    started: usize,
    positions: u64,
    status_delay: StatusDelay,
}

/// A reconcile, or a write of a scale. Until it is dropped, statuses and events are delayed.
pub(in crate::controllers) struct ExpectedScale<'a, W: QueuedWrite> {
    queue: &'a WriteQueue<W>,
    id: WorkId,
}

impl<W: QueuedWrite> Drop for ExpectedScale<'_, W> {
    fn drop(&mut self) {
        self.queue.inner.lock().status_delay.end(&self.id);
        self.queue.changed.notify_one();
    }
}

#[derive(Debug)]
pub(in crate::controllers) struct WriteQueue<W> {
    inner: Mutex<Inner<W>>,
    changed: Notify,
}

impl<W> Default for WriteQueue<W> {
    fn default() -> Self {
        let inner = Inner {
            waiting: HashMap::new(),
            classes: Default::default(),
            in_flight: HashSet::new(),
            started: 0,
            positions: 0,
            status_delay: StatusDelay::default(),
        };
        Self { inner: Mutex::new(inner), changed: Notify::new() }
    }
}

impl<W: QueuedWrite> WriteQueue<W> {
    /// Queues a write. It takes the place of one that waits for the same part of the object; a scale also replaces a
    /// waiting status, because its outcome is reported by a later one. Returns false if the queue is full.
    pub fn put(&self, key: &ObjectKey, write: W) -> bool {
        let is_queued = self.inner.lock().put(key, write);
        self.changed.notify_one();
        is_queued
    }

    /// Removes the waiting write of a part, because it is outdated.
    pub fn cancel(&self, key: &ObjectKey, part: WritePart) {
        self.inner.lock().remove(&(key.clone(), part, 0));
    }

    /// Begins work that may lead to a scale.
    pub fn expect_scale(&self) -> ExpectedScale<'_, W> {
        let id = self.inner.lock().status_delay.begin(Instant::now());
        ExpectedScale { queue: self, id }
    }

    pub fn is_in_flight(&self, key: &ObjectKey) -> bool {
        self.inner.lock().in_flight.contains(&(key.clone(), false))
    }

    /// Ends a write of a scale: what was decided meanwhile is outdated. `rebase` changes what still waits to what is stored
    /// now. Returns whether something was removed.
    pub fn finish_scale(&self, key: &ObjectKey, rebase: impl Fn(&mut W)) -> bool {
        let outdated = {
            let mut inner = self.inner.lock();
            [WritePart::Scale, WritePart::Status]
                .map(|part| inner.remove(&(key.clone(), part, 0)).is_some())
        };
        self.finish(key, rebase);
        outdated.contains(&true)
    }

    /// Ends a write of an object. `rebase` changes what still waits to what is stored now.
    pub fn finish(&self, key: &ObjectKey, rebase: impl Fn(&mut W)) {
        let mut inner = self.inner.lock();
        inner.in_flight.remove(&(key.clone(), false));
        for part in [WritePart::Scale, WritePart::Status, WritePart::Metadata] {
            if let Some(waiting) = inner.waiting.get_mut(&(key.clone(), part, 0)) {
                rebase(&mut waiting.write);
            }
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Drops all waiting writes, because another process leads, or has led since they were decided.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.waiting.clear();
        inner.classes = Default::default();
    }

    /// Whether nothing waits or is being written.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.waiting.is_empty() && inner.started == 0
    }

    /// Waits until everything is written, at most until `deadline`.
    pub async fn drain(&self, deadline: Instant) {
        while !self.is_idle() && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Makes the writes, at most `concurrency` at a time, until `stop`. `run` has to end each one but events with
    /// [`Self::finish`] or [`Self::finish_scale`].
    pub async fn run<F: Future<Output = ()>>(
        &self,
        permit: &Permit,
        concurrency: usize,
        run: impl Fn(ObjectKey, W, PrepaidPermit) -> F,
        stop: impl Future<Output = ()>,
    ) {
        let mut running = FuturesUnordered::new();
        let dispatch = async {
            loop {
                drive(&mut running, self.wait_for_write(concurrency)).await;
                if drive(&mut running, permit.acquire()).await.is_err() {
                    self.clear();
                    continue;
                }
                // The token is kept for the first write that may start: a scale may come while only statuses wait.
                let (key, write) = drive(&mut running, self.take()).await;
                // All tokens are taken before the write begins: otherwise a less urgent one would come in between.
                for _ in 1..write.requests() {
                    let _: Result<(), NotLeader> = drive(&mut running, permit.acquire()).await;
                }
                let prepaid = PrepaidPermit::new(permit.clone(), write.requests());
                let event = (write.part() == WritePart::Event).then(|| (key.clone(), true));
                let scale = (write.part() == WritePart::Scale).then(|| self.expect_scale());
                let made = run(key, write, prepaid);
                running.push(async move {
                    made.await;
                    drop(scale);
                    let mut inner = self.inner.lock();
                    inner.started -= 1;
                    if let Some(event) = &event {
                        inner.in_flight.remove(event);
                    }
                    drop(inner);
                    self.changed.notify_one();
                });
            }
        };
        tokio::select! {
            () = stop => {}
            () = dispatch => {}
        }
        while running.next().await.is_some() {}
    }

    /// Waits until a write waits that may start, but for the delay of statuses.
    async fn wait_for_write(&self, concurrency: usize) {
        loop {
            let changed = self.changed.notified();
            {
                let inner = self.inner.lock();
                if inner.started < concurrency && inner.next().is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Waits until a write may start, and takes it.
    async fn take(&self) -> (ObjectKey, W) {
        loop {
            let changed = self.changed.notified();
            let taken = self.inner.lock().take(Instant::now());
            match taken {
                Ok(taken) => return taken,
                // Both the end of the delay and a change are a reason to check again.
                Err(Some(until)) => drop(timeout_at(until, changed).await),
                Err(None) => changed.await,
            }
        }
    }
}

/// Waits for a future, and polls the running writes meanwhile.
async fn drive<T, F: Future<Output = ()>>(
    running: &mut FuturesUnordered<F>,
    future: impl Future<Output = T>,
) -> T {
    tokio::pin!(future);
    loop {
        tokio::select! {
            biased;
            Some(()) = running.next(), if !running.is_empty() => {}
            result = &mut future => return result,
        }
    }
}

impl<W: QueuedWrite> Inner<W> {
    fn put(&mut self, key: &ObjectKey, write: W) -> bool {
        let part = write.part();
        let class = WriteClass::of(part, write.adds_replicas());
        self.positions += 1;
        let position = self.positions;
        if part == WritePart::Scale {
            self.remove(&(key.clone(), WritePart::Status, 0));
        }
        let number = if part == WritePart::Event { position } else { 0 };
        let id = (key.clone(), part, number);
        if let Some(waiting) = self.waiting.get_mut(&id).filter(|waiting| waiting.class == class) {
            // The newer write keeps the place of the older one, so that an object that changes often is written too.
            waiting.write = write;
            return true;
        }
        self.remove(&id);
        let queue = &mut self.classes[class as usize];
        if queue.is_full(&key.namespace, class.limits()) {
            return false;
        }
        queue.insert(position, id.clone());
        self.waiting.insert(id, Waiting { class, position, write });
        true
    }

    fn remove(&mut self, id: &WriteId) -> Option<Waiting<W>> {
        let waiting = self.waiting.remove(id)?;
        self.classes[waiting.class as usize].remove(&id.0.namespace, waiting.position);
        Some(waiting)
    }

    /// Takes the next write. The error is until when it is delayed; `None` if there is no write that may start.
    fn take(&mut self, now: Instant) -> Result<(ObjectKey, W), Option<Instant>> {
        let Some(id) = self.next().cloned() else { return Err(None) };
        if id.1 != WritePart::Scale
            && let Some(until) = self.status_delay.delayed_until(now)
        {
            return Err(Some(until));
        }
        let Some(Waiting { class, write, .. }) = self.remove(&id) else { return Err(None) };
        self.classes[class as usize].last_served = Some(Arc::clone(&id.0.namespace));
        self.started += 1;
        self.in_flight.insert((id.0.clone(), id.1 == WritePart::Event));
        Ok((id.0, write))
    }

    fn next(&self) -> Option<&WriteId> {
        let may_start = |(key, part, _): &WriteId| {
            !self.in_flight.contains(&(key.clone(), *part == WritePart::Event))
        };
        self.classes.iter().find_map(|class| class.next(may_start))
    }
}

#[cfg(test)]
mod tests;
