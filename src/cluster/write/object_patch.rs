//! Patches one version of an autoscaler: its status, or its spec and metadata.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectPatchTarget {
    Status,
    /// Everything else.
    Object,
}

/// The merge patch from one status to another: removes fields that the new one lacks.
pub fn status_patch<S: Serialize>(before: Option<&S>, after: &S) -> Value {
    let mut status = serde_json::to_value(after).unwrap_or_default();
    let before = before.and_then(|before| serde_json::to_value(before).ok()).unwrap_or_default();
    null_removed_fields(&before, &mut status);
    json!({ "status": status })
}

/// Sets removed fields to null, at any depth: a merge patch does not change fields that it does not contain. Lists are
/// replaced as a whole.
fn null_removed_fields(before: &Value, after: &mut Value) {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object_mut()) else { return };
    for (key, value) in before {
        match after.get_mut(key) {
            Some(field) => null_removed_fields(value, field),
            None => {
                after.insert(key.clone(), Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::api::wpa::WatermarkPodAutoscalerStatus;

    use super::*;

    #[test]
    fn fields_missing_in_a_new_status_are_removed() {
        let of = |fields: Value| {
            let mut status = json!({"currentReplicas": 1, "desiredReplicas": 1});
            for (key, value) in fields.as_object().into_iter().flatten() {
                status[key] = value.clone();
            }
            serde_json::from_value::<WatermarkPodAutoscalerStatus>(status).expect("a status")
        };
        let before = of(json!({"lastConditionType": "DryRun", "scalingEventsCount": 3}));
        let after = of(json!({"scalingEventsCount": 4}));
        assert_eq!(
            status_patch(Some(&before), &after),
            json!({"status": {
                "currentReplicas": 1, "desiredReplicas": 1, "scalingEventsCount": 4,
                "lastConditionType": null,
            }})
        );
        assert_eq!(status_patch(None, &after)["status"]["lastConditionType"], Value::Null);
        // Inside `decision` too: otherwise a hold that has ended would be reported for ever.
        let since = "2026-11-24T00:00:00Z";
        let before = of(json!({"decision": {"heldUntil": since, "unknownSince": since}}));
        let after = of(json!({"decision": {"to": 2}}));
        let patch = status_patch(Some(&before), &after);
        let decision = patch["status"]["decision"].as_object().expect("a decision");
        for field in ["heldUntil", "unknownSince"] {
            assert_eq!(decision.get(field), Some(&Value::Null), "{field}");
        }
    }
}
