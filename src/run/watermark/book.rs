//! The objects that are looked after, what is remembered of each, and when each has its turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt as _;
use plimsoll_core::types::{Time, VpaKey};
use tokio::sync::watch;

use super::{
    rows::Shown,
    seat::{Seat, keep},
};
use crate::observe::watch::Change;
use plimsoll_core::{api::wpa::WatermarkPodAutoscaler, watermark::Restriction};

#[derive(Debug)]
struct Entry {
    /// Nothing while somebody looks at it.
    seat: Option<Box<Seat>>,
    /// What arrived meanwhile.
    newer: Option<Arc<WatermarkPodAutoscaler>>,
    /// It went meanwhile. What comes back by its name waits until nobody looks at it any more: two looks at one name would
    /// be two opinions about one target.
    is_gone: bool,
    /// The recommender that is asked meanwhile.
    recommender: Option<Box<str>>,
    /// What metrics show meanwhile.
    shown: Option<Arc<Shown>>,
    due: Option<Time>,
    scope: usize,
    list: u64,
}

#[derive(Debug, Default)]
struct Pages {
    entries: BTreeMap<VpaKey, Entry>,
    due: BTreeSet<(Time, VpaKey)>,
    /// Which list of each scope is being read.
    lists: Vec<u64>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Book {
    pages: Mutex<Pages>,
    /// Counts whatever brings a turn forward.
    news: watch::Sender<u64>,
}

/// Who has the next turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// This one, which was due then.
    Of(VpaKey, Box<Seat>, Time),
    /// Nobody before then.
    At(Option<Time>),
}

/// Whether an object is another one to whoever follows it: another spec, other annotations, or on its way out.
fn is_news(before: &WatermarkPodAutoscaler, after: &WatermarkPodAutoscaler) -> bool {
    before.uid() != after.uid()
        || before.spec != after.spec
        || before.metadata.annotations != after.metadata.annotations
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
}

