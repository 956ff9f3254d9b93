//! The context of a write (client, permit, stats and field manager), and why writes fail. Also writes scales of workloads.

use std::{
    fmt::{Debug, Display},
    time::Duration,
};

use http::Request;
use k8s_openapi::{NamespaceResourceScope, api::apps::v1::Deployment};
use kube::{
    Client, Resource,
    api::{Api, Patch, PatchParams},
    client::Body,
    core::{Status, response::StatusDetails},
};
use plimsoll_storage::{NotLeader, WritePermit};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::write::{
    object_patch::ObjectPatchTarget,
    request::{Reply, exchange, one_line, read_with_timeout},
    stats::{WriteKind, WriteStats},
};

/// Long for a write of a few kilobytes; an unresponsive server must not block a worker for ever.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// Like [`REQUEST_LIMIT`], for pods and VerticalPodAutoscalers.
pub(super) const LONG_REQUEST_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    pub client: &'a Client,
    /// Must be acquired before each write.
    pub permit: &'a dyn WritePermit,
    pub stats: &'a WriteStats,
    pub field_manager: &'static str,
}

/// Why a request failed, mostly a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read, or it exists already.
    #[error("conflict: {0}")]
    Conflict(String),
    #[error("object not found")]
    NotFound,
    /// Not sent: this process may not write.
    #[error("write not permitted: not the leader")]
    NotLeader,
    /// The request timed out or failed: it may have been applied.
    #[error("{0}")]
    NoResponse(String),
    /// The response does not tell whether the write was applied.
    #[error("{}: {}", .0.code, .0.message)]
    Indeterminate(ErrorResponse),
    #[error("{}: {}", .0.code, .0.message)]
    Rejected(ErrorResponse),
    /// The request could not be encoded, or the response not be decoded.
    #[error("{0}")]
    Malformed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorResponse {
    pub code: u16,
    pub message: String,
    pub retry_after: Option<Duration>,
    /// The reasons of the causes in the server's Status.
    pub causes: Vec<String>,
}

/// Why an update was not applied that requires the state that it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError<T> {
    /// Another client changed that state: this is the current one.
    Conflict(T),
    Failed(WriteError),
}

impl ErrorResponse {
    /// `retry_after` is the header; the Status of the response may have it, too.
    pub(super) fn new(
        code: u16,
        message: String,
        retry_after: Option<Duration>,
        details: Option<StatusDetails>,
    ) -> Self {
        let seconds = details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let in_details = (seconds > 0).then_some(Duration::from_secs(seconds.into()));
        let causes = details.into_iter().flat_map(|details| details.causes);
        let causes = causes.map(|cause| cause.reason).collect();
        Self { code, message, retry_after: retry_after.or(in_details), causes }
    }
}

impl WriteError {
    /// The one place that maps an error response of the server.
    pub(super) fn from_response(response: ErrorResponse) -> Self {
        match response.code {
            404 => Self::NotFound,
            409 => Self::Conflict(response.message),
            _ if is_indeterminate(&response) => Self::Indeterminate(response),
            _ => Self::Rejected(response),
        }
    }

    /// A request that could not be encoded, or a response that could not be decoded.
    pub fn malformed(why: impl Display) -> Self {
        Self::Malformed(why.to_string())
    }

    /// The HTTP status code, if the server responded.
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::NotFound => Some(404),
            Self::Conflict(_) => Some(409),
            Self::Indeterminate(response) | Self::Rejected(response) => Some(response.code),
            Self::NotLeader | Self::NoResponse(_) | Self::Malformed(_) => None,
        }
    }

    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Indeterminate(response) | Self::Rejected(response) => response.retry_after,
            _ => None,
        }
    }

    /// Whether the server rejected the request with a cause of this kind.
    fn has_cause(&self, kind: &str) -> bool {
        matches!(self, Self::Rejected(response) if response.causes.iter().any(|cause| cause == kind))
    }

    /// Whether a PodDisruptionBudget blocks an eviction. Do not retry immediately: it would be blocked again.
    pub fn is_blocked_by_budget(&self) -> bool {
        self.code() == Some(429) && self.has_cause("DisruptionBudget")
    }

    /// Whether no node has the capacity for a resize (Kubernetes 1.36).
    pub fn is_beyond_node_capacity(&self) -> bool {
        self.code() == Some(403) && self.has_cause("NodeCapacity")
    }

    /// Whether a retry may succeed, by the rules of client-go.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NoResponse(_)) || matches!(self.code(), Some(429 | 500 | 503 | 504))
    }

    /// The text for users: the server's own message, as upstream passes it on.
    pub fn message(&self) -> String {
        match self {
            Self::Indeterminate(response) | Self::Rejected(response) => response.message.clone(),
            error => error.to_string(),
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let Status { code, message, details, .. } = *status;
                Self::from_response(ErrorResponse::new(code, message, None, details))
            }
            error => Self::NoResponse(one_line(&error.to_string())),
        }
    }
}

impl From<NotLeader> for WriteError {
    fn from(_: NotLeader) -> Self {
        Self::NotLeader
    }
}

