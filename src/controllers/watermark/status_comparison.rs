//! Compares statuses, to write only what is worth it.

use plimsoll_core::{
    api::{
        scale_decision::ScaleDecisionStatus,
        wpa::{MetricStatus, WatermarkPodAutoscalerStatus},
    },
    types::quantity::Quantity,
};

/// Whether two statuses are equal except for the time of the decision.
pub(super) fn is_same_status(
    before: &WatermarkPodAutoscalerStatus,
    after: &WatermarkPodAutoscalerStatus,
) -> bool {
    let mut after = after.clone();
    if let (Some(decision), Some(before)) = (&mut after.decision, &before.decision) {
        decision.at.clone_from(&before.at);
    }
    *before == after
}

/// A status without the values, which need not be up to date.
pub(super) fn without_values(
    status: &WatermarkPodAutoscalerStatus,
) -> WatermarkPodAutoscalerStatus {
    let mut status = status.clone();
    status.current_metrics.iter_mut().for_each(clear_value);
    for condition in &mut status.conditions {
        // Messages of conditions contain values and pod counts.
        condition.message.clear();
    }
    status.decision = status.decision.take().map(ScaleDecisionStatus::without_values);
    status.last_condition_type.clear();
    status.last_condition_state.clear();
    status
}

fn clear_value(metric: &mut MetricStatus) {
    if let Some(external) = &mut metric.external {
        external.current_value = Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.resource {
        resource.current_average_value = Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.container_resource {
        resource.current_average_value = Quantity::ZERO;
    }
}
