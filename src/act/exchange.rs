//! One request to the API server and its answer: the code, the server's own words, and how long it wants to be left alone.
//!
//! kube's own calls throw the headers of a refusal away, and `Retry-After` is one; its retries would hold an eviction that a
//! disruption budget refuses for minutes.

use std::time::Duration;

use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body, core::Status};

/// The server's answer, read whole.
#[derive(Debug)]
pub(super) struct Reply {
    pub code: StatusCode,
    pub retry_after: Option<Duration>,
    pub body: bytes::Bytes,
}

// === impl Reply ===

impl Reply {
    /// What a refusal says about itself; `None` where it is no Status.
    pub fn status(&self) -> Option<Status> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether a refusal names a cause of this kind.
    pub fn has_cause(&self, kind: &str) -> bool {
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

/// Sends one request and waits so long for the whole answer.
pub(super) async fn send(
    client: &Client,
    request: Request<Body>,
    limit: Duration,
) -> Result<Reply, String> {
    match tokio::time::timeout(limit, send_once(client, request)).await {
        Ok(reply) => reply,
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

async fn send_once(client: &Client, request: Request<Body>) -> Result<Reply, String> {
    let response = client.send(request).await.map_err(|why| one_line(&why.to_string()))?;
    let code = response.status();
    let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let header = header.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let body = response.into_body().collect().await.map_err(|why| one_line(&why.to_string()))?;
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

/// A text without line breaks, cut where it gets long.
pub(super) fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}
