//! One write of a VerticalPodAutoscaler's status, or of its annotations beside it, and what can come of it.

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

/// Long for a write of a few kilobytes; a server that hangs must not hold a worker for ever.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Who writes for a recommender, in `managedFields`.
pub const RECOMMENDER_FIELD_MANAGER: &str = "plimsoll-recommender";

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchTarget {
    /// Its status.
    Status,
    /// Its metadata.
    Annotations,
    /// Its metadata, where an updater keeps what it must not forget.
    UpdaterState,
}

/// A status that is to be written, or annotations that go with it.
#[derive(Clone, Debug)]
pub struct StatusPatch {
    /// Whose it is.
    pub key: ObjectKey,
    /// The version of the object that the patch was made from. Any other makes it a conflict.
    pub resource_version: Box<str>,
    /// The whole merge patch, `{"status": ...}` or `{"metadata": {"annotations": ...}}`, without the
    /// resourceVersion. A list in it replaces the stored one, so `conditions` must hold everybody's.
    pub body: Value,
    /// Who writes it, for `managedFields`.
    pub field_manager: &'static str,
}

/// What came of a write.
#[derive(Clone, Debug)]
pub enum StatusWriteResult {
    /// It is stored.
    Written {
        /// The version of the object since.
        resource_version: Box<str>,
    },
    /// The object had changed; this is what it is now, if it could be read.
    Conflict(Option<Box<VerticalPodAutoscaler>>),
    /// There is no such object any more.
    NotFound,
    /// It was not sent: this process may not write.
    NotLeader,
    /// Anything else.
    Failed {
        /// One line: what, where, why.
        why: String,
    },
}

/// Where workers get what to write, and tell what came of it.
pub trait StatusSource: Send + Sync {
    /// What to write for a key as things are now; `None` when nothing is to be written.
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch>;
    /// What came of it. After a conflict with an object `prepare` is asked again at once.
    fn on_result(&self, key: &ObjectKey, outcome: &StatusWriteResult);

    /// Annotations that go with the status that was just written. They cost a request of their own and are
    /// worth no more than that: what fails is not tried again.
    fn next_annotation_patch(&self, _key: &ObjectKey) -> Option<StatusPatch> {
        None
    }

    /// What came of them. After a conflict with an object `prepare_annotations` is asked again at once, until
    /// it has none.
    fn on_annotation_result(&self, _key: &ObjectKey, _outcome: &StatusWriteResult) {}
}

/// Writes one status: a merge patch that holds for the version it was made from only.
pub async fn write_status(
    client: &Client,
    permit: &dyn WritePermit,
    patch: &StatusPatch,
) -> StatusWriteResult {
    try_write(client, permit, patch, PatchTarget::Status, &WriteStats::default(), REQUEST_LIMIT)
        .await
        .outcome
}

/// An outcome, and how long the server asked to be left alone.
pub(super) struct StatusWriteAttempt {
    pub outcome: StatusWriteResult,
    pub retry_after: Option<Duration>,
}

impl From<StatusWriteResult> for StatusWriteAttempt {
    fn from(outcome: StatusWriteResult) -> Self {
        Self { outcome, retry_after: None }
    }
}

/// The part of an object that a writer needs.
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
    part: PatchTarget,
    stats: &WriteStats,
    limit: Duration,
) -> StatusWriteAttempt {
    let failed = |why: &str| failed(&patch.key, part, why);
    let request = match patch_request(patch, part) {
        Ok(request) => request,
        Err(why) => return failed(&why).into(),
    };
    let reply = match exchange(client, permit, (stats, part.kind()), limit, request).await {
        Ok(reply) => reply,
        Err(ExchangeError::NotLeader) => return StatusWriteResult::NotLeader.into(),
        Err(ExchangeError::NoResponse(why)) => return failed(&why).into(),
    };
    let outcome = match reply.code {
        code if code.is_success() => match serde_json::from_slice::<Stored>(&reply.body) {
            Ok(Stored { metadata: StoredMetadata { resource_version } }) => {
                StatusWriteResult::Written { resource_version }
            }
            Err(why) => failed(&format!("the answer cannot be read: {why}")),
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
            Self::Status => "the status of",
            Self::Annotations | Self::UpdaterState => "the annotation on",
        }
    }
}

fn patch_request(patch: &StatusPatch, part: PatchTarget) -> Result<Request<Body>, String> {
    let mut body = patch.body.clone();
    let Some(fields) = body.as_object_mut() else {
        return Err("the patch is no object".into());
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata["resourceVersion"] = json!(patch.resource_version);
    let objects = VerticalPodAutoscaler::url_path(&(), Some(&patch.key.namespace));
    let parameters =
        PatchParams { field_manager: Some(patch.field_manager.into()), ..PatchParams::default() };
    let (of, name, merge) =
        (kube::core::Request::new(objects), &*patch.key.name, Patch::Merge(body));
    let (request, verb) = match part {
        PatchTarget::Status => {
            (of.patch_subresource("status", name, &parameters, &merge), "patch_status")
        }
        PatchTarget::Annotations | PatchTarget::UpdaterState => {
            (of.patch(name, &parameters, &merge), "patch")
        }
    };
    let mut request = request.map_err(|why| why.to_string())?;
    // What kube's own calls say, for whoever counts requests by verb.
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

fn failed(key: &ObjectKey, part: PatchTarget, why: &str) -> StatusWriteResult {
    StatusWriteResult::Failed {
        why: format!("{} {key} was not written: {why}", part.description()),
    }
}
