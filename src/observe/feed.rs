//! What is known of a watch by those who do not run it: readiness, metrics and the one line about what is wrong.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// So many unreadable objects are told apart by name. A cluster with more of them has another problem, and they are
/// still counted.
const NAMED: usize = 10_000;

/// A watch to which the API server has sent nothing for so long counts as failing, whatever else is known of it. A healthy
/// one gets a bookmark each minute, and is started again at least every five.
const SILENCE: Duration = Duration::from_mins(10);

/// The state of one watch.
#[derive(Debug)]
pub struct Feed {
    name: &'static str,
    synced: watch::Sender<bool>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    status: Status,
    /// Reasons by namespace and name.
    unreadable: HashMap<(String, String), Unreadable>,
    /// Which list is being read.
    list: u64,
    /// Whether the last thing that happened was an error.
    failing: bool,
    /// When the loop that runs the watch last came round, with an answer or with an error.
    turned: Option<Instant>,
}

#[derive(Debug)]
struct Unreadable {
    reason: String,
    list: u64,
}

/// How a watch is at one moment.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Objects that arrived, however often.
    pub objects: u64,
    /// Lists that were read to their end. Every one after the first means that changes may have been missed before it.
    pub lists: u64,
    /// Requests that failed or broke off.
    pub errors: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Unreadable objects that arrived, however often.
    pub malformed: u64,
    /// Objects that are unreadable now.
    pub malformed_now: usize,
    /// The last unreadable object (`namespace/name`) and what is wrong with it.
    pub last_malformed: Option<(String, String)>,
    /// When the API server last sent anything: an object, a page, a bookmark, or that a watch has started.
    pub last_heard: Option<Instant>,
    /// Whether lists arrive one object at a time. False once the server has refused that.
    pub streams: bool,
}

impl Feed {
    /// Of a watch that does not run yet. The name is for logs and metrics, such as `pods`.
    pub fn new(name: &'static str) -> Self {
        let known =
            Known { status: Status { streams: true, ..Status::default() }, ..Known::default() };
        Self { name, synced: watch::Sender::new(false), known: Mutex::new(known) }
    }

    /// What it was named.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a list has been read to its end.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Whether nothing has arrived since the last error, or for ten minutes: what is known may be old.
    pub fn is_failing(&self) -> bool {
        let known = self.lock();
        known.failing || known.status.last_heard.is_some_and(|at| at.elapsed() > SILENCE)
    }

    /// For how long the loop that runs the watch has stood still, if that is longer than any request of it may take. The
    /// requests of a watch have time limits, so that it comes round while the API server is away as well.
    pub fn stalled(&self) -> Option<Duration> {
        let turned = self.lock().turned;
        turned.map(|at| at.elapsed()).filter(|since| *since > SILENCE)
    }

    /// Waits until a list has been read to its end.
    pub async fn synced(&self) {
        // Fails only when the sender is gone, which lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// How it is now.
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch runs from now on.
    pub(super) fn starts(&self) {
        self.lock().turned = Some(Instant::now());
    }

    pub(super) fn begins(&self) {
        let mut known = self.lock();
        known.turns();
        known.list += 1;
    }

    /// The server has answered, and may still have changes to send.
    pub(super) fn answers(&self) {
        let mut known = self.lock();
        known.status.last_heard = Some(known.turns());
    }

    /// The server has sent every change so far.
    pub(super) fn is_current(&self) {
        self.lock().arrived();
    }

    pub(super) fn completes(&self) {
        let mut known = self.lock();
        known.arrived();
        known.status.lists += 1;
        let list = known.list;
        known.unreadable.retain(|_, unreadable| unreadable.list == list);
        known.status.malformed_now = known.unreadable.len();
        drop(known);
        self.synced.send_replace(true);
    }

    /// A readable object has arrived, or one has gone.
    pub(super) fn arrives(&self, namespace: &str, name: &str) {
        let mut known = self.lock();
        known.arrived();
        known.status.objects += 1;
        // The key is only made where there is something to find.
        if !known.unreadable.is_empty() {
            known.unreadable.remove(&(namespace.to_owned(), name.to_owned()));
            known.status.malformed_now = known.unreadable.len();
        }
    }

    pub(super) fn is_unreadable(&self, namespace: &str, name: &str, reason: &str) {
        let mut known = self.lock();
        known.arrived();
        known.status.malformed += 1;
        known.status.last_malformed = Some((format!("{namespace}/{name}"), reason.to_owned()));
        let list = known.list;
        let has_room = known.unreadable.len() < NAMED;
        let key = (namespace.to_owned(), name.to_owned());
        let is_new = match known.unreadable.get_mut(&key) {
            Some(before) => {
                before.list = list;
                std::mem::replace(&mut before.reason, reason.to_owned()) != reason
            }
            None if has_room => {
                known.unreadable.insert(key, Unreadable { reason: reason.to_owned(), list });
                true
            }
            None => false,
        };
        known.status.malformed_now = known.unreadable.len();
        drop(known);
        if is_new {
            tracing::warn!(
                feed = self.name,
                namespace,
                name,
                reason,
                "an object cannot be read and is left as it was last known: correct it"
            );
        }
    }

    pub(super) fn fails(&self, error: &str) {
        let mut known = self.lock();
        known.turns();
        known.status.errors += 1;
        known.status.last_error = Some(error.to_owned());
        let is_new = !std::mem::replace(&mut known.failing, true);
        drop(known);
        if is_new {
            tracing::warn!(feed = self.name, error, "a watch failed; it is tried again");
        } else {
            tracing::debug!(feed = self.name, error, "a watch still fails");
        }
    }

    pub(super) fn no_longer_streams(&self, error: &str) {
        self.lock().status.streams = false;
        tracing::info!(
            feed = self.name,
            error,
            "the server does not stream lists; they are read in pages"
        );
    }
}

impl Known {
    fn turns(&mut self) -> Instant {
        *self.turned.insert(Instant::now())
    }

    fn arrived(&mut self) {
        self.failing = false;
        self.status.last_heard = Some(self.turns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_object_is_forgotten_when_it_is_mended_or_no_longer_listed() {
        let feed = Feed::new("test");
        feed.begins();
        feed.is_unreadable("n", "mended", "no target");
        feed.is_unreadable("n", "deleted", "no target");
        feed.is_unreadable("n", "deleted", "no target");
        feed.completes();
        assert_eq!((feed.status().malformed, feed.status().malformed_now), (3, 2));
        feed.arrives("n", "mended");
        assert_eq!(feed.status().malformed_now, 1);
        feed.begins();
        feed.completes();
        assert_eq!((feed.status().malformed_now, feed.status().lists), (0, 2));
    }
}
