//! All objects with their state, ordered by when they are due for the next reconcile.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt as _;
use parking_lot::Mutex;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::sync::watch;

use super::{AutoscalerKind, ObjectState, key_of};
use crate::{
    cluster::{cache::object_store::ObjectStore, watch::ObjectChange},
    telemetry::ExportedState,
};

/// Applies the result of a write to the state of its object. Returns when the object is due, if earlier than planned.
pub(in crate::controllers) type Completion<A> =
    Box<dyn FnOnce(&mut ObjectState<A>) -> Option<Time> + Send>;

/// The exported states of some objects, and the key after which the next page starts.
pub(in crate::controllers) type ExportedPage =
    (Vec<(ObjectKey, Arc<ExportedState>)>, Option<ObjectKey>);

struct QueueEntry<A: AutoscalerKind> {
    /// `None` while the object is being reconciled.
    state: Option<Box<ObjectState<A>>>,
    /// A newer version of the object that arrived during the reconcile, and whether it arrived during a list.
    newer_object: Option<(Arc<A::Object>, bool)>,
    /// Whether the object was deleted during the reconcile. A new object of the same name waits until that reconcile ends,
    /// because two concurrent reconciles might scale the same target.
    is_gone: bool,
    /// Completions of writes that ended during the reconcile.
    completions: Vec<Completion<A>>,
    /// Whether the scale was written during the reconcile, which has decided on an outdated state.
    is_outdated: bool,
    running: Option<Arc<A::Object>>,
    /// The exported state of the object that is being reconciled.
    exported: Option<Arc<ExportedState>>,
    due: Option<Time>,
}

struct Inner<A: AutoscalerKind> {
    entries: BTreeMap<ObjectKey, QueueEntry<A>>,
    due: BTreeSet<(Time, ObjectKey)>,
    /// The objects that exist, for each watch scope.
    existing: Vec<ObjectStore<ObjectKey, ()>>,
    /// Whether each watch scope is being listed.
    is_listing: Vec<bool>,
}

pub(in crate::controllers) struct ReconcileQueue<A: AutoscalerKind> {
    inner: Mutex<Inner<A>>,
    /// Incremented whenever an object becomes due earlier.
    wakeups: watch::Sender<u64>,
}

#[derive(Debug)]
pub(in crate::controllers) enum NextItem<A: AutoscalerKind> {
    Due(ObjectKey, Box<ObjectState<A>>, Time),
    /// No object is due before this time; `None` if none is scheduled.
    NoneUntil(Option<Time>),
}

impl<A: AutoscalerKind> ReconcileQueue<A> {
    /// Creates an empty queue for objects from this many watch scopes.
    pub fn new(scopes: usize) -> Self {
        let inner = Inner {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            existing: (0..scopes).map(|_| ObjectStore::default()).collect(),
            is_listing: vec![false; scopes],
        };
        Self { inner: Mutex::new(inner), wakeups: watch::Sender::new(0) }
    }

    /// Notifies whenever an object becomes due earlier.
    pub fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    /// Applies a watch event. New and changed objects are due at once.
    pub fn apply(&self, scope: usize, change: ObjectChange<A::Object>, now: Time) {
        let mut inner = self.inner.lock();
        let is_due = inner.apply(scope, change, now);
        drop(inner);
        if is_due {
            self.wakeups.send_modify(|count| *count += 1);
        }
    }

