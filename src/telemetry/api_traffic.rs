//! Metrics of watches and writes, of every component.

use std::{sync::Arc, time::Duration};

use super::{
    definition::{Definition, counter, gauge},
    family::Family,
    instruments::{Counter, Gauge},
    registry::Registry,
};

const WATCH_OBJECTS: Definition =
    gauge("plimsoll_feed_objects", "Objects currently known to a watch.")
        .labels(&["feed"], "1 per feed")
        .absent("the watch does not count objects");
const WATCH_SYNCED: Definition =
    gauge("plimsoll_feed_synced", "1 once the initial list of a watch is complete, 0 before.")
        .labels(&["feed"], "1 per feed");
const WATCH_MALFORMED: Definition =
    counter("plimsoll_feed_malformed_total", "Objects that could not be decoded and were skipped.")
        .labels(&["feed"], "1 per feed");
const WATCH_RESTARTS: Definition =
    counter("plimsoll_feed_restarts_total", "How often a watch restarted with a new list.")
        .labels(&["feed"], "1 per feed");
const WATCH_ERRORS: Definition =
    counter("plimsoll_feed_errors_total", "Errors of a watch, each followed by a retry.")
        .labels(&["feed"], "1 per feed");
const WATCH_SILENCE: Definition = gauge(
    "plimsoll_feed_silence_seconds",
    "Time since the API server last sent anything to a watch. More than ten minutes counts as an error.",
)
.labels(&["feed"], "1 per feed")
.unit("seconds")
.absent("nothing was received yet");
const WRITES: Definition = counter("plimsoll_writes_total", "Writes to the cluster, by outcome.")
    .labels(&["kind", "outcome"], "up to 64")
    .absent("it has not happened yet");

/// Metrics of watches and writes.
#[derive(Clone, Debug)]
pub struct ApiTrafficMetrics {
    watch_objects: Arc<Family<Gauge, 1>>,
    watch_synced: Arc<Family<Gauge, 1>>,
    watch_malformed: Arc<Family<Counter, 1>>,
    watch_restarts: Arc<Family<Counter, 1>>,
    watch_errors: Arc<Family<Counter, 1>>,
    watch_silence: Arc<Family<Gauge, 1>>,
    writes: Arc<Family<Counter, 2>>,
}

/// The series of one watch. They exist, at zero, from the start.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    /// 1 once the initial list is complete.
    pub synced: Arc<Gauge>,
    /// Objects that could not be decoded.
    pub malformed: Arc<Counter>,
    /// How often the watch restarted.
    pub restarts: Arc<Counter>,
    /// Errors of the watch.
    pub errors: Arc<Counter>,
}

impl ApiTrafficMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            watch_objects: registry.family(WATCH_OBJECTS, 16),
            watch_synced: registry.family(WATCH_SYNCED, 16),
            watch_malformed: registry.family(WATCH_MALFORMED, 16),
            watch_restarts: registry.family(WATCH_RESTARTS, 16),
            watch_errors: registry.family(WATCH_ERRORS, 16),
            watch_silence: registry.family(WATCH_SILENCE, 16),
            writes: registry.family(WRITES, 64),
        }
    }

    /// Returns the series of a watch.
    pub fn watch(&self, feed: &'static str) -> WatchMetrics {
        WatchMetrics {
            synced: self.watch_synced.with_labels([feed]),
            malformed: self.watch_malformed.with_labels([feed]),
            restarts: self.watch_restarts.with_labels([feed]),
            errors: self.watch_errors.with_labels([feed]),
        }
    }

    /// Sets how long ago the API server last sent anything to this watch.
    pub fn set_watch_silence(&self, feed: &'static str, since: Duration) {
        self.watch_silence.with_labels([feed]).set(since.as_secs_f64());
    }

    /// Sets the number of objects of this watch. A watch that does not count objects has no series.
    pub fn set_watch_objects(&self, feed: &'static str, objects: usize) {
        self.watch_objects.with_labels([feed]).set(objects as f64);
    }

    /// Sets the total of writes of this kind (`status`, `checkpoint`, ...) with this outcome.
    pub fn set_writes(&self, kind: &'static str, outcome: &str, total: u64) {
        self.writes.with_labels([kind, outcome]).set_total(total);
    }
}
