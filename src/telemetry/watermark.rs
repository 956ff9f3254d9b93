//! Metrics of the watermark controller: upstream's under upstream's names, and our own. Series of single objects are
//! rendered from the state of the controller, so that none outlives its object or its labels.

mod calls;
mod families;
mod label_tags;
mod render;
mod rows;

use std::{collections::HashSet, sync::Arc, time::Duration};

use self::calls::RecommenderCallMetrics;
pub(super) use self::families::WpaSeries;
pub use self::{
    calls::{RecommenderCall, client_label},
    render::WpaObjectMetrics,
    rows::{MonitorGateRow, Restrictions, SourceRow, WatermarkRow, WpaMetricsSource},
};
use super::{
    definition::{Definition, STEP_SECONDS, counter, gauge, histogram},
    family::Family,
    instruments::{Counter, Gauge, Histogram},
    registry::Registry,
};
use plimsoll_core::scaling::MetricError;

const NOT_YET_OBSERVED: &str = "it has not happened yet";
/// The name of the controller and its queue in upstream's framework.
const CONTROLLER: &str = "watermarkpodautoscaler";
const BY_CONTROLLER: &[&str] = &["controller"];

const RESULTS: Definition =
    counter("controller_runtime_reconcile_total", "Reconciles of objects, by result.")
        .labels(&["controller", "result"], "4");
const ERRORS: Definition =
    counter("controller_runtime_reconcile_errors_total", "Reconciles of objects that failed.")
        .labels(BY_CONTROLLER, "1");
const TIMES: Definition = histogram(
    "controller_runtime_reconcile_time_seconds",
    "Duration of a reconcile, until the last write.",
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ],
)
.labels(BY_CONTROLLER, "1 of 43")
.unit("seconds");
const WORKERS: Definition = gauge(
    "controller_runtime_max_concurrent_reconciles",
    "Maximum number of concurrent reconciles.",
)
.labels(BY_CONTROLLER, "1");
const ACTIVE: Definition = gauge("controller_runtime_active_workers", "Reconciles in progress.")
    .labels(BY_CONTROLLER, "1");
const DEPTH: Definition = gauge("workqueue_depth", "Objects that are due and wait for a worker.")
    .labels(&["controller", "name"], "1");

const RECONCILES: Definition = counter(
    "plimsoll_watermark_reconciles_total",
    "Reconciles of WatermarkPodAutoscalers, by outcome.",
)
.labels(&["outcome"], "up to 32")
.absent(NOT_YET_OBSERVED);
const LATENESS: Definition = histogram(
    "plimsoll_watermark_lateness_seconds",
    "How late an object is reconciled.",
    STEP_SECONDS,
)
.labels(&[], "1 of 26")
.unit("seconds");
const STEPS: Definition = histogram(
    "plimsoll_watermark_step_seconds",
    "Duration of each step of a reconcile.",
    STEP_SECONDS,
)
.labels(&["step"], "5 of 26")
.unit("seconds");
const METRIC_RESULTS: Definition = counter(
    "plimsoll_metric_outcomes_total",
    "Fetched metrics of WatermarkPodAutoscalers by source and outcome: ok, or why the metric is not available.",
)
.labels(&["outcome", "source"], "up to 64")
.absent(NOT_YET_OBSERVED);

/// The result of a reconcile, as labelled by controller-runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResultLabel {
    /// The object is not requeued.
    Success,
    /// The reconcile failed and is retried.
    Error,
    /// The object is requeued immediately.
    Requeue,
    /// The object is requeued after a delay.
    RequeueAfter,
}

impl ReconcileResultLabel {
    /// All results.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Requeue, Self::RequeueAfter];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

/// The steps of a reconcile that wait for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileStep {
    /// Checking the monitor or alert that gates scaling.
    Gates,
    /// Reading the scale.
    Scale,
    /// Reading the pods.
    Pods,
    /// Fetching the metrics.
    Metrics,
    /// Writing the scale, the status and events.
    Write,
}