impl<T> From<WriteError> for UpdateError<T> {
    fn from(error: WriteError) -> Self {
        Self::Failed(error)
    }
}

/// Whether a response does not tell whether the write was applied: a proxy or the server itself did not wait for its end.
fn is_indeterminate(response: &ErrorResponse) -> bool {
    match response.code {
        502 | 504 => true,
        500 => {
            // A write that a webhook rejected was not applied.
            ["etcdserver:", "timed out", "deadline exceeded"]
                .iter()
                .any(|text| response.message.contains(text))
                && !response.message.contains("webhook")
        }
        _ => false,
    }
}

impl WriteContext<'_> {
    /// Sends a request under the permit, and returns the response, whatever its status. `verb` is the label that kube's own
    /// calls set, for metrics.
    pub(super) async fn send(
        self,
        kind: WriteKind,
        limit: Duration,
        verb: &'static str,
        request: Result<Request<Vec<u8>>, impl Display>,
    ) -> Result<Reply, WriteError> {
        let mut request = request.map_err(WriteError::malformed)?;
        request.extensions_mut().insert(verb);
        let request = request.map(Body::from);
        exchange(self.client, self.permit, (self.stats, kind), limit, request).await
    }

    /// Patches an object, or the subresource of this kind of writes.
    pub(super) async fn patch<K: Resource<DynamicType = ()>>(
        self,
        kind: WriteKind,
        limit: Duration,
        (namespace, name): (&str, &str),
        patch: Patch<Value>,
    ) -> Result<Reply, WriteError> {
        let parameters = PatchParams {
            field_manager: Some(self.field_manager.into()),
            ..PatchParams::default()
        };
        let requests = kube::core::Request::new(K::url_path(&(), Some(namespace)));
        let request = match kind.subresource() {
            None => requests.patch(name, &parameters, &patch),
            Some(subresource) => requests.patch_subresource(subresource, name, &parameters, &patch),
        };
        let verb = match kind {
            WriteKind::Status => "patch_status",
            WriteKind::Replicas => "patch_scale",
            WriteKind::Resize => "patch_subresource",
            _ => "patch",
        };
        self.send(kind, limit, verb, request).await
    }

    /// Replaces a scale. `body` contains the resource version that it was read in. Returns the new resource version, if it
    /// is a number.
    pub async fn update_scale(self, path: &str, body: &Value) -> Result<Option<u64>, WriteError> {
        let text = serde_json::to_vec(body).map_err(WriteError::malformed)?;
        let request = Request::put(format!("{path}?fieldManager={}", self.field_manager))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(text);
        let sent = self.send(WriteKind::Replicas, REQUEST_LIMIT, "replace_scale", request);
        let response = sent.await?;
        response.success()?;
        Ok(response.resource_version().ok().and_then(|version| version.parse().ok()))
    }

    /// Changes the replicas of a Deployment from one number to another. Returns `false`, and changes nothing, if it has a
    /// different number: another client has set it. A patch, because the updater's role does not allow `update`.
    pub async fn scale_deployment(
        self,
        (namespace, name): (&str, &str),
        (from, to): (i32, i32),
    ) -> Result<bool, WriteError> {
        let api = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let scale = read_with_timeout(REQUEST_LIMIT, api.get_scale(name)).await?;
        if scale.spec.and_then(|spec| spec.replicas).unwrap_or(0) != from {
            return Ok(false);
        }
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": scale.metadata.resource_version},
            "spec": {"replicas": to},
        }));
        let place = (namespace, name);
        let sent = self.patch::<Deployment>(WriteKind::Replicas, REQUEST_LIMIT, place, patch);
        sent.await?.success().map(|_| true)
    }

    /// Applies a merge patch to exactly this version of an object. Returns the new object.
    pub async fn patch_object<K>(
        self,
        object: &K,
        target: ObjectPatchTarget,
        mut body: Value,
    ) -> Result<K, WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
    {
        let metadata = object.meta();
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        body["metadata"]["resourceVersion"] = json!(metadata.resource_version);
        let kind = match target {
            ObjectPatchTarget::Status => WriteKind::Status,
            ObjectPatchTarget::Object => WriteKind::Object,
        };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let place = (namespace, metadata.name.as_deref().unwrap_or_default());
        let patch = Patch::Merge(body);
        let response = self.patch::<K>(kind, REQUEST_LIMIT, place, patch).await?;
        serde_json::from_slice(response.success()?)
            .map_err(|why| WriteError::NoResponse(format!("failed to parse response: {why}")))
    }

    /// Fetches the current object; `None` if it is gone.
    pub async fn get_object<K>(self, object: &K) -> Result<Option<K>, WriteError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let metadata = object.meta();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let request = api.get_opt(metadata.name.as_deref().unwrap_or_default());
        // Not the error of a write: whatever it is, the object is not known.
        let read = read_with_timeout(REQUEST_LIMIT, request).await;
        read.map_err(|error| WriteError::NoResponse(error.to_string()))
    }
}
