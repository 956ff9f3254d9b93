//! Writes the status of a VerticalPodAutoscaler, or its annotations.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::{
    Client, Resource as _,
    api::{Api, Patch, PatchParams},
    client::Body,
};
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::WritePermit;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::write::{
    request::{ExchangeError, exchange},
    stats::{WriteKind, WriteStats},
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// Long for a write of a few kilobytes; an unresponsive server must not block a worker for ever.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The field manager of a recommender.
pub const RECOMMENDER_FIELD_MANAGER: &str = "plimsoll-recommender";

/// The part of an object to patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchTarget {
    /// The status.
    Status,
    /// Annotations that belong to the status.
    Annotations,
    /// The annotation with the updater's state.
    UpdaterState,
}

/// A patch of a status, or of annotations that belong to it.
#[derive(Clone, Debug)]
pub struct StatusPatch {
    /// The VPA.
    pub key: ObjectKey,
    /// The resource version that the patch was made from. Any other version is a conflict.
    pub resource_version: Box<str>,
    /// The merge patch, `{"status": ...}` or `{"metadata": {"annotations": ...}}`, without the resourceVersion. A list
    /// replaces the stored one, so `conditions` must include those of other writers.
    pub body: Value,
    /// The field manager.
    pub field_manager: &'static str,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub enum StatusWriteResult {
    /// The patch was applied.
    Written {
        /// The new resource version of the object.
        resource_version: Box<str>,
    },
    /// The object had changed; with its current state, if it could be read.
    Conflict(Option<Box<VerticalPodAutoscaler>>),
    /// The object is gone.
    NotFound,
    /// Not sent: this process may not write.
    NotLeader,
    /// Any other error.
    Failed {
        /// The message: the object and the error.
        why: String,
    },
}

/// Provides the patches to write, and receives the results.
pub trait StatusSource: Send + Sync {
    /// The patch for a key, from the current state; `None` if there is nothing to write.
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch>;
    /// Receives the result. After a conflict with the current object, [`Self::next_patch`] is called again immediately.
    fn on_result(&self, key: &ObjectKey, outcome: &StatusWriteResult);

    /// Annotations that belong to the status that was just written. They cost a separate request, and are not retried after
    /// an error.
    fn next_annotation_patch(&self, _key: &ObjectKey) -> Option<StatusPatch> {
        None
    }

    /// Receives the result. After a conflict with the current object, [`Self::next_annotation_patch`] is called again
    /// immediately, until it returns `None`.
    fn on_annotation_result(&self, _key: &ObjectKey, _outcome: &StatusWriteResult) {}
}

/// Writes one status: a merge patch that applies only to the resource version that it was made from.
pub async fn write_status(
    client: &Client,
    permit: &dyn WritePermit,
    patch: &StatusPatch,
) -> StatusWriteResult {
    try_write(client, permit, patch, PatchTarget::Status, &WriteStats::default(), REQUEST_LIMIT)
        .await
        .outcome
}

/// The result of a write, and the server's `Retry-After`.
pub(super) struct StatusWriteAttempt {
    pub outcome: StatusWriteResult,
    pub retry_after: Option<Duration>,
}

impl From<StatusWriteResult> for StatusWriteAttempt {
    fn from(outcome: StatusWriteResult) -> Self {
        Self { outcome, retry_after: None }
    }
}

/// The part of the response that is needed.
#[derive(Deserialize)]
struct Stored {
    metadata: StoredMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMetadata {
    resource_version: Box<str>,
}

pub(super) async fn try_write(
    client: &Client,
    permit: &dyn WritePermit,
    patch: &StatusPatch,
    target: PatchTarget,
    stats: &WriteStats,
    limit: Duration,
) -> StatusWriteAttempt {
    let failed = |why: &str| failed(&patch.key, target, why);
    let request = match patch_request(patch, target) {
        Ok(request) => request,
        Err(why) => return failed(&why).into(),
    };
    let reply = match exchange(client, permit, (stats, target.kind()), limit, request).await {
        Ok(reply) => reply,
        Err(ExchangeError::NotLeader) => return StatusWriteResult::NotLeader.into(),
        Err(ExchangeError::NoResponse(why)) => return failed(&why).into(),
    };
    let outcome = match reply.code {
        code if code.is_success() => match serde_json::from_slice::<Stored>(&reply.body) {
            Ok(Stored { metadata: StoredMetadata { resource_version } }) => {
                StatusWriteResult::Written { resource_version }
            }
            Err(why) => failed(&format!("failed to parse response: {why}")),
        },
        StatusCode::NOT_FOUND => StatusWriteResult::NotFound,
        StatusCode::CONFLICT => read_after_conflict(client, &patch.key, limit).await,
        code => failed(&format!("{}: {}", code.as_u16(), reply.message())),
    };
    StatusWriteAttempt { outcome, retry_after: reply.retry_after }
}

impl PatchTarget {
    const fn kind(self) -> WriteKind {
        match self {
            Self::Status => WriteKind::Status,
            Self::Annotations => WriteKind::Annotations,
            Self::UpdaterState => WriteKind::UpdaterState,
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Status => "status of",
            Self::Annotations | Self::UpdaterState => "annotation of",
        }
    }
}

fn patch_request(patch: &StatusPatch, target: PatchTarget) -> Result<Request<Body>, String> {
    let mut body = patch.body.clone();
    let Some(fields) = body.as_object_mut() else {
        return Err("patch is not an object".into());
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata["resourceVersion"] = json!(patch.resource_version);
    let objects = VerticalPodAutoscaler::url_path(&(), Some(&patch.key.namespace));
    let parameters =
        PatchParams { field_manager: Some(patch.field_manager.into()), ..PatchParams::default() };
    let (requests, name, patch_body) =
        (kube::core::Request::new(objects), &*patch.key.name, Patch::Merge(body));
    let (request, verb) = match target {
        PatchTarget::Status => {
            (requests.patch_subresource("status", name, &parameters, &patch_body), "patch_status")
        }
        PatchTarget::Annotations | PatchTarget::UpdaterState => {
            (requests.patch(name, &parameters, &patch_body), "patch")
        }
    };
    let mut request = request.map_err(|why| why.to_string())?;
    // The label that kube's own calls set, for metrics by verb.
    request.extensions_mut().insert(verb);
    Ok(request.map(Body::from))
}

async fn read_after_conflict(
    client: &Client,
    key: &ObjectKey,
    limit: Duration,
) -> StatusWriteResult {
    let api = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), &key.namespace);
    match tokio::time::timeout(limit, api.get_opt(&key.name)).await {
        Ok(Ok(Some(object))) => StatusWriteResult::Conflict(Some(Box::new(object))),
        Ok(Ok(None)) => StatusWriteResult::NotFound,
        Ok(Err(_)) | Err(_) => StatusWriteResult::Conflict(None),
    }
}

fn failed(key: &ObjectKey, target: PatchTarget, why: &str) -> StatusWriteResult {
    StatusWriteResult::Failed {
        why: format!("failed to write {} VPA {key}: {why}", target.description()),
    }
}
