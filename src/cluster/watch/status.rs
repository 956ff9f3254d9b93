//! The status of a watch for readiness, metrics and logs.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

/// The number of invalid objects that are tracked by name. A cluster with more of them has another problem, and they are
/// still counted.
const MAX_INVALID_TRACKED: usize = 10_000;

/// A watch that has received nothing for this long counts as failing. A healthy one receives a bookmark every minute, and is
/// restarted at least every five.
const STALL_TIMEOUT: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub struct WatchStatus {
    pub name: &'static str,
    synced: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stats: WatchStats,
    /// Errors of invalid objects, by namespace and name.
    unreadable: HashMap<(String, String), Unreadable>,
    list: u64,
    /// Whether the last event was an error.
    failing: bool,
    /// When the watch loop last made progress, with a response or with an error.
    last_activity: Option<Instant>,
}

#[derive(Debug)]
struct Unreadable {
    reason: String,
    list: u64,
}

#[derive(Clone, Debug, Default)]
pub struct WatchStats {
    /// Objects received, including repeats.
    pub objects: u64,
    /// Completed lists. Each one after the first means that changes may have been missed before it.
    pub lists: u64,
    /// Failed requests, and watches that were interrupted.
    pub errors: u64,
    pub last_error: Option<String>,
    /// Invalid objects received, including repeats.
    pub invalid: u64,
    pub invalid_now: usize,
    /// When the API server last sent anything: an object, a page, a bookmark, or the start of a watch.
    pub last_response: Option<Instant>,
    /// Whether lists are streamed. False once the server has refused that.
    pub streams_lists: bool,
}

impl WatchStatus {
    /// The status of a watch that is not running yet. `name` is for logs and metrics, such as `pods`.
    pub fn new(name: &'static str) -> Self {
        let state = State {
            stats: WatchStats { streams_lists: true, ..WatchStats::default() },
            ..State::default()
        };
        Self { name, synced: watch::Sender::new(false), state: Mutex::new(state) }
    }

    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Whether nothing has been received since the last error, or for ten minutes: cached objects may be old.
    pub fn is_failing(&self) -> bool {
        let state = self.state.lock();
        state.failing || state.stats.last_response.is_some_and(|at| at.elapsed() > STALL_TIMEOUT)
    }

    /// How long the watch loop has been stuck, if that is longer than the timeout of any of its requests. The loop makes
    /// progress while the API server is down too, because all requests have timeouts.
    pub fn stalled_for(&self) -> Option<Duration> {
        let last_activity = self.state.lock().last_activity;
        last_activity.map(|at| at.elapsed()).filter(|since| *since > STALL_TIMEOUT)
    }

    pub async fn wait_until_synced(&self) {
        // Fails only when the sender is gone, which lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub fn stats(&self) -> WatchStats {
        self.state.lock().stats.clone()
    }

    pub(super) fn on_start(&self) {
        self.state.lock().last_activity = Some(Instant::now());
    }

    pub(super) fn on_restart(&self) {
        let mut state = self.state.lock();
        state.record_activity();
        state.list += 1;
    }

    /// The server has responded, and may still have changes to send.
    pub(super) fn on_response(&self) {
        let mut state = self.state.lock();
        state.stats.last_response = Some(state.record_activity());
    }

    /// The server has sent all changes up to now.
    pub(super) fn on_bookmark(&self) {
        self.state.lock().record_response();
    }

    pub(in crate::cluster) fn on_synced(&self) {
        let mut state = self.state.lock();
        state.record_response();
        state.stats.lists += 1;
        let list = state.list;
        state.unreadable.retain(|_, unreadable| unreadable.list == list);
        state.stats.invalid_now = state.unreadable.len();
        drop(state);
        self.synced.send_replace(true);
    }

    /// A valid object was received, or one was deleted.
    pub(in crate::cluster) fn on_event(&self, namespace: &str, name: &str) {
        let mut state = self.state.lock();
        state.record_response();
        state.stats.objects += 1;
        // Builds the key only if there is something to find.
        if !state.unreadable.is_empty() {
            state.unreadable.remove(&(namespace.to_owned(), name.to_owned()));
            state.stats.invalid_now = state.unreadable.len();
        }
    }

    pub(super) fn on_invalid_object(&self, namespace: &str, name: &str, reason: &str) {
        let mut state = self.state.lock();
        state.record_response();
        state.stats.invalid += 1;
        let list = state.list;
        let is_below_limit = state.unreadable.len() < MAX_INVALID_TRACKED;
        let key = (namespace.to_owned(), name.to_owned());
        let is_new = match state.unreadable.get_mut(&key) {
            Some(unreadable) => {
                unreadable.list = list;
                std::mem::replace(&mut unreadable.reason, reason.to_owned()) != reason
            }
            None if is_below_limit => {
                state.unreadable.insert(key, Unreadable { reason: reason.to_owned(), list });
                true
            }
            None => false,
        };
        state.stats.invalid_now = state.unreadable.len();
        drop(state);
        if is_new {
            tracing::warn!(
                feed = self.name,
                namespace,
                name,
                reason,
                "invalid object; keeping its last known state"
            );
        }
    }

    pub(in crate::cluster) fn on_error(&self, error: &str) {
        let mut state = self.state.lock();
        state.record_activity();
        state.stats.errors += 1;
        state.stats.last_error = Some(error.to_owned());
        let is_new = !std::mem::replace(&mut state.failing, true);
        drop(state);
        if is_new {
            tracing::warn!(feed = self.name, error, "watch failed; retrying");
        } else {
            tracing::debug!(feed = self.name, error, "watch is still failing");
        }
    }

    pub(super) fn on_streaming_refused(&self, error: &str) {
        self.state.lock().stats.streams_lists = false;
        tracing::info!(
            feed = self.name,
            error,
            "API server does not support streaming lists; using paged lists"
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
    fn an_unreadable_object_is_cleared_when_it_is_repaired_or_no_longer_listed() {
        let status = WatchStatus::new("test");
        status.on_restart();
        status.on_invalid_object("n", "mended", "no target");
        status.on_invalid_object("n", "deleted", "no target");
        status.on_invalid_object("n", "deleted", "no target");
        status.on_synced();
        assert_eq!((status.stats().invalid, status.stats().invalid_now), (3, 2));
        status.on_event("n", "mended");
        assert_eq!(status.stats().invalid_now, 1);
        status.on_restart();
        status.on_synced();
        assert_eq!((status.stats().invalid_now, status.stats().lists), (0, 2));
    }
}
