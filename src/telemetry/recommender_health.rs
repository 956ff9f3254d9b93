//! Health metrics of the recommender beyond upstream's. The number of series does not depend on the size of the cluster.

use std::sync::Arc;

use plimsoll_core::types::Time;

use super::{
    client_calls::PrometheusQueryMetrics,
    definition::{Definition, counter, gauge},
    family::Family,
    instruments::{Counter, Gauge},
    labels::HistoryState,
    loop_metrics::LoopMetrics,
    registry::Registry,
};

const NOT_YET_OBSERVED: &str = "it has not happened yet";

const HISTORY: Definition =
    gauge("plimsoll_history_state", "1 for the current state of the history, 0 for the others.")
        .labels(&["state"], "4");
const QUEUE: Definition = gauge("plimsoll_write_queue", "Writes that are waiting in the queue.")
    .labels(&["kind"], "up to 8")
    .absent(NOT_YET_OBSERVED);
const SAMPLES: Definition = counter("plimsoll_samples_total", "Usage samples, by outcome.")
    .labels(&["outcome"], "up to 16")
    .absent(NOT_YET_OBSERVED);
const KILLS: Definition = counter("plimsoll_oom_kills_total", "OOM kills, by source and outcome.")
    .labels(&["outcome", "source"], "21");
const CHECKPOINTS: Definition = counter(
    "plimsoll_checkpoints_total",
    "Checkpoints, by outcome: loaded, skipped, adopted, written, unchanged, kept_richer, refused, failed, collected.",
)
.labels(&["outcome"], "up to 16")
.absent(NOT_YET_OBSERVED);
const CHECKPOINTS_SAVED: Definition = gauge(
    "plimsoll_checkpoints_last_save_timestamp_seconds",
    "When history was last saved without an error, in seconds since the Unix epoch.",
)
.unit("seconds")
.absent("none has succeeded yet");

/// Health metrics of the recommender.
#[derive(Debug)]
pub struct RecommenderHealthMetrics {
    loop_metrics: LoopMetrics,
    history: Arc<Family<Gauge, 1>>,
    queries: PrometheusQueryMetrics,
    queue: Arc<Family<Gauge, 1>>,
    samples: Arc<Family<Counter, 1>>,
    kills: Arc<Family<Counter, 2>>,
    checkpoints: Arc<Family<Counter, 1>>,
    checkpoints_saved: Arc<Family<Gauge>>,
}

impl RecommenderHealthMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let health = Self {
            loop_metrics: LoopMetrics::new(registry, "recommender"),
            history: registry.family(HISTORY, HistoryState::ALL.len()),
            queries: PrometheusQueryMetrics::new(registry, "recommender"),
            queue: registry.family(QUEUE, 8),
            samples: registry.family(SAMPLES, 16),
            kills: registry.family(KILLS, 21),
            checkpoints: registry.family(CHECKPOINTS, 16),
            checkpoints_saved: registry.family(CHECKPOINTS_SAVED, 1),
        };
        health.set_history_state(HistoryState::Loading);
        health
    }

    /// The metrics of the main loop.
    pub const fn loop_metrics(&self) -> &LoopMetrics {
        &self.loop_metrics
    }

    /// Sets the state of the history.
    pub fn set_history_state(&self, state: HistoryState) {
        for other in HistoryState::ALL {
            self.history.with_labels([other.as_str()]).set(f64::from(u8::from(other == state)));
        }
    }

    /// The metrics of Prometheus queries.
    pub const fn queries(&self) -> &PrometheusQueryMetrics {
        &self.queries
    }

    /// Sets the number of queued writes of this kind.
    pub fn set_write_queue(&self, kind: &'static str, waiting: usize) {
        self.queue.with_labels([kind]).set(waiting as f64);
    }

    /// Counts samples with this outcome.
    pub fn count_samples(&self, outcome: &'static str, count: u64) {
        self.samples.with_labels([outcome]).add(count);
    }

    /// Creates the series of this source and outcome at zero, so that the first OOM kill is visible as an increase.
    pub fn init_oom_kills(&self, source: &'static str, outcome: &'static str) {
        self.kills.with_labels([outcome, source]).add(0);
    }

    /// Counts an OOM kill from this source with this outcome.
    pub fn count_oom_kill(&self, source: &'static str, outcome: &'static str) {
        self.kills.with_labels([outcome, source]).increment();
    }

    /// Counts checkpoints with this outcome.
    pub fn count_checkpoints(&self, outcome: &'static str, count: u64) {
        self.checkpoints.with_labels([outcome]).add(count);
    }

    /// Sets when history was last saved without an error.
    pub fn set_checkpoints_saved_at(&self, at: Time) {
        self.checkpoints_saved.with_labels([]).set(seconds(at));
    }
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}
