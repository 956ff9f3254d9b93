//! The objects that are looked after, what is remembered of each, and when each has its turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::sync::watch;

use super::{
    exported_state::ExportedState,
    object_state::{ObjectState, trimmed},
};
use crate::cluster::watch::ObjectChange;
use plimsoll_core::{api::wpa::WatermarkPodAutoscaler, watermark::Restriction};

#[derive(Debug)]
struct QueueEntry {
    /// Nothing while somebody looks at it.
    state: Option<Box<ObjectState>>,
    /// What arrived meanwhile.
    newer_object: Option<Arc<WatermarkPodAutoscaler>>,
    /// It went meanwhile. What comes back by its name waits until nobody looks at it any more: two looks at one name would
    /// be two opinions about one target.
    is_gone: bool,
    /// The recommender that is asked meanwhile.
    recommender: Option<Box<str>>,
    /// What metrics show meanwhile.
    exported: Option<Arc<ExportedState>>,
    due: Option<Time>,
    scope: usize,
    list_generation: u64,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<ObjectKey, QueueEntry>,
    due: BTreeSet<(Time, ObjectKey)>,
    /// Which list of each scope is being read.
    list_generations: Vec<u64>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct ReconcileQueue {
    inner: Mutex<Inner>,
    /// Counts whatever brings a turn forward.
    wakeups: watch::Sender<u64>,
}

/// Who has the next turn.
#[derive(Debug)]
pub(super) enum NextItem {
    /// This one, which was due then.
    Due(ObjectKey, Box<ObjectState>, Time),
    /// Nobody before then.
    NoneUntil(Option<Time>),
}

/// Whether an object is another one to whoever follows it: another spec, other annotations, or on its way out.
fn is_material_change(before: &WatermarkPodAutoscaler, after: &WatermarkPodAutoscaler) -> bool {
    before.uid() != after.uid()
        || before.spec != after.spec
        || before.metadata.annotations != after.metadata.annotations
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
}

impl ReconcileQueue {
    /// Of objects that come from so many watches.
    pub fn new(scopes: usize) -> Self {
        let pages = Inner { list_generations: vec![0; scopes], ..Inner::default() };
        Self { inner: Mutex::new(pages), wakeups: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whenever a turn was brought forward.
    pub fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.subscribe()
    }

    /// Takes in what a watch tells. What is new has its turn at once.
    pub fn apply(&self, scope: usize, change: ObjectChange<WatermarkPodAutoscaler>, now: Time) {
        let mut pages = self.lock();
        let is_due = pages.apply(scope, change, now);
        drop(pages);
        if is_due {
            self.wakeups.send_modify(|news| *news += 1);
        }
    }

    /// Who has the next turn.
    pub fn pop_due(&self, now: Time) -> NextItem {
        let mut pages = self.lock();
        let Some((at, key)) = pages.due.first().cloned() else { return NextItem::NoneUntil(None) };
        if at > now {
            return NextItem::NoneUntil(Some(at));
        }
        pages.due.remove(&(at, key.clone()));
        let Some(entry) = pages.entries.get_mut(&key) else {
            return NextItem::NoneUntil(Some(now));
        };
        entry.due = None;
        match entry.state.take() {
            Some(seat) => {
                let recommender = seat.object.spec.recommender.as_ref();
                entry.recommender = recommender.map(|it| it.url.as_str().into());
                NextItem::Due(key, seat, at)
            }
            None => NextItem::NoneUntil(Some(now)),
        }
    }

    /// Gives an object back after its turn. `next` is when it has the next one; nothing is when it changes.
    pub fn requeue(
        &self,
        key: &ObjectKey,
        mut seat: Box<ObjectState>,
        next: Option<Time>,
        now: Time,
    ) {
        let mut pages = self.lock();
        let Some(entry) = pages.entries.get_mut(key) else { return };
        entry.recommender = None;
        if entry.is_gone {
            pages.entries.remove(key);
            return;
        }
        let mut next = next;
        if let Some(newer) = entry.newer_object.take() {
            if is_material_change(&seat.object, &newer) {
                next = Some(now);
            }
            if newer.uid() == seat.object.uid() {
                seat.object = newer;
            } else {
                *seat = ObjectState::new(newer);
            }
        }
        entry.exported.clone_from(&seat.exported);
        entry.state = Some(seat);
        entry.due = next;
        if let Some(next) = next {
            pages.due.insert((next, key.clone()));
        }
        drop(pages);
        if next.is_some() {
            self.wakeups.send_modify(|news| *news += 1);
        }
    }

    /// Gives every object its turn at once: whoever leads by now knows nothing of what was put off.
    pub fn requeue_all(&self, now: Time) {
        let mut pages = self.lock();
        let waiting: Vec<ObjectKey> = pages
            .entries
            .iter()
            .filter(|(_, entry)| entry.state.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            if let Some(seat) = pages.entries.get_mut(&key).and_then(|entry| entry.state.as_mut()) {
                seat.metric_history = None;
            }
            pages.bring_forward(&key, now);
        }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many objects there are, of how many some metric is unknown, and when one was looked at last.
    pub fn summary(&self) -> (usize, usize, Option<Time>) {
        let pages = self.lock();
        let shown = pages.entries.values().filter_map(|entry| {
            entry.state.as_ref().and_then(|seat| seat.exported.as_ref()).or(entry.exported.as_ref())
        });
        let (mut unknown, mut latest) = (0, None);
        for shown in shown {
            unknown += usize::from(shown.restrictions.contains(&Restriction::MetricUnknown));
            latest = latest.max(Some(shown.reconciled_at));
        }
        (pages.len(), unknown, latest)
    }

    /// Whether nobody looks at any, and nobody waits for a turn that has come.
    pub fn is_idle(&self, now: Time) -> bool {
        let pages = self.lock();
        pages.due.first().is_none_or(|(at, _)| *at > now)
            && pages.entries.values().all(|entry| entry.state.is_some())
    }

    /// How many of them have waited for their turn at this time.
    pub fn overdue(&self, now: Time) -> usize {
        self.lock().due.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// For how long whoever has the next turn has waited for it.
    pub fn longest_wait(&self, now: Time) -> Duration {
        let waited = |(at, _): &(Time, ObjectKey)| now.nanos_since(*at).max(0).unsigned_abs();
        Duration::from_nanos(self.lock().due.first().map_or(0, waited))
    }

    /// The recommenders that objects name.
    pub fn recommenders(&self) -> BTreeSet<String> {
        let pages = self.lock();
        let named = pages.entries.values().filter_map(|entry| match &entry.state {
            Some(seat) => seat.object.spec.recommender.as_ref().map(|it| it.url.clone()),
            None => entry.recommender.as_deref().map(str::to_owned),
        });
        named.collect()
    }

    /// What metrics show of a page of objects, from the first key after `after` on, and from where to go on.
    pub fn exported_page(
        &self,
        after: Option<&ObjectKey>,
        most: usize,
    ) -> (Vec<(ObjectKey, Arc<ExportedState>)>, Option<ObjectKey>) {
        let pages = self.lock();
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let mut shown = Vec::with_capacity(most);
        let mut last = None;
        let page = pages.entries.range::<ObjectKey, _>((from, Bound::Unbounded)).take(most);
        for (count, (key, entry)) in page.enumerate() {
            let of = entry.state.as_ref().and_then(|seat| seat.exported.as_ref());
            if let Some(of) = of.or(entry.exported.as_ref()) {
                shown.push((key.clone(), Arc::clone(of)));
            }
            last = (count + 1 == most).then(|| key.clone());
        }
        (shown, last)
    }
}

impl Inner {
    /// Whether somebody has a turn by it.
    fn apply(
        &mut self,
        scope: usize,
        change: ObjectChange<WatermarkPodAutoscaler>,
        now: Time,
    ) -> bool {
        match change {
            ObjectChange::Restart => self.list_generations[scope] += 1,
            ObjectChange::Applied(object) => return self.upsert(scope, object, now),
            ObjectChange::Invalid { namespace, name, .. } => {
                let list = self.list_generations[scope];
                if let Some(entry) = self.entries.get_mut(&ObjectKey::new(namespace, name)) {
                    entry.list_generation = list;
                }
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.remove(&ObjectKey::new(namespace, name));
            }
            ObjectChange::Synced => {
                let list = self.list_generations[scope];
                let gone = self.entries.iter();
                let gone =
                    gone.filter(|(_, entry)| entry.scope == scope && entry.list_generation != list);
                let gone: Vec<ObjectKey> = gone.map(|(key, _)| key.clone()).collect();
                for key in gone {
                    self.remove(&key);
                }
            }
        }
        false
    }

    fn upsert(&mut self, scope: usize, object: WatermarkPodAutoscaler, now: Time) -> bool {
        let key = ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any());
        let (object, list) = (trimmed(object), self.list_generations[scope]);
        let Some(entry) = self.entries.get_mut(&key) else {
            let seat = Some(Box::new(ObjectState::new(object)));
            let entry = QueueEntry {
                state: seat,
                newer_object: None,
                is_gone: false,
                recommender: None,
                exported: None,
                due: None,
                scope,
                list_generation: list,
            };
            self.entries.insert(key.clone(), entry);
            self.bring_forward(&key, now);
            return true;
        };
        (entry.scope, entry.list_generation) = (scope, list);
        let Some(seat) = &mut entry.state else {
            entry.newer_object = Some(object);
            entry.is_gone = false;
            return false;
        };
        let news = is_material_change(&seat.object, &object);
        if seat.object.uid() == object.uid() {
            seat.object = object;
        } else {
            **seat = ObjectState::new(object);
        }
        if news {
            self.bring_forward(&key, now);
        }
        news
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
