//! The context of a write (client, permit, stats and field manager), and why writes fail. Also writes scales of workloads.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Client, Resource as _,
    api::{Api, Patch, PatchParams},
    client::Body,
};
use plimsoll_storage::{NotLeader, WritePermit};
use serde_json::{Value, json};

use crate::cluster::write::{
    request::{Reply, exchange, one_line, read_with_timeout},
    stats::{WriteKind, WriteStats},
};

/// Long for a write of a few kilobytes; an unresponsive server must not block a worker for ever.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// The context of a write.
#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    /// The client.
    pub client: &'a Client,
    /// Must be acquired before each write.
    pub permit: &'a dyn WritePermit,
    /// Counts the writes.
    pub stats: &'a WriteStats,
    /// The field manager.
    pub field_manager: &'static str,
}

impl std::fmt::Debug for WriteContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteContext").finish_non_exhaustive()
    }
}

/// Why a request failed, mostly a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read, or it exists already.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object is gone.
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
    /// The server rejected the write.
    #[error("{}: {}", .0.code, .0.message)]
    Rejected(ErrorResponse),
    /// The request could not be encoded, or the response not be decoded.
    #[error("{0}")]
    Malformed(String),
}

/// An error that the server responded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status code.
    pub code: u16,
    /// The server's message.
    pub message: String,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// Why an update was not applied that requires the state that it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError<T> {
    /// Another client changed that state: this is the current one.
    Conflict(T),
    /// Any other reason.
    Failed(WriteError),
}

impl WriteError {
    /// The one place that maps an error response of the server.
    pub(super) fn from_response(code: u16, message: String, retry_after: Option<Duration>) -> Self {
        match code {
            404 => Self::NotFound,
            409 => Self::Conflict(message),
            _ => {
                let is_indeterminate = is_indeterminate(code, &message);
                let response = ErrorResponse { code, message, retry_after };
                if is_indeterminate {
                    Self::Indeterminate(response)
                } else {
                    Self::Rejected(response)
                }
            }
        }
    }

    /// A request that could not be encoded, or a response that could not be decoded.
    pub fn malformed(why: impl std::fmt::Display) -> Self {
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

    /// The server's `Retry-After`.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Indeterminate(response) | Self::Rejected(response) => response.retry_after,
            _ => None,
        }
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
                let seconds = status.details.as_ref().map_or(0, |it| it.retry_after_seconds);
                let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                Self::from_response(status.code, status.message, retry_after)
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
fn is_indeterminate(code: u16, message: &str) -> bool {
    match code {
        502 | 504 => true,
        500 => {
            // A write that a webhook rejected was not applied.
            ["etcdserver:", "timed out", "deadline exceeded"]
                .iter()
                .any(|text| message.contains(text))
                && !message.contains("webhook")
        }
        _ => false,
    }
}

impl WriteContext<'_> {
    /// Sends a request, and returns the response, whatever its status.
    pub(super) async fn send(
        self,
        kind: WriteKind,
        request: Request<Body>,
    ) -> Result<Reply, WriteError> {
        exchange(self.client, self.permit, (self.stats, kind), REQUEST_LIMIT, request).await
    }

    /// Replaces a scale. `body` contains the resource version that it was read in. Returns the new resource version, if it
    /// is a number.
    pub async fn update_scale(self, path: &str, body: &Value) -> Result<Option<u64>, WriteError> {
        let text = serde_json::to_vec(body).map_err(WriteError::malformed)?;
        let request = Request::put(format!("{path}?fieldManager={}", self.field_manager))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(text)
            .map_err(WriteError::malformed)?;
        self.send_scale(request, "replace_scale").await
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
        let parameters = PatchParams {
            field_manager: Some(self.field_manager.into()),
            ..PatchParams::default()
        };
        let requests = kube::core::Request::new(Deployment::url_path(&(), Some(namespace)));
        let request = requests.patch_subresource("scale", name, &parameters, &patch);
        self.send_scale(request.map_err(WriteError::malformed)?, "patch_scale").await?;
        Ok(true)
    }

    /// `verb` is the label that kube's own calls set, for metrics.
    async fn send_scale(
        self,
        mut request: Request<Vec<u8>>,
        verb: &'static str,
    ) -> Result<Option<u64>, WriteError> {
        request.extensions_mut().insert(verb);
        let response = self.send(WriteKind::Replicas, request.map(Body::from)).await?;
        response.success()?;
        Ok(response.resource_version().ok().and_then(|version| version.parse().ok()))
    }
}
