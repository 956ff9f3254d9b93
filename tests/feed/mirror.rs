//! Owns a copy of a kind's objects that a watch fills, as a reader of it would keep it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Resource, ResourceExt as _};
use plimsoll::observe::feed::{Feed, Status};
use plimsoll::observe::watch::{Change, Objects, Options, watch};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::support::wait;

/// A copy, kept by a watch of its own until it is dropped.
pub struct Mirror<K> {
    pub feed: Arc<Feed>,
    known: Arc<Mutex<Known<K>>>,
    watch: JoinHandle<()>,
}

struct Known<K> {
    objects: BTreeMap<String, K>,
    listed: BTreeSet<String>,
    unreadable: BTreeMap<String, String>,
}

impl<K> Mirror<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    pub fn of(objects: impl Into<Objects<K>>, options: Options) -> Self {
        Self::slowed(objects, options, |_| {})
    }

    /// One that calls this before it takes an object in.
    pub fn slowed(
        objects: impl Into<Objects<K>>,
        options: Options,
        mut before: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let objects = objects.into();
        let feed = Arc::new(Feed::new("test"));
        let known = Arc::new(Mutex::new(Known {
            objects: BTreeMap::new(),
            listed: BTreeSet::new(),
            unreadable: BTreeMap::new(),
        }));
        let watch = tokio::spawn({
            let (feed, known) = (Arc::clone(&feed), Arc::clone(&known));
            async move {
                let apply = |change: Change<K>| {
                    if let Change::Put(object) = &change {
                        before(&object.name_any());
                    }
                    known.lock().unwrap_or_else(PoisonError::into_inner).take(change);
                };
                watch(objects, options, &feed, apply, std::future::pending()).await;
            }
        });
        Self { feed, known, watch }
    }

    /// Names of what is there.
    pub fn names(&self) -> Vec<String> {
        self.look(|known| known.objects.keys().cloned().collect())
    }

    pub fn get(&self, name: &str) -> Option<K> {
        self.look(|known| known.objects.get(name).cloned())
    }

    /// What is wrong with an object.
    pub fn unreadable(&self, name: &str) -> Option<String> {
        self.look(|known| known.unreadable.get(name).cloned())
    }

    pub fn status(&self) -> Status {
        self.feed.status()
    }

    pub async fn holds(&self, names: &[&str]) {
        wait::until(&format!("exactly {names:?} are known"), || {
            std::future::ready((self.names() == names).then_some(()))
        })
        .await;
    }

    fn look<T>(&self, look: impl FnOnce(&Known<K>) -> T) -> T {
        look(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Resource> Known<K> {
    fn take(&mut self, change: Change<K>) {
        match change {
            Change::Restart => self.listed.clear(),
            Change::Put(object) => {
                let name = object.name_any();
                self.listed.insert(name.clone());
                self.unreadable.remove(&name);
                self.objects.insert(name, object);
            }
            Change::Unreadable { name, reason, .. } => {
                self.listed.insert(name.clone());
                self.unreadable.insert(name, reason);
            }
            Change::Gone { name, .. } => {
                self.objects.remove(&name);
                self.unreadable.remove(&name);
            }
            Change::Complete => {
                self.objects.retain(|name, _| self.listed.contains(name));
                self.unreadable.retain(|name, _| self.listed.contains(name));
            }
        }
    }
}

impl<K> Drop for Mirror<K> {
    fn drop(&mut self) {
        self.watch.abort();
        if std::thread::panicking() {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<_> = known.objects.keys().collect();
            let _ = writeln!(std::io::stderr(), "{names:?} known, {:?}", self.feed.status());
        }
    }
}
