//! Health metrics of the recommender beyond upstream's. The number of series does not depend on the size of the cluster.

use super::{
    client_calls::PrometheusQueryMetrics,
    definition::{counter, gauge},
    family::Family,
    instruments::{Counter, Gauge},
    labels::HistoryState,
    loop_metrics::LoopMetrics,
    registry::{Registry, metric_families},
};

metric_families! {
    #[derive(Debug)]
    pub struct RecommenderHealthMetrics via register {
        history: Family<Gauge, 1>[HistoryState::ALL.len()] = gauge(
            "plimsoll_history_state", "1 for the current state of the history, 0 for the others."
        ).labels(&["state"], "4");
        queue: Family<Gauge, 1>[8] =
            gauge("plimsoll_write_queue", "Writes that are waiting in the queue.")
            .labels(&["kind"], "up to 8").absent_at_first();
        samples: Family<Counter, 1>[16] =
            counter("plimsoll_samples_total", "Usage samples, by outcome.")
            .labels(&["outcome"], "up to 16").absent_at_first();
        kills: Family<Counter, 2>[21] =
            counter("plimsoll_oom_kills_total", "OOM kills, by source and outcome.")
            .labels(&["outcome", "source"], "21");
        checkpoints: Family<Counter, 1>[16] = counter(
            "plimsoll_checkpoints_total",
            "Checkpoints, by outcome: loaded, skipped, adopted, written, unchanged, kept_richer, refused, failed, collected.",
        ).labels(&["outcome"], "up to 16").absent_at_first();
        checkpoints_saved: Family<Gauge>[1] = gauge(
            "plimsoll_checkpoints_last_save_timestamp_seconds",
            "When history was last saved without an error, in seconds since the Unix epoch.",
        ).unit("seconds").absent("none has succeeded yet");
        ..
        /// The metrics of the main loop.
        loop_metrics: LoopMetrics = |registry| LoopMetrics::new(registry, "recommender");
        prometheus: PrometheusQueryMetrics =
            |registry| PrometheusQueryMetrics::new(registry, "recommender");
    }
}

impl RecommenderHealthMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let health = Self::register(registry);
        health.set_history_state(HistoryState::Loading);
        health
    }

    pub fn set_history_state(&self, state: HistoryState) {
        for &other in HistoryState::ALL {
            self.history.with_labels([other.as_str()]).set_bool(other == state);
        }
    }

    pub fn set_write_queue(&self, kind: &'static str, waiting: usize) {
        self.queue.with_labels([kind]).set(waiting as f64);
    }

    /// Counts OOM kills from this source with this outcome. A count of zero makes the first kill visible as an increase.
    pub fn count_oom_kills(&self, source: &'static str, outcome: &'static str, count: u64) {
        self.kills.with_labels([outcome, source]).add(count);
    }

    pub fn count_checkpoints(&self, outcome: &'static str, count: u64) {
        self.checkpoints.with_labels([outcome]).add(count);
    }
}
