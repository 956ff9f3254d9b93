//! All objects with their state, ordered by when they are due for the next reconcile.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::sync::watch;

use super::object_state::{ObjectState, trimmed};
use crate::{
    cluster::{cache::object_store::ObjectStore, watch::ObjectChange},
    telemetry::ExportedState,
};
use plimsoll_core::{api::wpa::WatermarkPodAutoscaler, watermark::Restriction};

#[derive(Debug)]
struct QueueEntry {
    /// `None` while the object is being reconciled.
    state: Option<Box<ObjectState>>,
    /// A newer version of the object that arrived during the reconcile.
    newer_object: Option<Arc<WatermarkPodAutoscaler>>,
    /// Whether the object was deleted during the reconcile. A new object of the same name waits until that reconcile ends,
    /// because two concurrent reconciles might scale the same target.
    is_gone: bool,
    /// The recommender of the object that is being reconciled.
    recommender: Option<Box<str>>,
    /// The exported state of the object that is being reconciled.
    exported: Option<Arc<ExportedState>>,
    due: Option<Time>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<ObjectKey, QueueEntry>,
    due: BTreeSet<(Time, ObjectKey)>,
    /// The objects that exist, for each watch scope.
    existing: Vec<ObjectStore<ObjectKey, ()>>,
}

/// The queue of all objects.
#[derive(Debug)]
pub(super) struct ReconcileQueue {
    inner: Mutex<Inner>,
    /// Incremented whenever an object becomes due earlier.
    wakeups: watch::Sender<u64>,
}

/// The next item of the queue.
#[derive(Debug)]
pub(super) enum NextItem {
    /// An object with its state, and when it was due.
    Due(ObjectKey, Box<ObjectState>, Time),
    /// No object is due before this time; `None` if none is scheduled.
    NoneUntil(Option<Time>),
}

/// Whether a change of an object requires a reconcile: a new spec, new annotations, or a deletion timestamp.
fn is_material_change(before: &WatermarkPodAutoscaler, after: &WatermarkPodAutoscaler) -> bool {
    before.uid() != after.uid()
        || before.spec != after.spec
        || before.metadata.annotations != after.metadata.annotations
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
}