impl Book {
    /// Of objects that come from so many watches.
    pub fn new(scopes: usize) -> Self {
        let pages = Pages { lists: vec![0; scopes], ..Pages::default() };
        Self { pages: Mutex::new(pages), news: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whenever a turn was brought forward.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Takes in what a watch tells. What is new has its turn at once.
    pub fn apply(&self, scope: usize, change: Change<WatermarkPodAutoscaler>, now: Time) {
        let mut pages = self.lock();
        let is_due = pages.apply(scope, change, now);
        drop(pages);
        if is_due {
            self.news.send_modify(|news| *news += 1);
        }
    }

    /// Who has the next turn.
    pub fn take(&self, now: Time) -> Turn {
        let mut pages = self.lock();
        let Some((at, key)) = pages.due.first().cloned() else { return Turn::At(None) };
        if at > now {
            return Turn::At(Some(at));
        }
        pages.due.remove(&(at, key.clone()));
        let Some(entry) = pages.entries.get_mut(&key) else { return Turn::At(Some(now)) };
        entry.due = None;
        match entry.seat.take() {
            Some(seat) => {
                let recommender = seat.object.spec.recommender.as_ref();
                entry.recommender = recommender.map(|it| it.url.as_str().into());
                Turn::Of(key, seat, at)
            }
            None => Turn::At(Some(now)),
        }
    }

    /// Gives an object back after its turn. `next` is when it has the next one; nothing is when it changes.
    pub fn give_back(&self, key: &VpaKey, mut seat: Box<Seat>, next: Option<Time>, now: Time) {
        let mut pages = self.lock();
        let Some(entry) = pages.entries.get_mut(key) else { return };
        entry.recommender = None;
        if entry.is_gone {
            pages.entries.remove(key);
            return;
        }
        let mut next = next;
        if let Some(newer) = entry.newer.take() {
            if is_news(&seat.object, &newer) {
                next = Some(now);
            }
            if newer.uid() == seat.object.uid() {
                seat.object = newer;
            } else {
                *seat = Seat::new(newer);
            }
        }
        entry.shown.clone_from(&seat.shown);
        entry.seat = Some(seat);
        entry.due = next;
        if let Some(next) = next {
            pages.due.insert((next, key.clone()));
        }
        drop(pages);
        if next.is_some() {
            self.news.send_modify(|news| *news += 1);
        }
    }

    /// Gives every object its turn at once: whoever leads by now knows nothing of what was put off.
    pub fn all_due(&self, now: Time) {
        let mut pages = self.lock();
        let waiting: Vec<VpaKey> = pages
            .entries
            .iter()
            .filter(|(_, entry)| entry.seat.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            if let Some(seat) = pages.entries.get_mut(&key).and_then(|entry| entry.seat.as_mut()) {
                seat.memory = None;
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
            entry.seat.as_ref().and_then(|seat| seat.shown.as_ref()).or(entry.shown.as_ref())
        });
        let (mut unknown, mut latest) = (0, None);
        for shown in shown {
            unknown += usize::from(shown.reasons.contains(&Restriction::MetricUnknown));
            latest = latest.max(Some(shown.at));
        }
        (pages.len(), unknown, latest)
    }

    /// Whether nobody looks at any, and nobody waits for a turn that has come.
    pub fn is_idle(&self, now: Time) -> bool {
        let pages = self.lock();
        pages.due.first().is_none_or(|(at, _)| *at > now)
            && pages.entries.values().all(|entry| entry.seat.is_some())
    }

    /// How many of them have waited for their turn at this time.
    pub fn late(&self, now: Time) -> usize {
        self.lock().due.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// For how long whoever has the next turn has waited for it.
    pub fn longest_wait(&self, now: Time) -> Duration {
        let waited = |(at, _): &(Time, VpaKey)| now.nanos_since(*at).max(0).unsigned_abs();
        Duration::from_nanos(self.lock().due.first().map_or(0, waited))
    }

    /// The recommenders that objects name.
    pub fn recommenders(&self) -> BTreeSet<String> {
        let pages = self.lock();
        let named = pages.entries.values().filter_map(|entry| match &entry.seat {
            Some(seat) => seat.object.spec.recommender.as_ref().map(|it| it.url.clone()),
            None => entry.recommender.as_deref().map(str::to_owned),
        });
        named.collect()
    }

    /// What metrics show of a page of objects, from the first key after `after` on, and from where to go on.
    pub fn shown(
        &self,
        after: Option<&VpaKey>,
        most: usize,
    ) -> (Vec<(VpaKey, Arc<Shown>)>, Option<VpaKey>) {
        let pages = self.lock();
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let mut shown = Vec::with_capacity(most);
        let mut last = None;
        let page = pages.entries.range::<VpaKey, _>((from, Bound::Unbounded)).take(most);
        for (count, (key, entry)) in page.enumerate() {
            let of = entry.seat.as_ref().and_then(|seat| seat.shown.as_ref());
            if let Some(of) = of.or(entry.shown.as_ref()) {
                shown.push((key.clone(), Arc::clone(of)));
            }
            last = (count + 1 == most).then(|| key.clone());
        }
        (shown, last)
    }
}

impl Pages {
    /// Whether somebody has a turn by it.
    fn apply(&mut self, scope: usize, change: Change<WatermarkPodAutoscaler>, now: Time) -> bool {
        match change {
            Change::Restart => self.lists[scope] += 1,
            Change::Put(object) => return self.put(scope, object, now),
            Change::Unreadable { namespace, name, .. } => {
                let list = self.lists[scope];
                if let Some(entry) = self.entries.get_mut(&VpaKey::new(namespace, name)) {
                    entry.list = list;
                }
            }
            Change::Gone { namespace, name, .. } => self.remove(&VpaKey::new(namespace, name)),
            Change::Complete => {
                let list = self.lists[scope];
                let gone = self.entries.iter();
                let gone = gone.filter(|(_, entry)| entry.scope == scope && entry.list != list);
                let gone: Vec<VpaKey> = gone.map(|(key, _)| key.clone()).collect();
                for key in gone {
                    self.remove(&key);
                }
            }
        }
        false
    }

    fn put(&mut self, scope: usize, object: WatermarkPodAutoscaler, now: Time) -> bool {
        let key = VpaKey::new(object.namespace().unwrap_or_default(), object.name_any());
        let (object, list) = (keep(object), self.lists[scope]);
        let Some(entry) = self.entries.get_mut(&key) else {
            let seat = Some(Box::new(Seat::new(object)));
            let entry = Entry {
                seat,
                newer: None,
                is_gone: false,
                recommender: None,
                shown: None,
                due: None,
                scope,
                list,
            };
            self.entries.insert(key.clone(), entry);
            self.bring_forward(&key, now);
            return true;
        };
        (entry.scope, entry.list) = (scope, list);
        let Some(seat) = &mut entry.seat else {
            entry.newer = Some(object);
            entry.is_gone = false;
            return false;
        };
        let news = is_news(&seat.object, &object);
        if seat.object.uid() == object.uid() {
            seat.object = object;
        } else {
            **seat = Seat::new(object);
        }
        if news {
            self.bring_forward(&key, now);
        }
        news
    }

    fn bring_forward(&mut self, key: &VpaKey, to: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some(due) = entry.due.replace(to) {
            self.due.remove(&(due, key.clone()));
        }
        self.due.insert((to, key.clone()));
    }

    fn len(&self) -> usize {
        self.entries.values().filter(|entry| !entry.is_gone).count()
    }

    fn remove(&mut self, key: &VpaKey) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.seat.is_none()) {
            (entry.is_gone, entry.newer, entry.shown) = (true, None, None);
            return;
        }
        if let Some(Entry { due: Some(due), .. }) = self.entries.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
