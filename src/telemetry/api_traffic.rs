//! What comes from the API server and goes there: watches and writes, of every role.

use std::{sync::Arc, time::Duration};

use super::{
    definition::{Definition, counter, gauge},
    family::Family,
    instruments::{Counter, Gauge},
    registry::Registry,
};

const WATCH_OBJECTS: Definition =
    gauge("plimsoll_feed_objects", "Objects that a watch has told of and that are still there.")
        .labels(&["feed"], "1 per feed")
        .absent("the objects of that watch are not counted");
const WATCH_SYNCED: Definition =
    gauge("plimsoll_feed_synced", "1 once a watch has told of every object, 0 before.")
        .labels(&["feed"], "1 per feed");
const WATCH_MALFORMED: Definition = counter(
    "plimsoll_feed_malformed_total",
    "Objects that could not be read and were passed over.",
)
.labels(&["feed"], "1 per feed");
const WATCH_RESTARTS: Definition =
    counter("plimsoll_feed_restarts_total", "How often a watch began again with a list.")
        .labels(&["feed"], "1 per feed");
const WATCH_ERRORS: Definition =
    counter("plimsoll_feed_errors_total", "Errors of a watch, each followed by another try.")
        .labels(&["feed"], "1 per feed");
const WATCH_SILENCE: Definition = gauge(
    "plimsoll_feed_silence_seconds",
    "How long ago the API server last sent anything to a watch. More than ten minutes counts as an error.",
)
.labels(&["feed"], "1 per feed")
.unit("seconds")
.absent("nothing was sent yet");
const WRITES: Definition =
    counter("plimsoll_writes_total", "Writes to the cluster, and what became of them.")
        .labels(&["kind", "outcome"], "up to 64")
        .absent("it has not happened yet");

/// What watches tell and what is written.
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

/// How one watch is. Its series are there, at zero, from the beginning.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    /// 1 once it has told of every object.
    pub synced: Arc<Gauge>,
    /// Objects that could not be read.
    pub malformed: Arc<Counter>,
    /// How often it began again.
    pub restarts: Arc<Counter>,
    /// Its errors.
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

    /// The series of a watch.
    pub fn watch(&self, feed: &'static str) -> WatchMetrics {
        WatchMetrics {
            synced: self.watch_synced.with_labels([feed]),
            malformed: self.watch_malformed.with_labels([feed]),
            restarts: self.watch_restarts.with_labels([feed]),
            errors: self.watch_errors.with_labels([feed]),
        }
    }

    /// The API server last sent something to this watch so long ago.
    pub fn set_watch_silence(&self, feed: &'static str, since: Duration) {
        self.watch_silence.with_labels([feed]).set(since.as_secs_f64());
    }

    /// So many objects of this watch are there. Not every watch keeps count: one that does not has no series.
    pub fn set_watch_objects(&self, feed: &'static str, objects: usize) {
        self.watch_objects.with_labels([feed]).set(objects as f64);
    }

    /// So many writes of this kind (`status`, `checkpoint`, ...) have come to this end by now.
    pub fn set_writes(&self, kind: &'static str, outcome: &str, total: u64) {
        self.writes.with_labels([kind, outcome]).set_total(total);
    }
}
