//! Metrics of watches and writes, of every component.

use super::{
    definition::{counter, gauge},
    family::Family,
    instruments::{Counter, Gauge},
    registry::metric_families,
};

const PER_FEED: &str = "1 per feed";

metric_families! {
    /// Metrics of watches, and of writes by kind (`status`, `checkpoint`, ...) and outcome.
    #[derive(Clone, Debug)]
    pub struct ApiTrafficMetrics via pub new {
        watch_objects: Family<Gauge, 1>[16] =
            gauge("plimsoll_feed_objects", "Objects currently known to a watch.")
            .labels(&["feed"], PER_FEED).absent("the watch does not count objects");
        watch_synced: Family<Gauge, 1>[16] = gauge(
            "plimsoll_feed_synced", "1 once the initial list of a watch is complete, 0 before."
        ).labels(&["feed"], PER_FEED);
        watch_malformed: Family<Counter, 1>[16] = counter(
            "plimsoll_feed_malformed_total", "Objects that could not be decoded and were skipped."
        ).labels(&["feed"], PER_FEED);
        watch_restarts: Family<Counter, 1>[16] = counter(
            "plimsoll_feed_restarts_total", "How often a watch restarted with a new list."
        ).labels(&["feed"], PER_FEED);
        watch_errors: Family<Counter, 1>[16] = counter(
            "plimsoll_feed_errors_total", "Errors of a watch, each followed by a retry."
        ).labels(&["feed"], PER_FEED);
        watch_silence: Family<Gauge, 1>[16] = gauge(
            "plimsoll_feed_silence_seconds",
            "Time since the API server last sent anything to a watch. More than ten minutes counts as an error.",
        ).labels(&["feed"], PER_FEED).unit("seconds").absent("nothing was received yet");
        writes: Family<Counter, 2>[64] =
            counter("plimsoll_writes_total", "Writes to the cluster, by outcome.")
            .labels(&["kind", "outcome"], "up to 64").absent("it has not happened yet");
    }
}

impl ApiTrafficMetrics {
    /// Sets the number of objects of this watch. A watch that does not count objects has no series.
    pub fn set_watch_objects(&self, feed: &'static str, objects: usize) {
        self.watch_objects.with_labels([feed]).set(objects as f64);
    }
}
