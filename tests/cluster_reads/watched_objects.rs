//! A copy of a kind's objects that a watch maintains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Resource, ResourceExt as _};
use plimsoll::cluster::watch::status::{WatchStats, WatchStatus};
use plimsoll::cluster::watch::{ObjectChange, WatchOptions, WatchSource, watch};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::support::wait;

/// A copy, maintained by its own watch until it is dropped.
pub struct WatchedObjects<K> {
    pub feed: Arc<WatchStatus>,
    known: Arc<Mutex<ReceivedObjects<K>>>,
    watch: JoinHandle<()>,
}

struct ReceivedObjects<K> {
    objects: BTreeMap<String, K>,
    listed: BTreeSet<String>,
    unreadable: BTreeMap<String, String>,
}

impl<K> WatchedObjects<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    pub fn of(objects: impl Into<WatchSource<K>>, options: WatchOptions) -> Self {
        Self::with_delay(objects, options, |_| {})
    }

    /// Calls this before it applies an event.
    pub fn with_delay(
        objects: impl Into<WatchSource<K>>,
        options: WatchOptions,
        mut before: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let objects = objects.into();
        let feed = Arc::new(WatchStatus::new("test"));
        let known = Arc::new(Mutex::new(ReceivedObjects {
            objects: BTreeMap::new(),
            listed: BTreeSet::new(),
            unreadable: BTreeMap::new(),
        }));
        let watch = tokio::spawn({
            let (feed, known) = (Arc::clone(&feed), Arc::clone(&known));
            async move {
                let apply = |change: ObjectChange<K>| {
                    if let ObjectChange::Applied(object) = &change {
                        before(&object.name_any());
                    }
                    known.lock().unwrap_or_else(PoisonError::into_inner).apply(change);
                };
                watch(objects, options, &feed, apply, std::future::pending()).await;
            }
        });
        Self { feed, known, watch }
    }

    /// Names of the objects.
    pub fn names(&self) -> Vec<String> {
        self.with_received(|known| known.objects.keys().cloned().collect())
    }

    pub fn get(&self, name: &str) -> Option<K> {
        self.with_received(|known| known.objects.get(name).cloned())
    }

    /// Why an object is unreadable.
    pub fn unreadable(&self, name: &str) -> Option<String> {
        self.with_received(|known| known.unreadable.get(name).cloned())
    }

    pub fn status(&self) -> WatchStats {
        self.feed.stats()
    }

    pub async fn wait_for_names(&self, names: &[&str]) {
        wait::until(&format!("exactly {names:?} are known"), || {
            std::future::ready((self.names() == names).then_some(()))
        })
        .await;
    }

    fn with_received<T>(&self, read: impl FnOnce(&ReceivedObjects<K>) -> T) -> T {
        read(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Resource> ReceivedObjects<K> {
    fn apply(&mut self, change: ObjectChange<K>) {
        match change {
            ObjectChange::Restart => self.listed.clear(),
            ObjectChange::Applied(object) => {
                let name = object.name_any();
                self.listed.insert(name.clone());
                self.unreadable.remove(&name);
                self.objects.insert(name, object);
            }
            ObjectChange::Invalid { name, reason, .. } => {
                self.listed.insert(name.clone());
                self.unreadable.insert(name, reason);
            }
            ObjectChange::Deleted { name, .. } => {
                self.objects.remove(&name);
                self.unreadable.remove(&name);
            }
            ObjectChange::Synced => {
                self.objects.retain(|name, _| self.listed.contains(name));
                self.unreadable.retain(|name, _| self.listed.contains(name));
            }
        }
    }
}

impl<K> Drop for WatchedObjects<K> {
    fn drop(&mut self) {
        self.watch.abort();
        if std::thread::panicking() {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<_> = known.objects.keys().collect();
            let _ = writeln!(std::io::stderr(), "{names:?} known, {:?}", self.feed.stats());
        }
    }
}
