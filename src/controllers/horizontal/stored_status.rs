//! What is stored of an object: the record in its annotation, and its status. This controller writes the status only where
//! it replaces the HPA controller.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use plimsoll_core::hpa::{
    HpaRecord,
    record::RECORD_ANNOTATION,
    status::{differs, without_values},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::write::{ObjectPatchTarget, status_patch};

/// The record and the status of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "HorizontalPodAutoscalerStatus")]
pub struct StoredStatus {
    /// `None` if nothing was recorded.
    pub record: Option<HpaRecord>,
    /// `None` in what is to be stored if another controller writes it.
    pub status: Option<HorizontalPodAutoscalerStatus>,
}

impl From<HorizontalPodAutoscalerStatus> for StoredStatus {
    fn from(status: HorizontalPodAutoscalerStatus) -> Self {
        Self { record: None, status: Some(status) }
    }
}

impl StoredStatus {
    /// Whether storing `after` would change nothing that matters.
    pub fn is_same(&self, after: &Self) -> bool {
        let is_same_record = match (&self.record, &after.record) {
            (Some(before), Some(after)) => before.is_same(after),
            (before, after) => before == after,
        };
        is_same_record && !self.status_differs(after)
    }

    fn status_differs(&self, after: &Self) -> bool {
        let none = HorizontalPodAutoscalerStatus::default();
        let before = self.status.as_ref().unwrap_or(&none);
        after.status.as_ref().is_some_and(|after| differs(before, after))
    }

    /// Whether the difference between this and `after` need not be stored at once.
    pub fn differs_in_values_only(&self, after: &Self) -> bool {
        let record = |stored: &Self| stored.record.as_ref().map(HpaRecord::without_times);
        let status = |stored: &Self| stored.status.as_ref().map(without_values);
        record(self) == record(after) && (after.status.is_none() || status(self) == status(after))
    }

    /// The patch that stores `after`, in one request: the API server changes the annotations together with the status.
    pub fn patch(&self, after: &Self) -> (ObjectPatchTarget, Value) {
        let (target, mut patch) = match &after.status {
            Some(status) if self.status_differs(after) => {
                (ObjectPatchTarget::Status, status_patch(self.status.as_ref(), status))
            }
            _ => (ObjectPatchTarget::Object, json!({})),
        };
        if let Some(record) = after.record.as_ref().filter(|_| self.record != after.record) {
            patch["metadata"] = json!({"annotations": {RECORD_ANNOTATION: record.text()}});
        }
        (target, patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(desired: Option<i32>, record: Option<i32>) -> StoredStatus {
        let status = desired.map(|desired_replicas| HorizontalPodAutoscalerStatus {
            desired_replicas,
            current_replicas: Some(3),
            ..HorizontalPodAutoscalerStatus::default()
        });
        let record = record
            .map(|desired| HpaRecord { desired_replicas: Some(desired), ..HpaRecord::default() });
        StoredStatus { record, status }
    }

    #[test]
    fn only_what_differs_is_written_and_the_status_of_another_controller_never_is() {
        use ObjectPatchTarget::{Object, Status};
        let before = stored(Some(2), Some(2));
        for (after, target, has_status, has_record) in [
            (stored(Some(3), Some(3)), Status, true, true),
            (stored(Some(3), Some(2)), Status, true, false),
            (stored(Some(2), Some(3)), Object, false, true),
            (stored(None, Some(3)), Object, false, true),
        ] {
            assert!(!before.is_same(&after), "{after:?}");
            let (found, patch) = before.patch(&after);
            assert_eq!(found, target, "{after:?}");
            assert_eq!(patch.get("status").is_some(), has_status, "{patch}");
            assert_eq!(patch.get("metadata").is_some(), has_record, "{patch}");
        }
        assert!(before.is_same(&before));
        assert!(before.is_same(&stored(None, Some(2))));
        assert!(!stored(Some(2), None).is_same(&before), "the first record");
    }

    #[test]
    fn an_object_without_a_status_has_an_empty_one() {
        let status: StoredStatus = serde_json::from_value(json!({})).expect("a status");
        assert_eq!(status.status, Some(HorizontalPodAutoscalerStatus::default()));
        assert!(status.is_same(&StoredStatus::default()));
        let patch = StoredStatus::default().patch(&stored(Some(2), None)).1;
        assert_eq!(patch, json!({"status": {"currentReplicas": 3, "desiredReplicas": 2}}));
    }
}