    pub fn pop_due(&self, now: Time) -> NextItem<A> {
        let mut inner = self.inner.lock();
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
                entry.running = Some(Arc::clone(&state.object));
                NextItem::Due(key, state, at)
            }
            None => NextItem::NoneUntil(Some(now)),
        }
    }

    /// Puts an object back after its reconcile. `next` is when it is due again; `None` if only after a change.
    pub fn requeue(
        &self,
        key: &ObjectKey,
        mut state: Box<ObjectState<A>>,
        next: Option<Time>,
        now: Time,
    ) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(entry) = inner.entries.get_mut(key) else { return };
        entry.running = None;
        if entry.is_gone {
            inner.entries.remove(key);
            return;
        }
        let mut next = next;
        if std::mem::take(&mut entry.is_outdated) {
            next = Some(now);
        }
        for complete in std::mem::take(&mut entry.completions) {
            let due = complete(&mut state);
            next = next.into_iter().chain(due).min();
        }
        if let Some((newer, is_listing)) = entry.newer_object.take() {
            if A::is_material_change(&state.object, &newer) {
                next = Some(now);
            }
            if newer.uid() == state.object.uid() {
                if is_listing || !state.is_newer_than(&newer) {
                    state.object = newer;
                }
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
        drop(guard);
        if next.is_some() {
            self.wakeups.send_modify(|count| *count += 1);
        }
    }

    /// Ends a write of an object, and applies its result: at once, or at the end of a reconcile that is running. `end`
    /// returns whether waiting writes are outdated now.
    pub fn complete(
        &self,
        key: &ObjectKey,
        now: Time,
        is_scale: bool,
        end: impl FnOnce() -> bool,
        complete: Completion<A>,
    ) {
        let mut inner = self.inner.lock();
        let mut due = end().then_some(now);
        let Some(entry) = inner.entries.get_mut(key).filter(|entry| !entry.is_gone) else { return };
        match &mut entry.state {
            None => {
                entry.is_outdated |= is_scale;
                entry.completions.push(complete);
            }
            Some(state) => {
                due = due.into_iter().chain(complete(state)).min();
                entry.exported.clone_from(&state.exported);
                if let Some(due) = due.filter(|due| entry.due.is_none_or(|before| *due < before)) {
                    inner.bring_forward(key, due);
                }
            }
        }
        drop(inner);
        if due.is_some() {
            self.wakeups.send_modify(|count| *count += 1);
        }
    }

    /// Makes an object due at once, or again after its reconcile that is running.
    pub fn make_due(&self, key: &ObjectKey, now: Time) {
        self.complete(key, now, false, || true, Box::new(move |_| Some(now)));
    }

    /// Queues writes of the running reconcile of an object, unless its scale has been written meanwhile.
    pub fn if_current<T>(&self, key: &ObjectKey, queue: impl FnOnce() -> T) -> Option<T> {
        let inner = self.inner.lock();
        let is_outdated =
            inner.entries.get(key).is_none_or(|entry| entry.is_outdated || entry.is_gone);
        (!is_outdated).then(queue)
    }

    /// Makes every object due at once, because a new leader does not know their due times.
    pub fn requeue_all(&self, now: Time) {
        let mut inner = self.inner.lock();
        let waiting: Vec<ObjectKey> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.state.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            if let Some(state) = inner.entries.get_mut(&key).and_then(|entry| entry.state.as_mut())
            {
                A::on_takeover(&mut state.own);
                state.waiting_status = None;
            }
            inner.bring_forward(&key, now);
        }
    }

    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }

    pub fn all_exported(&self) -> Vec<Arc<ExportedState>> {
        let inner = self.inner.lock();
        inner.entries.values().filter_map(|entry| entry.exported().cloned()).collect()
    }

    /// Whether no object is due or being reconciled.
    pub fn is_idle(&self, now: Time) -> bool {
        let inner = self.inner.lock();
        inner.due.first().is_none_or(|(at, _)| *at > now)
            && inner.entries.values().all(|entry| entry.state.is_some())
    }

    pub fn overdue(&self, now: Time) -> usize {
        self.inner.lock().due.iter().take_while(|(at, _)| *at <= now).count()
    }

    pub fn longest_wait(&self, now: Time) -> Duration {
        let waited = |(at, _): &(Time, ObjectKey)| now.nanos_since(*at).max(0).unsigned_abs();
        Duration::from_nanos(self.inner.lock().due.first().map_or(0, waited))
    }

    pub fn objects(&self) -> Vec<Arc<A::Object>> {
        let inner = self.inner.lock();
        let objects = inner.entries.values().filter_map(|entry| match &entry.state {
            Some(state) => Some(Arc::clone(&state.object)),
            None => entry.running.clone(),
        });
        objects.collect()
    }

    pub fn keys(&self) -> HashSet<ObjectKey> {
        self.inner.lock().entries.keys().cloned().collect()
    }

    /// The exported states of a page of objects that starts after `after`, and the key after which the next page starts.
    pub fn exported_page(&self, after: Option<&ObjectKey>, limit: usize) -> ExportedPage {
        let inner = self.inner.lock();
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let mut exported = Vec::with_capacity(limit);
        let mut last = None;
        let page = inner.entries.range::<ObjectKey, _>((from, Bound::Unbounded)).take(limit);
        for (count, (key, entry)) in page.enumerate() {
            if let Some(current) = entry.exported() {
                exported.push((key.clone(), Arc::clone(current)));
            }
            last = (count + 1 == limit).then(|| key.clone());
        }
        (exported, last)
    }
}

impl<A: AutoscalerKind> QueueEntry<A> {
    fn exported(&self) -> Option<&Arc<ExportedState>> {
        let current = self.state.as_ref().and_then(|state| state.exported.as_ref());
        current.or(self.exported.as_ref())
    }
}

impl<A: AutoscalerKind> Inner<A> {
    /// Applies a watch event. Returns whether an object is due at once.
    fn apply(&mut self, scope: usize, change: ObjectChange<A::Object>, now: Time) -> bool {
        match &change {
            ObjectChange::Restart => self.is_listing[scope] = true,
            ObjectChange::Synced => self.is_listing[scope] = false,
            _ => {}
        }
        let mut applied = None;
        let change = change.map(|object| {
            let key = key_of(&object);
            applied = Some((key.clone(), object));
            (key, Some(()))
        });
        let removed =
            self.existing[scope].apply(change, |namespace, name| ObjectKey::new(namespace, name));
        if let Some((key, object)) = applied {
            return self.upsert(&key, A::trimmed(object), self.is_listing[scope], now);
        }
        for (key, ()) in removed {
            self.remove(&key);
        }
        false
    }

    fn upsert(
        &mut self,
        key: &ObjectKey,
        object: Arc<A::Object>,
        is_listing: bool,
        now: Time,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            let state = Some(Box::new(ObjectState::new(object)));
            let entry = QueueEntry {
                state,
                newer_object: None,
                is_gone: false,
                completions: Vec::new(),
                is_outdated: false,
                running: None,
                exported: None,
                due: None,
            };
            self.entries.insert(key.clone(), entry);
            self.bring_forward(key, now);
            return true;
        };
        // A watch is behind the writes of this process. A list is not: versions start over when a cluster is restored.
        if !is_listing && entry.state.as_ref().is_some_and(|state| state.is_newer_than(&object)) {
            return false;
        }
        let Some(state) = &mut entry.state else {
            entry.newer_object = Some((object, is_listing));
            entry.is_gone = false;
            return false;
        };
        let is_due = A::is_material_change(&state.object, &object);
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
            entry.completions.clear();
            return;
        }
        if let Some(QueueEntry { due: Some(due), .. }) = self.entries.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
