//! Compares the responses of two webhooks to the same review: all operations, and the texts in annotations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ReviewedPod;

/// The response of a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WebhookResponse {
    /// The patch; empty if there is nothing to patch.
    Patch(Vec<Value>),
    /// The object was rejected with this message.
    Refused(String),
    /// The connection was closed without a response.
    Dropped,
}

/// Counts the reviewed pods, and upstream's responses.
#[derive(Debug, Default)]
pub struct ComparisonCounts {
    same: usize,
    patched: usize,
    operations: usize,
    dropped: usize,
}

/// Returns a review of the creation of an object.
pub fn review(uid: &str, namespace: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "requestKind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "requestResource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": namespace, "operation": "CREATE", "object": object, "dryRun": false,
            "userInfo": { "username": "system:serviceaccount:kube-system:replicaset-controller" },
        },
    })
}

impl ComparisonCounts {
    /// Returns the difference between the responses of upstream and the other webhook, if any.
    pub fn compare(
        &mut self,
        question: &ReviewedPod,
        theirs: &WebhookResponse,
        other: &WebhookResponse,
    ) -> Option<String> {
        match (theirs, other) {
            // Upstream panicked (7 causes are known): the API server would continue without a response.
            (WebhookResponse::Dropped, WebhookResponse::Patch(_)) => self.dropped += 1,
            _ if theirs != other => {
                return Some(format!(
                    "{}\n  {}\n  upstream {theirs:?}\n  ours     {other:?}",
                    question.name, question.review
                ));
            }
            (WebhookResponse::Patch(patch), _) => {
                self.patched += usize::from(!patch.is_empty());
                self.operations += patch.len();
            }
            _ => {}
        }
        self.same += 1;
        None
    }

    /// Panics if too few responses have content.
    pub fn check(&self) {
        assert!(self.patched > self.same / 2, "{self:?}");
        assert!(self.dropped < self.same / 10, "{self:?}");
    }
}

impl WebhookResponse {
    /// Parses a response. Panics if no API server would accept it.
    pub fn read(text: &str) -> Self {
        let review: Value = serde_json::from_str(text).expect("an answer is JSON");
        let response = &review["response"];
        if response["allowed"] != true {
            let message = response["status"]["message"].as_str().unwrap_or_default();
            return Self::Refused(message.to_owned());
        }
        let Some(patch) = response["patch"].as_str() else { return Self::Patch(Vec::new()) };
        assert_eq!(response["patchType"], "JSONPatch", "{text}");
        let patch = STANDARD.decode(patch).expect("base64");
        Self::Patch(serde_json::from_slice(&patch).expect("list of operations"))
    }

    /// Sorts what has no order in upstream's maps: runs of adjacent operations on one resource list, and the annotations'
    /// texts about them.
    pub fn normalize_order(self) -> Self {
        let Self::Patch(mut operations) = self else { return self };
        for operation in &mut operations {
            let path = operation["path"].as_str().unwrap_or_default().to_owned();
            let Some(text) = operation["value"].as_str() else { continue };
            if path.ends_with("/vpaUpdates") {
                operation["value"] = sorted_items(text).into();
            } else if path.contains("vpaCpuStartupBoost") {
                let parsed: Value = serde_json::from_str(text).expect("JSON in the annotation");
                operation["value"] = parsed.to_string().into();
            }
        }
        let list = |operation: &Value| {
            let path = operation["path"].as_str().unwrap_or_default();
            let (parent, name) = path.rsplit_once('/').unwrap_or_default();
            let is_amount = parent.ends_with("/requests") || parent.ends_with("/limits");
            (is_amount.then(|| parent.to_owned()), name.to_owned())
        };
        let mut start = 0;
        while start < operations.len() {
            let (run, _) = list(&operations[start]);
            let same = |operation: &&Value| run.is_some() && list(operation).0 == run;
            let length = operations[start..].iter().take_while(same).count().max(1);
            operations[start..start + length].sort_by_key(|operation| list(operation).1);
            start += length;
        }
        Self::Patch(operations)
    }
}

/// Sorts the items of each container in `Pod resources updated by NAME: container 0: ITEM, ITEM; container 1: ITEM`.
fn sorted_items(text: &str) -> String {
    let containers = text.split("; ").map(|container| {
        let Some((head, items)) = container.rsplit_once(": container").map_or_else(
            || container.split_once(": ").map(|(head, items)| (format!("{head}: "), items)),
            |(head, rest)| {
                let (number, items) = rest.split_once(": ")?;
                Some((format!("{head}: container{number}: "), items))
            },
        ) else {
            return container.to_owned();
        };
        let mut items: Vec<_> = items.split(", ").collect();
        items.sort_unstable();
        format!("{head}{}", items.join(", "))
    });
    containers.collect::<Vec<_>>().join("; ")
}

#[test]
fn resources_within_a_container_are_compared_in_any_order_and_containers_in_order() {
    let text = "Pod resources updated by web: container 0: cpu request, memory request, cpu limit; container 2: b: c, a";
    assert_eq!(
        sorted_items(text),
        "Pod resources updated by web: container 0: cpu limit, cpu request, memory request; container 2: a, b: c"
    );
}
