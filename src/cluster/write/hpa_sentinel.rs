//! Creates, reads and deletes the object by which an active HPA controller is found: its target does not exist.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec,
};
use kube::{Client, api::Api};
use plimsoll_storage::WritePermit as _;

use crate::cluster::write::{
    Permit, WriteError, WriteStats, object_client::ObjectClient, stats::WriteKind,
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Shows Plimsoll whether another HPA controller is active. Its target does not exist.",
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSentinel {
    pub uid: String,
    /// Whether its status was written.
    pub is_touched: bool,
}

/// The object. It is written without the Lease, because no process may hold that before the object has shown that no other
/// controller is active.
#[derive(Debug)]
pub struct SentinelObject {
    object: ObjectClient<HorizontalPodAutoscaler>,
    permit: Permit,
}

impl SentinelObject {
    /// The object of this name. `permit` has a fence that is always open.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        permit: Permit,
        stats: Arc<WriteStats>,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        let object = ObjectClient::new(api, name, WriteKind::Object, REQUEST_LIMIT, stats);
        Self { object, permit }
    }

    pub async fn read(&self) -> Result<Option<ReadSentinel>, WriteError> {
        Ok(self.object.get().await?.map(|object| read(&object)))
    }

    /// Creates the object. A conflict if it exists by now.
    pub async fn create(&self) -> Result<(), WriteError> {
        self.object.ensure_can_create().await?;
        let mut metadata = self.object.metadata();
        let (key, text) = DESCRIPTION;
        metadata.annotations = Some([(key.to_owned(), text.to_owned())].into());
        let spec = HorizontalPodAutoscalerSpec {
            min_replicas: Some(1),
            max_replicas: 1,
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: "Deployment".to_owned(),
                name: self.object.name.clone(),
            },
            ..HorizontalPodAutoscalerSpec::default()
        };
        let object = HorizontalPodAutoscaler {
            metadata,
            spec: Some(spec),
            ..HorizontalPodAutoscaler::default()
        };
        self.permit.acquire().await?;
        self.object.create(&object).await.map(drop)
    }

    pub async fn delete(&self, uid: &str) -> Result<(), WriteError> {
        self.permit.acquire().await?;
        self.object.delete(uid).await
    }

    /// The error of a request in one line, with what to do about it.
    pub fn describe(&self, error: &WriteError) -> String {
        let object = &self.object;
        let hint = if error.code() == Some(403) {
            let rules = ["create", "get", "delete"].map(|verb| object.rule(verb).to_string());
            format!("; add to the role: {}", rules.join(", "))
        } else {
            String::new()
        };
        format!("failed to read or write HorizontalPodAutoscaler {object}: {error}{hint}")
    }
}

fn read(object: &HorizontalPodAutoscaler) -> ReadSentinel {
    let status = object.status.clone().unwrap_or_default();
    let has_values = status.conditions.is_some_and(|conditions| !conditions.is_empty())
        || status.desired_replicas != 0
        || status.current_replicas.unwrap_or(0) != 0
        || status.last_scale_time.is_some();
    let mut managers = object.metadata.managed_fields.iter().flatten();
    let was_written = managers.any(|entry| entry.subresource.as_deref() == Some("status"));
    ReadSentinel {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        is_touched: has_values || was_written,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn any_write_of_the_status_touches_the_object() {
        let touched = |metadata: &Value, status: &Value| {
            let object = json!({"metadata": metadata, "spec": {"maxReplicas": 1,
                "scaleTargetRef": {"kind": "Deployment", "name": "none"}}, "status": status});
            let object = serde_json::from_value(object).expect("an object");
            read(&object).is_touched
        };
        let empty = json!({"desiredReplicas": 0, "currentMetrics": null});
        let created =
            json!({"uid": "u", "managedFields": [{"manager": "plimsoll", "operation": "Update"}]});
        assert!(!touched(&created, &empty));
        let condition =
            json!({"type": "AbleToScale", "status": "False", "reason": "FailedGetScale"});
        for status in [
            json!({"desiredReplicas": 0, "conditions": [condition]}),
            json!({"desiredReplicas": 1}),
            json!({"desiredReplicas": 0, "currentReplicas": 1}),
            json!({"desiredReplicas": 0, "lastScaleTime": "2027-01-15T08:00:00Z"}),
        ] {
            assert!(touched(&created, &status), "{status}");
        }
        let written = json!({"managedFields": [{"manager": "other", "subresource": "status"}]});
        assert!(touched(&written, &empty));
    }
}