impl ReconcileStep {
    /// All steps.
    pub const ALL: [Self; 5] = [Self::Gates, Self::Scale, Self::Pods, Self::Metrics, Self::Write];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gates => "gates",
            Self::Scale => "scale",
            Self::Pods => "pods",
            Self::Metrics => "metrics",
            Self::Write => "write",
        }
    }
}

/// The metrics of a watermark controller.
#[derive(Clone, Debug)]
pub struct WatermarkMetrics {
    results: Arc<Family<Counter, 2>>,
    errors: Arc<Counter>,
    times: Arc<Histogram>,
    workers: Arc<Gauge>,
    active: Arc<Gauge>,
    depth: Arc<Gauge>,
    reconciles: Arc<Family<Counter, 1>>,
    lateness: Arc<Histogram>,
    steps: Arc<Family<Histogram, 1>>,
    metric_results: Arc<Family<Counter, 2>>,
    calls: RecommenderCallMetrics,
}

impl WatermarkMetrics {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let results: Arc<Family<Counter, 2>> =
            registry.family(RESULTS, ReconcileResultLabel::ALL.len());
        for result in ReconcileResultLabel::ALL {
            results.with_labels([CONTROLLER, result.as_str()]);
        }
        let steps: Arc<Family<Histogram, 1>> = registry.family(STEPS, ReconcileStep::ALL.len());
        for step in ReconcileStep::ALL {
            steps.with_labels([step.as_str()]);
        }
        Self {
            results,
            errors: registry.family(ERRORS, 1).with_labels([CONTROLLER]),
            times: registry.family(TIMES, 1).with_labels([CONTROLLER]),
            workers: registry.family(WORKERS, 1).with_labels([CONTROLLER]),
            active: registry.family(ACTIVE, 1).with_labels([CONTROLLER]),
            depth: registry.family(DEPTH, 1).with_labels([CONTROLLER, CONTROLLER]),
            reconciles: registry.family(RECONCILES, 32),
            lateness: registry.histogram(LATENESS),
            steps,
            metric_results: registry.family(METRIC_RESULTS, 64),
            calls: RecommenderCallMetrics::new(registry),
        }
    }

    /// Sets the maximum number of concurrent reconciles.
    pub fn set_workers(&self, workers: usize) {
        self.workers.set(workers as f64);
    }

    /// Sets the number of objects that are due and wait for a worker.
    pub fn set_queue_depth(&self, waiting: usize) {
        self.depth.set(waiting as f64);
    }

    /// Records the start of a reconcile, and how late it is.
    pub fn begin_reconcile(&self, lateness: Duration) {
        self.active.add(1.0);
        self.lateness.observe(lateness.as_secs_f64());
    }

    /// Records the end of a reconcile, with its outcome.
    pub fn end_reconcile(
        &self,
        outcome: &'static str,
        result: ReconcileResultLabel,
        took: Duration,
    ) {
        self.active.add(-1.0);
        self.times.observe(took.as_secs_f64());
        self.results.with_labels([CONTROLLER, result.as_str()]).increment();
        if result == ReconcileResultLabel::Error {
            self.errors.increment();
        }
        self.reconciles.with_labels([outcome]).increment();
    }

    /// Records the duration of a step of a reconcile.
    pub fn observe_step(&self, step: ReconcileStep, took: Duration) {
        self.steps.with_labels([step.as_str()]).observe(took.as_secs_f64());
    }

    /// Counts a fetched metric by source (`external`, `resource`, ...), or why it is not available.
    pub fn count_metric_result(&self, source: &'static str, result: Result<(), &MetricError>) {
        let outcome = result.map_or_else(MetricError::as_str, |()| "ok");
        self.metric_results.with_labels([outcome, source]).increment();
    }

    /// Records a call of a recommender, which is in flight until the returned value is dropped.
    pub fn begin_recommender_call(&self, url: &str) -> RecommenderCall {
        self.calls.begin(url)
    }

    /// Removes the series of recommenders that are not in `used`, a set of [`client_label`]s.
    pub fn retain_clients(&self, used: &HashSet<String>) {
        self.calls.retain_clients(used);
    }
}
