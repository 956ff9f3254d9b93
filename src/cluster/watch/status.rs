//! What is known of a watch by those who do not run it: readiness, metrics and the one line about what is wrong.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// So many unreadable objects are told apart by name. A cluster with more of them has another problem, and they are
/// still counted.
const MAX_INVALID_TRACKED: usize = 10_000;

/// A watch to which the API server has sent nothing for so long counts as failing, whatever else is known of it. A healthy
/// one gets a bookmark each minute, and is started again at least every five.
const STALL_TIMEOUT: Duration = Duration::from_mins(10);

/// The state of one watch.
#[derive(Debug)]
pub struct WatchStatus {
    name: &'static str,
    synced: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stats: WatchStats,
    /// Reasons by namespace and name.
    unreadable: HashMap<(String, String), Unreadable>,
    /// Which list is being read.
    list: u64,
    /// Whether the last thing that happened was an error.
    failing: bool,
    /// When the loop that runs the watch last came round, with an answer or with an error.
    last_activity: Option<Instant>,
}

#[derive(Debug)]
struct Unreadable {
    reason: String,
    list: u64,
}

/// How a watch is at one moment.
#[derive(Clone, Debug, Default)]
pub struct WatchStats {
    /// Objects that arrived, however often.
    pub objects: u64,
    /// Lists that were read to their end. Every one after the first means that changes may have been missed before it.
    pub lists: u64,
    /// Requests that failed or broke off.
    pub errors: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Unreadable objects that arrived, however often.
    pub invalid: u64,
    /// Objects that are unreadable now.
    pub invalid_now: usize,
    /// The last unreadable object (`namespace/name`) and what is wrong with it.
    pub last_invalid: Option<(String, String)>,
    /// When the API server last sent anything: an object, a page, a bookmark, or that a watch has started.
    pub last_response: Option<Instant>,
    /// Whether lists arrive one object at a time. False once the server has refused that.
    pub streams_lists: bool,
}

impl WatchStatus {
    /// Of a watch that does not run yet. The name is for logs and metrics, such as `pods`.
    pub fn new(name: &'static str) -> Self {
        let known = State {
            stats: WatchStats { streams_lists: true, ..WatchStats::default() },
            ..State::default()
        };
        Self { name, synced: watch::Sender::new(false), state: Mutex::new(known) }
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
        known.failing || known.stats.last_response.is_some_and(|at| at.elapsed() > STALL_TIMEOUT)
    }

    /// For how long the loop that runs the watch has stood still, if that is longer than any request of it may take. The
    /// requests of a watch have time limits, so that it comes round while the API server is away as well.
    pub fn stalled_for(&self) -> Option<Duration> {
        let turned = self.lock().last_activity;
        turned.map(|at| at.elapsed()).filter(|since| *since > STALL_TIMEOUT)
    }

    /// Waits until a list has been read to its end.
    pub async fn wait_until_synced(&self) {
        // Fails only when the sender is gone, which lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// How it is now.
    pub fn stats(&self) -> WatchStats {
        self.lock().stats.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch runs from now on.
    pub(super) fn on_start(&self) {
        self.lock().last_activity = Some(Instant::now());
    }

    pub(super) fn on_restart(&self) {
        let mut known = self.lock();
        known.record_activity();
        known.list += 1;
    }

    /// The server has answered, and may still have changes to send.
    pub(super) fn on_response(&self) {
        let mut known = self.lock();
        known.stats.last_response = Some(known.record_activity());
    }

    /// The server has sent every change so far.
    pub(super) fn on_bookmark(&self) {
        self.lock().record_response();
    }

    pub(in crate::cluster) fn on_synced(&self) {
        let mut known = self.lock();
        known.record_response();
        known.stats.lists += 1;
        let list = known.list;
        known.unreadable.retain(|_, unreadable| unreadable.list == list);
        known.stats.invalid_now = known.unreadable.len();
        drop(known);
        self.synced.send_replace(true);
    }

    /// A readable object has arrived, or one has gone.
    pub(in crate::cluster) fn on_event(&self, namespace: &str, name: &str) {
        let mut known = self.lock();
        known.record_response();
        known.stats.objects += 1;
        // The key is only made where there is something to find.
        if !known.unreadable.is_empty() {
            known.unreadable.remove(&(namespace.to_owned(), name.to_owned()));
            known.stats.invalid_now = known.unreadable.len();
        }
    }

    pub(super) fn on_invalid_object(&self, namespace: &str, name: &str, reason: &str) {
        let mut known = self.lock();
        known.record_response();
        known.stats.invalid += 1;
        known.stats.last_invalid = Some((format!("{namespace}/{name}"), reason.to_owned()));
        let list = known.list;
        let has_room = known.unreadable.len() < MAX_INVALID_TRACKED;
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
        known.stats.invalid_now = known.unreadable.len();
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

    pub(in crate::cluster) fn on_error(&self, error: &str) {
        let mut known = self.lock();
        known.record_activity();
        known.stats.errors += 1;
        known.stats.last_error = Some(error.to_owned());
        let is_new = !std::mem::replace(&mut known.failing, true);
        drop(known);
        if is_new {
            tracing::warn!(feed = self.name, error, "a watch failed; it is tried again");
        } else {
            tracing::debug!(feed = self.name, error, "a watch still fails");
        }
    }

    pub(super) fn on_streaming_refused(&self, error: &str) {
        self.lock().stats.streams_lists = false;
        tracing::info!(
            feed = self.name,
            error,
            "the server does not stream lists; they are read in pages"
        );
    }
}

impl State {
    fn record_activity(&mut self) -> Instant {
        *self.last_activity.insert(Instant::now())
    }

    fn record_response(&mut self) {
        self.failing = false;
        self.stats.last_response = Some(self.record_activity());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_object_is_forgotten_when_it_is_mended_or_no_longer_listed() {
        let feed = WatchStatus::new("test");
        feed.on_restart();
        feed.on_invalid_object("n", "mended", "no target");
        feed.on_invalid_object("n", "deleted", "no target");
        feed.on_invalid_object("n", "deleted", "no target");
        feed.on_synced();
        assert_eq!((feed.stats().invalid, feed.stats().invalid_now), (3, 2));
        feed.on_event("n", "mended");
        assert_eq!(feed.stats().invalid_now, 1);
        feed.on_restart();
        feed.on_synced();
        assert_eq!((feed.stats().invalid_now, feed.stats().lists), (0, 2));
    }
}
