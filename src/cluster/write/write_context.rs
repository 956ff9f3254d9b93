//! How a role that sets replicas writes: with its own name, under its permit, and to scales of workloads.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::{Client, client::Body};
use plimsoll_storage::WritePermit;
use serde_json::Value;

use crate::cluster::write::{
    request::{ExchangeError, exchange},
    stats::{WriteKind, WriteStats},
};

/// Long for a write of a few kilobytes; a server that hangs must not hold a worker for ever.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// With what it is written.
#[derive(Clone, Copy)]
pub struct WriteContext<'a> {
    /// To whom.
    pub client: &'a Client,
    /// The right to.
    pub permit: &'a dyn WritePermit,
    /// Where it is counted.
    pub stats: &'a WriteStats,
    /// Who writes, in `managedFields`.
    pub field_manager: &'static str,
}

impl std::fmt::Debug for WriteContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pen").finish_non_exhaustive()
    }
}

/// Why something is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It changed since it was read.
    #[error("it changed meanwhile: {0}")]
    Conflict(String),
    /// It is gone.
    #[error("it is gone")]
    NotFound,
    /// This process may not write.
    #[error("this process may not write")]
    NotLeader,
    /// There was no answer: it may have been done all the same.
    #[error("{0}")]
    NoResponse(String),
    /// The answer leaves open whether it was done.
    #[error("{0}")]
    Indeterminate(String),
    /// The server said no.
    #[error("{0}")]
    Rejected(String),
}

/// Whether an answer leaves open what became of the write: somebody on the way, or the server itself, did not wait for its
/// end.
fn is_indeterminate(code: StatusCode, message: &str) -> bool {
    match code {
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
            // One that a webhook did not let through was not done.
            ["etcdserver:", "timed out", "deadline exceeded"].iter().any(|it| message.contains(it))
                && !message.contains("webhook")
        }
        _ => false,
    }
}

impl WriteContext<'_> {
    /// Sends a request and tells by the answer what came of it.
    pub(super) async fn send(
        self,
        kind: WriteKind,
        request: Request<Body>,
    ) -> Result<bytes::Bytes, WriteError> {
        let sent =
            exchange(self.client, self.permit, (self.stats, kind), REQUEST_LIMIT, request).await;
        let reply = sent.map_err(|unsent| match unsent {
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
            // The server's own words, as upstream passes them on.
            _ => Err(WriteError::Rejected(reply.message())),
        }
    }

    /// Writes a scale back, with other replicas. `body` holds the version that it was read in. Answers the version that it
    /// is since, where that is a number.
    pub async fn update_scale(self, path: &str, body: &Value) -> Result<Option<u64>, WriteError> {
        let refused = |why: &dyn std::fmt::Display| WriteError::Rejected(why.to_string());
        let text = serde_json::to_vec(body).map_err(|why| refused(&why))?;
        let mut request = Request::put(format!("{path}?fieldManager={}", self.field_manager))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|why| refused(&why))?;
        request.extensions_mut().insert("replace_scale");
        let answer = self.send(WriteKind::Replicas, request).await?;
        let stored = serde_json::from_slice::<Value>(&answer).unwrap_or_default();
        Ok(stored["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()))
    }
}
