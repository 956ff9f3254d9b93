//! Sends one request to the API server with a timeout, counts it, and parses errors.
//!
//! The results of kube's typed calls are enough for most requests. They drop the headers of an error response, though,
//! including `Retry-After`, and their retries would delay an eviction that a PodDisruptionBudget blocks for minutes.
//! `exchange` is for callers that need the whole response.

use std::{future::Future, time::Duration};

use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body, core::Status};
use plimsoll_storage::WritePermit;
use serde::Deserialize;

use super::{
    stats::{WriteKind, WriteOutcome, WriteStats},
    write_context::{ErrorResponse, WriteError},
};

pub(crate) async fn read_with_timeout<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result.map_err(WriteError::from),
        Err(_) => Err(WriteError::NoResponse(format!("request timed out after {limit:?}"))),
    }
}

/// Sends a write with a timeout, and counts it.
pub(crate) async fn write_counted<T>(
    stats: &WriteStats,
    kind: WriteKind,
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    count_write(stats, kind, read_with_timeout(limit, request), |_| 200).await
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub code: StatusCode,
    /// From its header.
    pub retry_after: Option<Duration>,
    pub body: bytes::Bytes,
}

/// Sends a write under the permit with a timeout, counts it, and returns the complete response, whatever its status.
pub(crate) async fn exchange(
    client: &Client,
    permit: &dyn WritePermit,
    (stats, kind): (&WriteStats, WriteKind),
    limit: Duration,
    request: Request<Body>,
) -> Result<Reply, WriteError> {
    if permit.acquire().await.is_err() {
        stats.count(kind, WriteOutcome::NotLeader);
        return Err(WriteError::NotLeader);
    }
    let sent = read_with_timeout(limit, send(client, request));
    count_write(stats, kind, sent, |reply| reply.code.as_u16()).await
}

async fn count_write<T>(
    stats: &WriteStats,
    kind: WriteKind,
    request: impl Future<Output = Result<T, WriteError>>,
    code: impl FnOnce(&T) -> u16,
) -> Result<T, WriteError> {
    let result = request.await;
    let outcome = match &result {
        Ok(response) => WriteOutcome::Code(code(response)),
        Err(error) => error.code().map_or(WriteOutcome::NoResponse, WriteOutcome::Code),
    };
    stats.count(kind, outcome);
    result
}

async fn send(client: &Client, request: Request<Body>) -> kube::Result<Reply> {
    let response = client.send(request).await?;
    let code = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after =
        retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let body = response.into_body().collect().await?;
    Ok(Reply { code, retry_after, body: body.to_bytes() })
}

impl Reply {
    pub fn success(&self) -> Result<&bytes::Bytes, WriteError> {
        if self.code.is_success() {
            return Ok(&self.body);
        }
        let (code, details) = (self.code.as_u16(), self.status().and_then(|it| it.details));
        let response = ErrorResponse::new(code, self.message(), self.retry_after, details);
        Err(WriteError::from_response(response))
    }

    pub fn resource_version(&self) -> Result<Box<str>, WriteError> {
        // A VPA's whole object as a tree would cost more than the rest of the write.
        #[derive(Deserialize)]
        struct Stored {
            metadata: StoredMetadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StoredMetadata {
            resource_version: Box<str>,
        }
        let stored = serde_json::from_slice::<Stored>(self.success()?);
        let stored = stored
            .map_err(|why| WriteError::Malformed(format!("failed to parse response: {why}")))?;
        Ok(stored.metadata.resource_version)
    }

    /// The Status of an error response; `None` if it has none.
    fn status(&self) -> Option<Status> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The server's message, from a Status or from plain text.
    pub fn message(&self) -> String {
        let text = match self.status() {
            Some(status) if !status.message.is_empty() => status.message,
            _ => String::from_utf8_lossy(&self.body).into_owned(),
        };
        one_line(&text)
    }
}

/// A text without line breaks, truncated if it is long.
pub(super) fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}
