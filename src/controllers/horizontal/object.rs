//! A HorizontalPodAutoscaler with the record that is stored in its annotation.

use std::sync::Arc;

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION};
use serde::Deserialize;

use super::stored_status::StoredStatus;

/// The annotation with the whole object that kubectl stores.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A HorizontalPodAutoscaler. Its record is parsed once.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HorizontalPodAutoscaler")]
pub struct RecordedHpa {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: HorizontalPodAutoscalerSpec,
    /// The status, and the record, once that was taken out of the annotations.
    #[serde(default, rename = "status")]
    pub stored: StoredStatus,
    /// Why the annotation is not used.
    #[serde(skip)]
    pub record_error: Option<String>,
}

impl RecordedHpa {
    /// The object without what is not used, and with its record.
    pub fn trimmed(mut self) -> Arc<Self> {
        self.metadata.managed_fields = None;
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(LAST_APPLIED);
            if let Some(text) = annotations.remove(RECORD_ANNOTATION) {
                match HpaRecord::parse(&text) {
                    Ok(record) => self.stored.record = Some(record),
                    Err(why) => self.record_error = Some(why),
                }
            }
        }
        // A list that was read from JSON has room for four entries, and an entry of metrics needs most of a kilobyte.
        self.spec.metrics.iter_mut().for_each(Vec::shrink_to_fit);
        if let Some(status) = &mut self.stored.status {
            status.current_metrics.iter_mut().for_each(Vec::shrink_to_fit);
            status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
        }
        Arc::new(self)
    }
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
    fn an_object_with_one_metric_takes_less_than_3500_bytes() {
        let used = allocation_counter::measure(|| {
            let object: RecordedHpa = serde_json::from_str(&format!(
                r#"{{"metadata": {{}}, "spec": {SPEC}, "status": {STATUS}}}"#
            ))
            .expect("an object");
            // What is kept counts as used.
            std::mem::forget(object.trimmed());
        });
        assert!((1000..3500).contains(&used.bytes_current), "{} bytes", used.bytes_current);
    }
}
