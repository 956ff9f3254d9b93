//! What comes from the API server and goes there: watches and writes, of every role.

use std::{sync::Arc, time::Duration};

use super::{
    definition::{Definition, counter, gauge},
    family::Family,
    registry::Registry,
    value::{Counter, Gauge},
};

const FEED_OBJECTS: Definition =
    gauge("plimsoll_feed_objects", "Objects that a watch has told of and that are still there.")
        .labels(&["feed"], "1 per feed")
        .absent("the objects of that watch are not counted");
const FEED_SYNCED: Definition =
    gauge("plimsoll_feed_synced", "1 once a watch has told of every object, 0 before.")
        .labels(&["feed"], "1 per feed");
const FEED_MALFORMED: Definition = counter(
    "plimsoll_feed_malformed_total",
    "Objects that could not be read and were passed over.",
)
.labels(&["feed"], "1 per feed");
const FEED_RESTARTS: Definition =
    counter("plimsoll_feed_restarts_total", "How often a watch began again with a list.")
        .labels(&["feed"], "1 per feed");
const FEED_ERRORS: Definition =
    counter("plimsoll_feed_errors_total", "Errors of a watch, each followed by another try.")
        .labels(&["feed"], "1 per feed");
const FEED_SILENCE: Definition = gauge(
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
pub struct Traffic {
    feed_objects: Arc<Family<Gauge, 1>>,
    feed_synced: Arc<Family<Gauge, 1>>,
    feed_malformed: Arc<Family<Counter, 1>>,
    feed_restarts: Arc<Family<Counter, 1>>,
    feed_errors: Arc<Family<Counter, 1>>,
    feed_silence: Arc<Family<Gauge, 1>>,
    writes: Arc<Family<Counter, 2>>,
}

/// How one watch is. Its series are there, at zero, from the beginning.
#[derive(Clone, Debug)]
pub struct Feed {
    /// 1 once it has told of every object.
    pub synced: Arc<Gauge>,
    /// Objects that could not be read.
    pub malformed: Arc<Counter>,
    /// How often it began again.
    pub restarts: Arc<Counter>,
    /// Its errors.
    pub errors: Arc<Counter>,
}

impl Traffic {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            feed_objects: registry.family(FEED_OBJECTS, 16),
            feed_synced: registry.family(FEED_SYNCED, 16),
            feed_malformed: registry.family(FEED_MALFORMED, 16),
            feed_restarts: registry.family(FEED_RESTARTS, 16),
            feed_errors: registry.family(FEED_ERRORS, 16),
            feed_silence: registry.family(FEED_SILENCE, 16),
            writes: registry.family(WRITES, 64),
        }
    }

    /// The series of a watch.
    pub fn feed(&self, feed: &'static str) -> Feed {
        Feed {
            synced: self.feed_synced.with([feed]),
            malformed: self.feed_malformed.with([feed]),
            restarts: self.feed_restarts.with([feed]),
            errors: self.feed_errors.with([feed]),
        }
    }

    /// The API server last sent something to this watch so long ago.
    pub fn set_feed_silence(&self, feed: &'static str, since: Duration) {
        self.feed_silence.with([feed]).set(since.as_secs_f64());
    }

    /// So many objects of this watch are there. Not every watch keeps count: one that does not has no series.
    pub fn set_feed_objects(&self, feed: &'static str, objects: usize) {
        self.feed_objects.with([feed]).set(objects as f64);
    }

    /// So many writes of this kind (`status`, `checkpoint`, ...) have come to this end by now.
    pub fn set_writes(&self, kind: &'static str, outcome: &str, total: u64) {
        self.writes.with([kind, outcome]).raise_to(total);
    }
}
