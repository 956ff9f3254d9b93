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
use tokio::time::Instant;

use super::stats::{WriteKind, WriteOutcome, WriteStats};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The server rejected the request.
    #[error("{code}: {why}")]
    Rejected {
        /// The HTTP status code.
        code: u16,
        /// The server's message.
        why: String,
    },
    /// There was no response, or it could not be parsed.
    #[error("{0}")]
    NoResponse(String),
}

impl RequestError {
    /// The HTTP status code, if the server rejected the request.
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Rejected { code, .. } => Some(*code),
            Self::NoResponse(_) => None,
        }
    }

    /// Whether a retry may succeed, by the rules of client-go.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected { code, .. } => matches!(code, 429 | 500 | 503 | 504),
            Self::NoResponse(_) => true,
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Rejected { code: status.code, why: status.message },
            error => Self::NoResponse(one_line(&error.to_string())),
        }
    }
}

/// Sends a read, with a timeout.
pub(crate) async fn read_with_timeout<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result.map_err(RequestError::from),
        Err(_) => Err(RequestError::NoResponse(format!("request timed out after {limit:?}"))),
    }
}

/// Sends a write with a timeout, and counts it.
pub(crate) async fn write_counted<T>(
    stats: &WriteStats,
    kind: WriteKind,
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    count_write(stats, kind, read_with_timeout(limit, request), |_| 200).await
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub code: StatusCode,
    pub retry_after: Option<Duration>,
    pub body: bytes::Bytes,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// Not sent: this process may not write.
    NotLeader,
    /// Sent, but it failed or timed out.
    NoResponse(String),
}

/// Sends a write under the permit with a timeout, counts it, and returns the complete response, whatever its status.
pub(crate) async fn exchange(
    client: &Client,
    permit: &dyn WritePermit,
    (stats, kind): (&WriteStats, WriteKind),
    limit: Duration,
    request: Request<Body>,
) -> Result<Reply, ExchangeError> {
    if permit.acquire().await.is_err() {
        stats.count(kind, WriteOutcome::NotLeader, Duration::ZERO);
        return Err(ExchangeError::NotLeader);
    }
    let sent = read_with_timeout(limit, send(client, request));
    let reply = count_write(stats, kind, sent, |reply| reply.code.as_u16()).await;
    reply.map_err(|error| ExchangeError::NoResponse(error.to_string()))
}

async fn count_write<T>(
    stats: &WriteStats,
    kind: WriteKind,
    request: impl Future<Output = Result<T, RequestError>>,
    code: impl FnOnce(&T) -> u16,
) -> Result<T, RequestError> {
    let sent = Instant::now();
    let result = request.await;
    let outcome = match &result {
        Ok(response) => WriteOutcome::Code(code(response)),
        Err(error) => error.code().map_or(WriteOutcome::NoResponse, WriteOutcome::Code),
    };
    stats.count(kind, outcome, sent.elapsed());
    result
}

async fn send(client: &Client, request: Request<Body>) -> kube::Result<Reply> {
    let response = client.send(request).await?;
    let code = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after =
        retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let body = response.into_body().collect().await?;
    let mut reply = Reply { code, retry_after: None, body: body.to_bytes() };
    if !code.is_success() {
        let from_details = || {
            let seconds = u64::from(reply.status()?.details?.retry_after_seconds);
            (seconds > 0).then_some(Duration::from_secs(seconds))
        };
        reply.retry_after = retry_after.or_else(from_details);
    }
    Ok(reply)
}

impl Reply {
    /// The Status of an error response; `None` if it has none.
    fn status(&self) -> Option<Status> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether an error response has a cause of this kind.
    pub fn has_status_cause(&self, kind: &str) -> bool {
        let details = self.status().and_then(|status| status.details);
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == kind))
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
fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}
