//! Metrics of the watermark controller: upstream's under upstream's names, and our own.

mod calls;
mod families;
pub(crate) mod watermark_state;

use std::time::Duration;

pub use self::{
    calls::{RecommenderCall, RecommenderCallMetrics, client_label},
    families::upstream_series,
};
use super::{
    definition::{STEP_SECONDS, counter, gauge, histogram},
    family::Family,
    instruments::{Counter, Gauge, Histogram},
    registry::{Registry, metric_families},
};
use plimsoll_core::scaling::MetricError;

/// The name of the controller and its queue in upstream's framework.
const CONTROLLER: &str = "watermarkpodautoscaler";
const BY_CONTROLLER: &[&str] = &["controller"];

/// The results of a reconcile, as labelled by controller-runtime: not requeued, retried, and requeued at once or later.
const RECONCILE_RESULTS: [&str; 4] = ["success", "error", "requeue", "requeue_after"];
/// The steps of a reconcile that wait for requests.
const STEPS: [&str; 5] = ["gates", "scale", "pods", "metrics", "write"];

metric_families! {
    #[derive(Clone, Debug)]
    pub struct WatermarkMetrics via register {
        results: Family<Counter, 2>[RECONCILE_RESULTS.len()] =
            counter("controller_runtime_reconcile_total", "Reconciles of objects, by result.")
            .labels(&["controller", "result"], "4");
        errors: Family<Counter, 1>[1] = counter(
            "controller_runtime_reconcile_errors_total", "Reconciles of objects that failed."
        ).labels(BY_CONTROLLER, "1");
        times: Family<Histogram, 1>[1] = histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconcile, until the last write.",
            &[
                0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
                0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0,
                8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
            ],
        ).labels(BY_CONTROLLER, "1 of 43").unit("seconds");
        workers: Family<Gauge, 1>[1] = gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles.",
        ).labels(BY_CONTROLLER, "1");
        active: Family<Gauge, 1>[1] =
            gauge("controller_runtime_active_workers", "Reconciles in progress.")
            .labels(BY_CONTROLLER, "1");
        depth: Family<Gauge, 2>[1] =
            gauge("workqueue_depth", "Objects that are due and wait for a worker.")
            .labels(&["controller", "name"], "1");
        reconciles: Family<Counter, 1>[32] = counter(
            "plimsoll_watermark_reconciles_total",
            "Reconciles of WatermarkPodAutoscalers, by outcome.",
        ).labels(&["outcome"], "up to 32").absent_at_first();
        lateness: Histogram = histogram(
            "plimsoll_watermark_lateness_seconds",
            "How late an object is reconciled.",
            STEP_SECONDS,
        ).labels(&[], "1 of 26").unit("seconds");
        steps: Family<Histogram, 1>[STEPS.len()] = histogram(
            "plimsoll_watermark_step_seconds",
            "Duration of each step of a reconcile.",
            STEP_SECONDS,
        ).labels(&["step"], "5 of 26").unit("seconds");
        metric_results: Family<Counter, 2>[64] = counter(
            "plimsoll_metric_outcomes_total",
            "Fetched metrics of WatermarkPodAutoscalers by source and outcome: ok, or why the metric is not available.",
        ).labels(&["outcome", "source"], "up to 64").absent_at_first();
        ..
        calls: RecommenderCallMetrics = RecommenderCallMetrics::new;
    }
}

impl WatermarkMetrics {
    /// Adds the families to a registry, with the series that are known from the start.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::register(registry);
        for result in RECONCILE_RESULTS {
            metrics.results.with_labels([CONTROLLER, result]);
        }
        for step in STEPS {
            metrics.steps.with_labels([step]);
        }
        metrics.errors.with_labels([CONTROLLER]);
        metrics.times.with_labels([CONTROLLER]);
        metrics.set_workers(0);
        metrics.set_queue_depth(0);
        metrics.active.with_labels([CONTROLLER]);
        metrics
    }

    pub fn set_workers(&self, workers: usize) {
        self.workers.with_labels([CONTROLLER]).set(workers as f64);
    }

    /// Sets the number of objects that are due and wait for a worker.
    pub fn set_queue_depth(&self, waiting: usize) {
        self.depth.with_labels([CONTROLLER, CONTROLLER]).set(waiting as f64);
    }

    /// Records the start of a reconcile, and how late it is.
    pub fn begin_reconcile(&self, lateness: Duration) {
        self.active.with_labels([CONTROLLER]).add(1.0);
        self.lateness.observe_duration(lateness);
    }

    /// Records the end of a reconcile, with its outcome, and its result as labelled by controller-runtime.
    pub fn end_reconcile(&self, outcome: &str, result: &str, took: Duration) {
        self.active.with_labels([CONTROLLER]).add(-1.0);
        self.times.with_labels([CONTROLLER]).observe_duration(took);
        self.results.with_labels([CONTROLLER, result]).increment();
        if result == "error" {
            self.errors.with_labels([CONTROLLER]).increment();
        }
        self.reconciles.with_labels([outcome]).increment();
    }

    pub fn observe_step(&self, step: &str, took: Duration) {
        self.steps.with_labels([step]).observe_duration(took);
    }

    /// Counts a fetched metric by source (`external`, `resource`, ...), or why it is not available.
    pub fn count_metric_result(&self, source: &'static str, result: Result<(), &MetricError>) {
        let outcome = result.map_or_else(MetricError::as_str, |()| "ok");
        self.metric_results.with_labels([outcome, source]).increment();
    }
}
