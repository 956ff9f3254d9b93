//! The series of upstream's HPA controller under upstream's names, so that its dashboards and alerts continue to work where it
//! is replaced; and whether it is active nevertheless.

use std::{collections::HashSet, time::Duration};

use plimsoll_core::{
    hpa::labels::{Action, Computed, Failure},
    types::ObjectKey,
};

use super::{
    definition::{counter, gauge, histogram},
    family::Family,
    instruments::{Counter, Gauge, Histogram},
    registry::metric_families,
};

/// Upstream's buckets: from a millisecond, doubled 14 times.
const BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
const MAX_OBJECTS: usize = 20_000;
const NOT_YET: &str = "it has not happened yet";

metric_families! {
    #[derive(Clone, Debug)]
    pub struct ReplacedControllerMetrics via pub new {
        reconciles: Family<Counter, 2>[9] = counter(
            "horizontal_pod_autoscaler_controller_reconciliations_total",
            "Reconciles of HorizontalPodAutoscalers, by what was decided and the class of the error.",
        ).labels(&["action", "error"], "up to 9").absent(NOT_YET);
        reconcile_seconds: Family<Histogram, 2>[9] = histogram(
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
            "Duration of a reconcile, by what was decided and the class of the error.",
            BUCKETS,
        ).labels(&["action", "error"], "up to 9 of 18").unit("seconds").absent(NOT_YET);
        evaluations: Family<Counter, 3>[45] = counter(
            "horizontal_pod_autoscaler_controller_metric_computation_total",
            "Evaluations of a metric of a HorizontalPodAutoscaler, by its proposal, the class of the error and the type of the metric.",
        ).labels(&["action", "error", "metric_type"], "up to 45").absent(NOT_YET);
        evaluation_seconds: Family<Histogram, 3>[45] = histogram(
            "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
            "Duration of an evaluation of a metric, by its proposal, the class of the error and the type of the metric.",
            BUCKETS,
        ).labels(&["action", "error", "metric_type"], "up to 45 of 18").unit("seconds").absent(NOT_YET);
        objects: Gauge = gauge(
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
            "HorizontalPodAutoscalers that are controlled.",
        );
        desired: Family<Gauge, 2>[MAX_OBJECTS] = gauge(
            "horizontal_pod_autoscaler_controller_desired_replicas",
            "Desired replicas of the last decision about a HorizontalPodAutoscaler.",
        ).labels(&["hpa_name", "namespace"], "1 per HPA").absent("nothing could be decided yet");
        builtin_active: Family<Gauge, 0>[1] = gauge(
            "plimsoll_hpa_builtin_active",
            "Whether the HPA controller of kube-controller-manager is active, which this controller is to replace.",
        ).absent("it is not known yet");
    }
}

impl ReplacedControllerMetrics {
    /// Counts a reconcile with this outcome, in which these replicas were decided.
    pub fn count_reconcile(
        &self,
        key: &ObjectKey,
        (made, failed): (Action, Failure),
        desired: Option<i32>,
        took: Duration,
    ) {
        let labels = [made.into(), failed.into()];
        self.reconciles.with_labels(labels).increment();
        self.reconcile_seconds.with_labels(labels).observe_duration(took);
        if let Some(desired) = desired {
            self.desired.with_labels([&key.name, &key.namespace]).set(f64::from(desired));
        }
    }

    pub fn count_evaluation(&self, computed: &Computed, took: Duration) {
        let labels = [computed.action.into(), computed.error.into(), &*computed.metric_type];
        self.evaluations.with_labels(labels).increment();
        self.evaluation_seconds.with_labels(labels).observe_duration(took);
    }

    /// Sets the objects that exist. Unlike upstream, deleted ones have no series.
    pub fn set_objects(&self, keys: &HashSet<ObjectKey>) {
        self.objects.set(keys.len() as f64);
        self.desired
            .retain(|[name, namespace]| keys.contains(&ObjectKey::new(&**namespace, &**name)));
    }

    pub fn set_builtin_active(&self, is_active: bool) {
        self.builtin_active.with_labels([]).set_bool(is_active);
    }
}