impl ReconcileQueue {
    /// Creates an empty queue for objects from this many watch scopes.
    pub fn new(scopes: usize) -> Self {
        let existing = (0..scopes).map(|_| ObjectStore::default()).collect();
        let inner = Inner { existing, ..Inner::default() };
        Self { inner: Mutex::new(inner), wakeups: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies whenever an object becomes due earlier.
    pub fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    /// Applies a watch event. New and changed objects are due at once.
    pub fn apply(&self, scope: usize, change: ObjectChange<WatermarkPodAutoscaler>, now: Time) {
        let mut inner = self.lock();
        let is_due = inner.apply(scope, change, now);
        drop(inner);
        if is_due {
            self.wakeups.send_modify(|count| *count += 1);
        }
    }

    /// Takes the next object that is due.
    pub fn pop_due(&self, now: Time) -> NextItem {
        let mut inner = self.lock();
        let Some((at, key)) = inner.due.first().cloned() else { return NextItem::NoneUntil(None) };
        if at > now {
            return NextItem::NoneUntil(Some(at));
        }
        inner.due.remove(&(at, key.clone()));
        let Some(entry) = inner.entries.get_mut(&key) else {
            return NextItem::NoneUntil(Some(now));
        };
        entry.due = None;
        match entry.state.take() {
            Some(state) => {
                let recommender = state.object.spec.recommender.as_ref();
                entry.recommender = recommender.map(|recommender| recommender.url.as_str().into());
                NextItem::Due(key, state, at)
            }
            None => NextItem::NoneUntil(Some(now)),
        }
    }

    /// Puts an object back after its reconcile. `next` is when it is due again; `None` if only after a change.
    pub fn requeue(
        &self,
        key: &ObjectKey,
        mut state: Box<ObjectState>,
        next: Option<Time>,
        now: Time,
    ) {
        let mut inner = self.lock();
        let Some(entry) = inner.entries.get_mut(key) else { return };
        entry.recommender = None;
        if entry.is_gone {
            inner.entries.remove(key);
            return;
        }
        let mut next = next;
        if let Some(newer) = entry.newer_object.take() {
            if is_material_change(&state.object, &newer) {
                next = Some(now);
            }
            if newer.uid() == state.object.uid() {
                state.object = newer;
            } else {
                *state = ObjectState::new(newer);
            }
        }
        entry.exported.clone_from(&state.exported);
        entry.state = Some(state);
        entry.due = next;
        if let Some(next) = next {
            inner.due.insert((next, key.clone()));
        }
        drop(inner);
        if next.is_some() {
            self.wakeups.send_modify(|count| *count += 1);
        }
    }

    /// Makes every object due at once, because a new leader does not know their due times.
    pub fn requeue_all(&self, now: Time) {
        let mut inner = self.lock();
        let waiting: Vec<ObjectKey> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.state.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            if let Some(state) = inner.entries.get_mut(&key).and_then(|entry| entry.state.as_mut())
            {
                state.metric_history = None;
            }
            inner.bring_forward(&key, now);
        }
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// The number of objects, how many of them have an unknown metric, and when one was last reconciled.
    pub fn summary(&self) -> (usize, usize, Option<Time>) {
        let inner = self.lock();
        let exported = inner.entries.values().filter_map(|entry| {
            entry
                .state
                .as_ref()
                .and_then(|state| state.exported.as_ref())
                .or(entry.exported.as_ref())
        });
        let (mut unknown, mut latest) = (0, None);
        for exported in exported {
            unknown += usize::from(exported.restrictions.contains(&Restriction::MetricUnknown));
            latest = latest.max(Some(exported.reconciled_at));
        }
        (inner.len(), unknown, latest)
    }

    /// Whether no object is due or being reconciled.
    pub fn is_idle(&self, now: Time) -> bool {
        let inner = self.lock();
        inner.due.first().is_none_or(|(at, _)| *at > now)
            && inner.entries.values().all(|entry| entry.state.is_some())
    }

    /// The number of objects that are due.
    pub fn overdue(&self, now: Time) -> usize {
        self.lock().due.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// How long the first object in the queue is overdue.
    pub fn longest_wait(&self, now: Time) -> Duration {
        let waited = |(at, _): &(Time, ObjectKey)| now.nanos_since(*at).max(0).unsigned_abs();
        Duration::from_nanos(self.lock().due.first().map_or(0, waited))
    }

    /// The URLs of the recommenders of all objects.
    pub fn recommenders(&self) -> BTreeSet<String> {
        let inner = self.lock();
        let named = inner.entries.values().filter_map(|entry| match &entry.state {
            Some(state) => {
                state.object.spec.recommender.as_ref().map(|recommender| recommender.url.clone())
            }
            None => entry.recommender.as_deref().map(str::to_owned),
        });
        named.collect()
    }

    /// The exported states of a page of objects that starts after `after`, and the key after which the next page starts.
    pub fn exported_page(
        &self,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> (Vec<(ObjectKey, Arc<ExportedState>)>, Option<ObjectKey>) {
        let inner = self.lock();
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let mut exported = Vec::with_capacity(limit);
        let mut last = None;
        let page = inner.entries.range::<ObjectKey, _>((from, Bound::Unbounded)).take(limit);
        for (count, (key, entry)) in page.enumerate() {
            let current = entry.state.as_ref().and_then(|state| state.exported.as_ref());
            if let Some(current) = current.or(entry.exported.as_ref()) {
                exported.push((key.clone(), Arc::clone(current)));
            }
            last = (count + 1 == limit).then(|| key.clone());
        }
        (exported, last)
    }
}

impl Inner {
    /// Applies a watch event. Returns whether an object is due at once.
    fn apply(
        &mut self,
        scope: usize,
        change: ObjectChange<WatermarkPodAutoscaler>,
        now: Time,
    ) -> bool {
        let mut applied = None;
        let change = change.map(|object| {
            let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
            applied = Some((key.clone(), object));
            (key, Some(()))
        });
        let removed =
            self.existing[scope].apply(change, |namespace, name| ObjectKey::new(namespace, name));
        if let Some((key, object)) = applied {
            return self.upsert(&key, trimmed(object), now);
        }
        for (key, ()) in removed {
            self.remove(&key);
        }
        false
    }

    fn upsert(&mut self, key: &ObjectKey, object: Arc<WatermarkPodAutoscaler>, now: Time) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            let state = Some(Box::new(ObjectState::new(object)));
            let entry = QueueEntry {
                state,
                newer_object: None,
                is_gone: false,
                recommender: None,
                exported: None,
                due: None,
            };
            self.entries.insert(key.clone(), entry);
            self.bring_forward(key, now);
            return true;
        };
        let Some(state) = &mut entry.state else {
            entry.newer_object = Some(object);
            entry.is_gone = false;
            return false;
        };
        let is_due = is_material_change(&state.object, &object);
        if state.object.uid() == object.uid() {
            state.object = object;
        } else {
            **state = ObjectState::new(object);
        }
        if is_due {
            self.bring_forward(key, now);
        }
        is_due
    }

    fn bring_forward(&mut self, key: &ObjectKey, to: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(due) = entry.due.replace(to) {
            self.due.remove(&(due, key.clone()));
        }
        self.due.insert((to, key.clone()));
    }

    fn len(&self) -> usize {
        self.entries.values().filter(|entry| !entry.is_gone).count()
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.state.is_none()) {
            (entry.is_gone, entry.newer_object, entry.exported) = (true, None, None);
            return;
        }
        if let Some(QueueEntry { due: Some(due), .. }) = self.entries.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
