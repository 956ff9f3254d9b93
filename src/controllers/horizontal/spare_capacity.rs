//! Releases the spare capacity of the lists of a HorizontalPodAutoscaler. A list that was read from JSON has room for four
//! entries, and an entry of its metrics needs most of a kilobyte, whatever its source.

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
};

/// Releases the spare capacity of a spec.
pub(super) fn shrink_spec(spec: &mut HorizontalPodAutoscalerSpec) {
    spec.metrics.iter_mut().for_each(Vec::shrink_to_fit);
}

/// Releases the spare capacity of a status.
pub(super) fn shrink_status(status: &mut HorizontalPodAutoscalerStatus) {
    status.current_metrics.iter_mut().for_each(Vec::shrink_to_fit);
    status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = r#"{"minReplicas": 1, "maxReplicas": 10,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}"#;
    const STATUS: &str = r#"{"currentReplicas": 2, "desiredReplicas": 2,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": 50, "averageValue": "50m"}}}],
        "conditions": [
            {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
            {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
            {"type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange"}]}"#;

    #[test]
    fn an_object_with_one_metric_takes_less_than_3000_bytes() {
        let used = allocation_counter::measure(|| {
            let mut spec: HorizontalPodAutoscalerSpec = serde_json::from_str(SPEC).expect("a spec");
            let mut status: HorizontalPodAutoscalerStatus =
                serde_json::from_str(STATUS).expect("a status");
            shrink_spec(&mut spec);
            shrink_status(&mut status);
            // What is kept counts as used.
            std::mem::forget((spec, status));
        });
        assert!((1000..3000).contains(&used.bytes_current), "{} bytes", used.bytes_current);
    }
}
