//! Families of the watermark controller: upstream's under upstream's names, and ours. Series of single objects are rendered
//! from the state of the role, so that none outlives its object or the labels that it had.

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
/// What upstream's framework calls the controller and its queue.
const CONTROLLER: &str = "watermarkpodautoscaler";
const BY_CONTROLLER: &[&str] = &["controller"];

const RESULTS: Definition =
    counter("controller_runtime_reconcile_total", "Looks at objects, by how they ended.")
        .labels(&["controller", "result"], "4");
const ERRORS: Definition =
    counter("controller_runtime_reconcile_errors_total", "Looks at objects that failed.")
        .labels(BY_CONTROLLER, "1");
const TIMES: Definition = histogram(
    "controller_runtime_reconcile_time_seconds",
    "How long a look at an object takes, from its turn to the last write.",
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
    "How many objects may be looked at at once.",
)
.labels(BY_CONTROLLER, "1");
const ACTIVE: Definition =
    gauge("controller_runtime_active_workers", "How many objects are being looked at.")
        .labels(BY_CONTROLLER, "1");
const DEPTH: Definition =
    gauge("workqueue_depth", "Objects whose turn has come and that nobody looks at yet.")
        .labels(&["controller", "name"], "1");

const RECONCILES: Definition = counter(
    "plimsoll_watermark_reconciles_total",
    "Looks at WatermarkPodAutoscalers, by what came of them.",
)
.labels(&["outcome"], "up to 32")
.absent(NOT_YET_OBSERVED);
const LATENESS: Definition = histogram(
    "plimsoll_watermark_lateness_seconds",
    "How much later than planned an object is looked at.",
    STEP_SECONDS,
)
.labels(&[], "1 of 26")
.unit("seconds");
const STEPS: Definition = histogram(
    "plimsoll_watermark_step_seconds",
    "How long each step of a look at an object takes.",
    STEP_SECONDS,
)
.labels(&["step"], "5 of 26")
.unit("seconds");
const METRIC_RESULTS: Definition = counter(
    "plimsoll_metric_outcomes_total",
    "Answers about metrics of WatermarkPodAutoscalers by source: ok, or why nothing is known.",
)
.labels(&["outcome", "source"], "up to 64")
.absent(NOT_YET_OBSERVED);

/// How a look at an object ended, in the words of upstream's framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResultLabel {
    /// It is not looked at again by itself.
    Success,
    /// It failed, and is tried again.
    Error,
    /// It is looked at again at once.
    Requeue,
    /// It is looked at again after a while.
    RequeueAfter,
}

impl ReconcileResultLabel {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Requeue, Self::RequeueAfter];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

/// What a look at an object is made of, as far as it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileStep {
    /// Whether a monitor or an alert lets it be.
    Gates,
    /// How many replicas there are.
    Scale,
    /// Which pods there are.
    Pods,
    /// What is measured.
    Metrics,
    /// The change, and what is told of it.
    Write,
}

impl ReconcileStep {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Gates, Self::Scale, Self::Pods, Self::Metrics, Self::Write];

    /// The word for it.
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

/// What a watermark controller tells of itself.
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
        for returned in ReconcileResultLabel::ALL {
            results.with_labels([CONTROLLER, returned.as_str()]);
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

    /// So many objects may be looked at at once.
    pub fn set_workers(&self, workers: usize) {
        self.workers.set(workers as f64);
    }

    /// So many wait although their turn has come.
    pub fn set_queue_depth(&self, waiting: usize) {
        self.depth.set(waiting as f64);
    }

    /// A look at an object begins, this much later than planned.
    pub fn begin_reconcile(&self, late: Duration) {
        self.active.add(1.0);
        self.lateness.observe(late.as_secs_f64());
    }

    /// It has ended, and this came of it.
    pub fn end_reconcile(
        &self,
        outcome: &'static str,
        returned: ReconcileResultLabel,
        took: Duration,
    ) {
        self.active.add(-1.0);
        self.times.observe(took.as_secs_f64());
        self.results.with_labels([CONTROLLER, returned.as_str()]).increment();
        if returned == ReconcileResultLabel::Error {
            self.errors.increment();
        }
        self.reconciles.with_labels([outcome]).increment();
    }

    /// A step of a look took so long.
    pub fn observe_step(&self, step: ReconcileStep, took: Duration) {
        self.steps.with_labels([step.as_str()]).observe(took.as_secs_f64());
    }

    /// A source (`external`, `resource`, ...) has answered, or there is a reason why nothing is known.
    pub fn count_metric_result(&self, source: &'static str, answer: Result<(), &MetricError>) {
        let outcome = answer.map_or_else(MetricError::as_str, |()| "ok");
        self.metric_results.with_labels([outcome, source]).increment();
    }

    /// A recommender at this address is being called, until what is handed out is dropped.
    pub fn begin_recommender_call(&self, url: &str) -> RecommenderCall {
        self.calls.begin(url)
    }

    /// Only these recommenders are in use, by their [`client_label`]: the series of all others end.
    pub fn retain_clients(&self, used: &HashSet<String>) {
        self.calls.retain_clients(used);
    }
}
