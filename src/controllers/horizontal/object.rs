//! A HorizontalPodAutoscaler with the record that is stored in its annotation.

use std::sync::Arc;

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION};
use serde::Deserialize;

use super::{
    spare_capacity::{shrink_spec, shrink_status},
    stored_status::StoredStatus,
};

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
        shrink_spec(&mut self.spec);
        if let Some(status) = &mut self.stored.status {
            shrink_status(status);
        }
        Arc::new(self)
    }
}
