//! The context of a write: client, permit, stats and field manager. Also writes scales of workloads.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::{Client, client::Body};
use plimsoll_storage::WritePermit;
use serde_json::Value;

use crate::cluster::write::{
    request::{ExchangeError, exchange},
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

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was read.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object is gone.
    #[error("object not found")]
    NotFound,
    /// This process may not write.
    #[error("this process may not write")]
    NotLeader,
    /// The request timed out or failed: it may have been applied.
    #[error("{0}")]
    NoResponse(String),
    /// The response does not tell whether the write was applied.
    #[error("{0}")]
    Indeterminate(String),
    /// The server rejected the write.
    #[error("{0}")]
    Rejected(String),
}

/// Whether a response does not tell whether the write was applied: a proxy or the server itself did not wait for its end.
fn is_indeterminate(code: StatusCode, message: &str) -> bool {
    match code {
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
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
    /// Sends a request, and maps the response to a result.
    pub(super) async fn send(
        self,
        kind: WriteKind,
        request: Request<Body>,
    ) -> Result<bytes::Bytes, WriteError> {
        let sent =
            exchange(self.client, self.permit, (self.stats, kind), REQUEST_LIMIT, request).await;
        let reply = sent.map_err(|error| match error {
            ExchangeError::NotLeader => WriteError::NotLeader,
            ExchangeError::NoResponse(why) => WriteError::NoResponse(why),
        })?;
        match reply.code {
            code if code.is_success() => Ok(reply.body),
            StatusCode::NOT_FOUND => Err(WriteError::NotFound),
            StatusCode::CONFLICT => Err(WriteError::Conflict(reply.message())),
            code if is_indeterminate(code, &reply.message()) => {
                Err(WriteError::Indeterminate(reply.message()))
            }
            // The server's own message, as upstream passes it on.
            _ => Err(WriteError::Rejected(reply.message())),
        }
    }

    /// Replaces a scale. `body` contains the resource version that it was read in. Returns the new resource version, if it
    /// is a number.
    pub async fn update_scale(self, path: &str, body: &Value) -> Result<Option<u64>, WriteError> {
        let rejected = |why: &dyn std::fmt::Display| WriteError::Rejected(why.to_string());
        let text = serde_json::to_vec(body).map_err(|why| rejected(&why))?;
        let mut request = Request::put(format!("{path}?fieldManager={}", self.field_manager))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|why| rejected(&why))?;
        request.extensions_mut().insert("replace_scale");
        let response = self.send(WriteKind::Replicas, request).await?;
        let stored = serde_json::from_slice::<Value>(&response).unwrap_or_default();
        Ok(stored["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()))
    }
}
