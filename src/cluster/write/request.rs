//! One request to the API server: its time limit, its place in the counts, and what its answer says.
//!
//! What kube's typed calls answer is enough for most. They throw the headers of a refusal away, though, and `Retry-After`
//! is one, and their retries would hold an eviction that a disruption budget refuses for minutes: [`exchange`] is for
//! those who need the whole answer.

use std::{future::Future, time::Duration};

use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body, core::Status};
use plimsoll_storage::WritePermit;
use tokio::time::Instant;

use super::stats::{WriteKind, WriteOutcome, WriteStats};

/// A request that did not do what it was for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The server said no.
    #[error("{code}: {why}")]
    Rejected {
        /// Its status code.
        code: u16,
        /// Its words.
        why: String,
    },
    /// There was no answer, or none that can be read.
    #[error("{0}")]
    NoResponse(String),
}

impl RequestError {
    /// The server's status code, if it said no.
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Rejected { code, .. } => Some(*code),
            Self::NoResponse(_) => None,
        }
    }

    /// Whether the same may work a moment later, by the rules of upstream's library.
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

/// Reads, and waits no longer than that.
pub(crate) async fn read_with_timeout<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(RequestError::from),
        Err(_) => Err(RequestError::NoResponse(format!("no answer within {limit:?}"))),
    }
}

/// Writes, counts it, and waits no longer than that.
pub(crate) async fn write_counted<T>(
    stats: &WriteStats,
    kind: WriteKind,
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    count_write(stats, kind, read_with_timeout(limit, request), |_| 200).await
}

/// The server's answer, read whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub code: StatusCode,
    pub retry_after: Option<Duration>,
    pub body: bytes::Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// It was not sent: this process may not write.
    NotLeader,
    /// It was, and nothing came back in time.
    NoResponse(String),
}

/// Writes under the permit, counts it, and waits no longer than that for the whole answer, whatever it is.
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
    reply.map_err(|failed| ExchangeError::NoResponse(failed.to_string()))
}

async fn count_write<T>(
    stats: &WriteStats,
    kind: WriteKind,
    request: impl Future<Output = Result<T, RequestError>>,
    code: impl FnOnce(&T) -> u16,
) -> Result<T, RequestError> {
    let sent = Instant::now();
    let answer = request.await;
    let outcome = match &answer {
        Ok(answer) => WriteOutcome::Code(code(answer)),
        Err(failed) => failed.code().map_or(WriteOutcome::NoResponse, WriteOutcome::Code),
    };
    stats.count(kind, outcome, sent.elapsed());
    answer
}

async fn send(client: &Client, request: Request<Body>) -> kube::Result<Reply> {
    let response = client.send(request).await?;
    let code = response.status();
    let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let header = header.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let body = response.into_body().collect().await?;
    let mut reply = Reply { code, retry_after: None, body: body.to_bytes() };
    if !code.is_success() {
        let detailed = || {
            let seconds = u64::from(reply.status()?.details?.retry_after_seconds);
            (seconds > 0).then_some(Duration::from_secs(seconds))
        };
        reply.retry_after = header.or_else(detailed);
    }
    Ok(reply)
}

impl Reply {
    /// What a refusal says about itself; `None` where it is no Status.
    fn status(&self) -> Option<Status> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether a refusal names a cause of this kind.
    pub fn has_status_cause(&self, kind: &str) -> bool {
        let details = self.status().and_then(|status| status.details);
        details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == kind))
    }

    /// The server's own words, whether it answers with a Status or with plain text.
    pub fn message(&self) -> String {
        let text = match self.status() {
            Some(status) if !status.message.is_empty() => status.message,
            _ => String::from_utf8_lossy(&self.body).into_owned(),
        };
        one_line(&text)
    }
}

/// A text without line breaks, cut where it gets long.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}
