//! Metrics of the horizontal controller.

use plimsoll_core::hpa::comparison::Comparison;
use strum::VariantArray as _;

use super::{
    definition::{STEP_SECONDS, counter, histogram},
    family::Family,
    instruments::{Counter, Histogram},
    registry::{Registry, metric_families},
};

metric_families! {
    /// The metrics of a horizontal controller.
    #[derive(Clone, Debug)]
    pub struct HorizontalMetrics via register {
        reconciles: Family<Counter, 1>[8] = counter(
            "plimsoll_horizontal_reconciles_total",
            "Reconciles of HorizontalPodAutoscalers, by outcome.",
        ).labels(&["outcome"], "up to 8").absent("it has not happened yet");
        reconcile_seconds: Histogram = histogram(
            "plimsoll_horizontal_reconcile_seconds",
            "Duration of a reconcile.",
            STEP_SECONDS,
        ).labels(&[], "1 of 26").unit("seconds");
        lateness: Histogram = histogram(
            "plimsoll_horizontal_lateness_seconds",
            "How late an object is reconciled.",
            STEP_SECONDS,
        ).labels(&[], "1 of 26").unit("seconds");
        comparisons: Family<Counter, 1>[Comparison::VARIANTS.len()] = counter(
            "plimsoll_shadow_passes_total",
            "Decisions compared with those of the HPA controller of the cluster, by result: same, later, or why it decided differently.",
        ).labels(&["result"], "5");
    }
}

impl HorizontalMetrics {
    /// Adds the families to a registry, with the series that are known from the start.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::register(registry);
        for result in Comparison::VARIANTS {
            metrics.comparisons.with_labels([result.as_str()]);
        }
        metrics
    }

    pub fn count_comparison(&self, result: Comparison) {
        self.comparisons.with_labels([result.as_str()]).increment();
    }
}
