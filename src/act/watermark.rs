//! What is written for a watermark autoscaler: replicas of its target, its own status, and its metadata.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::{
    Client, Resource as _,
    api::{Api, Patch, PatchParams},
    client::Body,
};
use plimsoll_storage::WritePermit;
use serde_json::{Value, json};

use crate::{
    act::{
        request::{Unsent, exchange},
        writes::{WriteKind, WriteStats},
    },
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
};

/// Who writes, in `managedFields`.
const WRITER: &str = "plimsoll-watermark";
/// Long for a write of a few kilobytes; a server that hangs must not hold a worker for ever.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// With what it is written.
#[derive(Clone, Copy)]
pub struct Pen<'a> {
    /// To whom.
    pub client: &'a Client,
    /// The right to.
    pub permit: &'a dyn WritePermit,
    /// Where it is counted.
    pub stats: &'a WriteStats,
}

impl std::fmt::Debug for Pen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pen").finish_non_exhaustive()
    }
}

/// Why something is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// It changed since it was read.
    #[error("it changed meanwhile: {0}")]
    Changed(String),
    /// It is gone.
    #[error("it is gone")]
    Gone,
    /// This process may not write.
    #[error("this process may not write")]
    Fenced,
    /// There was no answer, or one that leaves it open: it may have been done all the same.
    #[error("{0}")]
    Unanswered(String),
    /// The server said no.
    #[error("{0}")]
    Refused(String),
}

/// Whether an answer leaves open what became of the write: somebody on the way, or the server itself, did not wait for its
/// end.
fn may_be_done(code: StatusCode, message: &str) -> bool {
    match code {
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
            ["etcdserver:", "timed out", "deadline exceeded"].iter().any(|it| message.contains(it))
                && !message.contains("failed calling webhook")
        }
        _ => false,
    }
}

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its status.
    Status,
    /// All else.
    Object,
}

impl Pen<'_> {
    async fn send(
        self,
        kind: WriteKind,
        request: Request<Body>,
    ) -> Result<bytes::Bytes, Unwritten> {
        let sent =
            exchange(self.client, self.permit, (self.stats, kind), REQUEST_LIMIT, request).await;
        let reply = sent.map_err(|unsent| match unsent {
            Unsent::Fenced => Unwritten::Fenced,
            Unsent::Unanswered(why) => Unwritten::Unanswered(why),
        })?;
        match reply.code {
            code if code.is_success() => Ok(reply.body),
            StatusCode::NOT_FOUND => Err(Unwritten::Gone),
            StatusCode::CONFLICT => Err(Unwritten::Changed(reply.message())),
            // The server's own words, as upstream passes them on.
            code if may_be_done(code, &reply.message()) => {
                Err(Unwritten::Unanswered(reply.message()))
            }
            _ => Err(Unwritten::Refused(reply.message())),
        }
    }

    /// Writes a scale back, with other replicas. `body` holds the version that it was read in. Answers the version that it
    /// is since, where that is a number.
    pub async fn scale(self, path: &str, body: &Value) -> Result<Option<u64>, Unwritten> {
        let refused = |why: &dyn std::fmt::Display| Unwritten::Refused(why.to_string());
        let text = serde_json::to_vec(body).map_err(|why| refused(&why))?;
        let mut request = Request::put(format!("{path}?fieldManager={WRITER}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|why| refused(&why))?;
        request.extensions_mut().insert("replace_scale");
        let answer = self.send(WriteKind::Replicas, request).await?;
        let stored = serde_json::from_slice::<Value>(&answer).unwrap_or_default();
        Ok(stored["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()))
    }

    /// Changes an object by a merge patch that holds for this version of it only, and answers what it is since.
    pub async fn alter(
        self,
        object: &WatermarkPodAutoscaler,
        part: Part,
        mut body: Value,
    ) -> Result<WatermarkPodAutoscaler, Unwritten> {
        let refused = |why: &dyn std::fmt::Display| Unwritten::Refused(why.to_string());
        let metadata = &object.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let objects = WatermarkPodAutoscaler::url_path(&(), metadata.namespace.as_deref());
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        body["metadata"]["resourceVersion"] = json!(metadata.resource_version);
        let parameters =
            PatchParams { field_manager: Some(WRITER.into()), ..PatchParams::default() };
        let (requests, merge) = (kube::core::Request::new(objects), Patch::Merge(body));
        let (request, verb, kind) = match part {
            Part::Status => (
                requests.patch_subresource("status", name, &parameters, &merge),
                "patch_status",
                WriteKind::Status,
            ),
            Part::Object => (requests.patch(name, &parameters, &merge), "patch", WriteKind::Object),
        };
        let mut request = request.map_err(|why| refused(&why))?;
        // What kube's own calls say, for whoever counts requests by verb.
        request.extensions_mut().insert(verb);
        let answer = self.send(kind, request.map(Body::from)).await?;
        serde_json::from_slice(&answer)
            .map_err(|why| Unwritten::Unanswered(format!("the answer cannot be read: {why}")))
    }

    /// An object as it is now; nothing where it is gone.
    pub async fn read(
        self,
        object: &WatermarkPodAutoscaler,
    ) -> Result<Option<WatermarkPodAutoscaler>, Unwritten> {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<WatermarkPodAutoscaler>::namespaced(self.client.clone(), namespace);
        let asked = api.get_opt(metadata.name.as_deref().unwrap_or_default());
        match tokio::time::timeout(REQUEST_LIMIT, asked).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(why)) => Err(Unwritten::Unanswered(why.to_string())),
            Err(_) => Err(Unwritten::Unanswered(format!("no answer within {REQUEST_LIMIT:?}"))),
        }
    }
}

/// The merge patch that makes one status of another: what the new one lacks is taken away.
pub fn status_patch(
    before: Option<&WatermarkPodAutoscalerStatus>,
    after: &WatermarkPodAutoscalerStatus,
) -> Value {
    let mut status = serde_json::to_value(after).unwrap_or_default();
    let before = before.and_then(|before| serde_json::to_value(before).ok()).unwrap_or_default();
    take_away(&before, &mut status);
    json!({ "status": status })
}

/// Says of each field that is there no more that it goes, at any depth: a merge patch leaves alone what it does not name.
/// Lists are replaced as a whole.
fn take_away(before: &Value, after: &mut Value) {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object_mut()) else { return };
    for (key, value) in before {
        match after.get_mut(key) {
            Some(stays) => take_away(value, stays),
            None => {
                after.insert(key.clone(), Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_status_lacks_is_taken_away() {
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
        // Within a decision too, or what once held replicas would be told for ever.
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
