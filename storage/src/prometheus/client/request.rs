//! Sends one request and reads its response as a stream.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{
    Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{CompletedQuery, QueryLimits, QueryObserver};
use crate::prometheus::{
    decode::{
        DecodeError, IgnoreSeries, ResponseKind, ResponseSummary, SeriesVisitor, decode_response,
    },
    query_error::{QueryError, ResponseHead},
    transport::{Transport, compressed_body::TransferredBytes},
};
use plimsoll_core::types::Time;

/// Bytes to read of an error response: enough for the errors of Prometheus, which repeat the query.
const MAX_ERROR_BYTES: usize = 256 << 10;
/// Size limit of a document. Flags and build information take some KB, label values of a large server some MB.
const MAX_DOCUMENT_BYTES: usize = 32 << 20;

/// Sends requests under the limits of a client. Clones share its permits.
#[derive(Clone, Debug)]
pub(super) struct RequestSender {
    transport: Arc<dyn Transport>,
    pub limits: QueryLimits,
    permits: Arc<Semaphore>,
    pub rejects_partial: bool,
    pub observer: Option<Arc<dyn QueryObserver>>,
}

impl RequestSender {
    pub fn new(transport: Arc<dyn Transport>, limits: QueryLimits) -> Self {
        let permits = new_permits(limits.max_in_flight);
        Self { transport, limits, permits, rejects_partial: false, observer: None }
    }

    pub fn with_separate_permits(&self, max_in_flight: usize) -> Self {
        let limits = QueryLimits { max_in_flight, ..self.limits };
        Self { limits, permits: new_permits(max_in_flight), ..self.clone() }
    }

    /// Sends a query, and retries while the server is busy or unavailable, up to the maximum number of attempts.
    pub async fn query_with_retries(
        &self,
        path: &str,
        form: &[(&str, String)],
        kind: ResponseKind,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let mut failures = 0;
        loop {
            match self.exchange(path, form, kind, visitor).await {
                Ok((summary, _)) => return Ok(summary),
                Err(failure) => self.wait_for_retry(&mut failures, failure).await?,
            }
        }
    }

    /// Counts a failure and waits before the next attempt. Returns the failure if there is no next one.
    pub async fn wait_for_retry(
        &self,
        failures: &mut u32,
        failure: QueryError,
    ) -> Result<(), QueryError> {
        *failures += 1;
        if !failure.is_transient() || *failures >= self.limits.max_attempts {
            return Err(failure);
        }
        let wait = pause(&self.limits, *failures, &failure);
        tracing::debug!(%failure, ?wait, "retrying query");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Sends a query once. On failure the visitor discards the partial response.
    pub async fn exchange(
        &self,
        path: &str,
        form: &[(&str, String)],
        kind: ResponseKind,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<(ResponseSummary, Duration), QueryError> {
        let mut parameters = form.to_vec();
        parameters.push(("timeout", seconds(self.limits.timeout)));
        let borrowed = &mut *visitor;
        let read = move |response| async move {
            Ok((self.read(path, response, kind, borrowed).await?, ()))
        };
        let result = self.send(path, form, &parameters, read).await;
        if result.is_err() {
            visitor.discard();
        }
        result.map(|(summary, (), time)| (summary, time))
    }

    /// Fetches a JSON document from this path, for information about the server itself.
    pub async fn fetch(&self, path: &str, form: &[(&str, String)]) -> Result<Vec<u8>, QueryError> {
        let read = |response: Response| async move {
            let mut body = Vec::new();
            let transferred = response.extensions().get::<TransferredBytes>().cloned();
            let mut pieces = pieces(response, self.limits.timeout);
            while let Some(piece) = pieces.next().await {
                body.extend_from_slice(&piece?);
                if body.len() > MAX_DOCUMENT_BYTES {
                    return Err(QueryError::TooLarge(format!(
                        "the response of {path} has more than {MAX_DOCUMENT_BYTES} bytes"
                    )));
                }
            }
            let bytes = body.len() as u64;
            let transferred_bytes = transferred.map_or(bytes, |bytes| bytes.get());
            Ok((ResponseSummary { bytes, transferred_bytes, ..ResponseSummary::default() }, body))
        };
        self.send(path, form, form, read).await.map(|(_, body, _)| body)
    }

    /// Sends a request once, under a permit and within the timeout, and reads the response if it is not an error. `form` is
    /// shown to the observer.
    async fn send<T, F: Future<Output = Result<(ResponseSummary, T), QueryError>>>(
        &self,
        path: &str,
        form: &[(&str, String)],
        parameters: &[(&str, String)],
        read: impl FnOnce(Response) -> F,
    ) -> Result<(ResponseSummary, T, Duration), QueryError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let start = Instant::now();
        let limit = self.limits.timeout;
        let mut status = None;
        let request = timeout(limit, async {
            let response = self.transport.send(path, parameters, limit).await?;
            status = Some(response.status().as_u16());
            let envelope = envelope(&response);
            if envelope.is_answer() {
                read(response).await
            } else {
                Err(failure(response, &envelope).await)
            }
        });
        let result = request.await.unwrap_or_else(|_| Err(timeout_error(limit)));
        let duration = start.elapsed();
        if let Some(observer) = &self.observer {
            let outcome = result.as_ref().map(|(summary, _)| summary);
            observer.on_query(&CompletedQuery {
                path,
                parameters: form,
                status,
                duration,
                outcome,
            });
        }
        result.map(|(summary, read)| (summary, read, duration))
    }

    async fn read<V: SeriesVisitor>(
        &self,
        path: &str,
        response: Response,
        kind: ResponseKind,
        visitor: &mut V,
    ) -> Result<ResponseSummary, QueryError> {
        let limits = &self.limits;
        let transferred = response.extensions().get::<TransferredBytes>().cloned();
        let pieces = pieces(response, limits.timeout).map(|piece| Ok(piece?));
        let check = |summary: &ResponseSummary, visitor: &V| {
            let exceeds = |count: u64, max: Option<u64>, unit| match max {
                Some(max) if count > max => {
                    let why = format!("the response has more than {max} {unit}");
                    Err(QueryError::TooLarge(why))
                }
                _ => Ok(()),
            };
            exceeds(summary.bytes, limits.max_response_bytes, "bytes")?;
            exceeds(summary.points, limits.max_response_points, "points")?;
            if visitor.is_full() {
                return Err(QueryError::CollectorFull.into());
            }
            Ok(self.check_partial(summary.is_partial)?)
        };
        let mut summary = match decode_response(pieces, kind, visitor, check).await {
            Ok(summary) => summary,
            Err(ReadError::Query(failure)) => return Err(failure),
            // The list of series is optional, so a malformed one is permanent: do not retry until someone fixes the server.
            Err(ReadError::Decode(error @ DecodeError::Malformed { .. }))
                if kind == ResponseKind::SeriesList =>
            {
                let why = format!("failed to decode the response of {path}: {error}");
                return Err(QueryError::NotPrometheus(why));
            }
            Err(ReadError::Decode(error)) => return Err(error.into()),
        };
        summary.transferred_bytes = transferred.map_or(summary.bytes, |bytes| bytes.get());
        Ok(summary)
    }

    /// Fails if the response is partial and this client rejects partial responses.
    pub fn check_partial(&self, is_partial: bool) -> Result<(), QueryError> {
        if !(is_partial && self.rejects_partial) {
            return Ok(());
        }
        let why = "the response is partial because part of the server is unavailable";
        Err(QueryError::Unavailable(why.to_owned()))
    }
}

fn new_permits(max_in_flight: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(max_in_flight.clamp(1, Semaphore::MAX_PERMITS)))
}

/// The delay after this many consecutive failures: exponential, with up to 50% jitter, and at least the server's
/// `Retry-After`.
fn pause(limits: &QueryLimits, failures: u32, failure: &QueryError) -> Duration {
    let QueryLimits { initial_backoff, max_backoff, .. } = *limits;
    let doubled = initial_backoff.saturating_mul(1 << failures.saturating_sub(1).min(20));
    // Every RandomState has its own keys, so many clients do not retry in lockstep.
    let jitter = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    let wait = doubled.min(max_backoff).mul_f64(0.5 + jitter / 2.0);
    match failure {
        QueryError::Busy { retry_after: Some(retry_after), .. } => {
            wait.max(*retry_after).min(max_backoff)
        }
        _ => wait,
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum ReadError {
    Query(#[from] QueryError),
    Decode(#[from] DecodeError),
}

/// The body of a response as it arrives.
fn pieces(response: Response, limit: Duration) -> BoxStream<'static, Result<Bytes, QueryError>> {
    let mut read = 0;
    let pieces = response.bytes_stream().map(move |piece| match piece {
        Ok(piece) => {
            read += piece.len() as u64;
            Ok(piece)
        }
        Err(error) if error.is_timeout() => Err(timeout_error(limit)),
        Err(_) => Err(QueryError::Unavailable(DecodeError::Truncated { bytes: read }.to_string())),
    });
    pieces.boxed()
}

/// Classifies an error response. If reading its body fails too, the status alone decides.
async fn failure(mut response: Response, envelope: &ResponseHead) -> QueryError {
    let mut body = Vec::new();
    while body.len() <= MAX_ERROR_BYTES
        && let Ok(Some(piece)) = response.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    let start = String::from_utf8_lossy(&body[..body.len().min(4096)]).into_owned();
    body.truncate(MAX_ERROR_BYTES);
    let pieces = stream::iter([Ok(Bytes::from(body))]);
    let (kind, visitor) = (ResponseKind::QueryResult, &mut IgnoreSeries);
    let error = match decode_response(pieces, kind, visitor, |_, _| Ok(())).await {
        Err(DecodeError::ReportedByServer { kind, message }) => Some((kind, message)),
        _ => None,
    };
    envelope.failure(error, &start)
}

fn envelope(response: &Response) -> ResponseHead {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    ResponseHead {
        status: response.status(),
        content_type: text(CONTENT_TYPE).map(str::to_owned),
        // The other form is a date, which needs a wall clock. Use our own backoff then.
        retry_after: text(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs),
    }
}

fn timeout_error(limit: Duration) -> QueryError {
    QueryError::Timeout(format!(
        "no complete response within {limit:?}: query less at once, or raise the timeout"
    ))
}

/// A duration in seconds, to the millisecond.
pub(super) fn seconds(duration: Duration) -> String {
    let millis = duration.as_millis().max(1);
    decimal(i128::try_from(millis).unwrap_or(i128::MAX))
}

/// A time in seconds, to the millisecond, which is the resolution of Prometheus.
pub(super) fn time(time: Time) -> String {
    decimal(i128::from(time.as_nanos().div_euclid(1_000_000)))
}

fn decimal(millis: i128) -> String {
    let (sign, size) = (if millis < 0 { "-" } else { "" }, millis.unsigned_abs());
    match size % 1000 {
        0 => format!("{sign}{}", size / 1000),
        rest => format!("{sign}{}.{rest:03}", size / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::decode::{Interest, Labels};

    /// A server whose response never ends.
    #[derive(Debug)]
    struct Endless;

    #[async_trait::async_trait]
    impl crate::prometheus::transport::Transport for Endless {
        async fn send(
            &self,
            _: &str,
            _: &[(&str, String)],
            _: Duration,
        ) -> Result<Response, crate::prometheus::transport::TransportError> {
            let series = r#"{"metric":{"pod":"web-0"},"values":[[1000,"1"],[1060,"1"]]},"#;
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}"#,
                series.repeat(1000)
            );
            Ok(http::Response::new(body).into())
        }
    }

    #[tokio::test]
    async fn every_response_has_size_limits() {
        let defaults = QueryLimits::default();
        assert!(defaults.max_response_bytes.is_some() && defaults.max_response_points.is_some());
        for limits in [
            QueryLimits { max_response_bytes: Some(10_000), ..defaults },
            QueryLimits { max_response_points: Some(100), ..defaults },
        ] {
            let client = RequestSender::new(Arc::new(Endless), limits);
            let result = client
                .exchange("/api/v1/query", &[], ResponseKind::QueryResult, &mut IgnoreSeries)
                .await;
            // The visitor wants no points, and only points that it gets count.
            let is_bytes = limits.max_response_bytes == Some(10_000);
            assert_eq!(is_bytes, matches!(result, Err(QueryError::TooLarge(_))), "{result:?}");
            let result = client
                .exchange("/api/v1/query", &[], ResponseKind::QueryResult, &mut TakeAllPoints)
                .await;
            assert!(matches!(result, Err(QueryError::TooLarge(_))), "{result:?}");
        }
    }

    /// Takes every point and keeps none.
    struct TakeAllPoints;

    impl SeriesVisitor for TakeAllPoints {
        fn begin(&mut self, _: Labels<'_>) -> Interest {
            Interest::Points
        }

        fn point(&mut self, _: Time, _: f64) {}
    }

    #[test]
    fn pauses_grow_to_their_maximum_and_honor_retry_after() {
        let second = Duration::from_secs(1);
        let limits = QueryLimits {
            initial_backoff: second,
            max_backoff: 30 * second,
            ..QueryLimits::default()
        };
        let failed = QueryError::Unavailable(String::new());
        for (failures, full) in [(1, 1), (2, 2), (4, 8), (9, 30), (u32::MAX, 30)] {
            let wait = pause(&limits, failures, &failed);
            assert!(full * second / 2 <= wait && wait <= full * second, "{failures}: {wait:?}");
        }
        for (seconds, wait) in [(5, 5), (3600, 30)] {
            let retry_after = Some(seconds * second);
            let busy = QueryError::Busy { why: String::new(), retry_after };
            assert_eq!(pause(&limits, 1, &busy), wait * second);
        }
    }

    #[test]
    fn times_are_sent_in_milliseconds() {
        for (millis, text) in [(0, "0"), (1500, "1.500"), (1_700_000_000_007, "1700000000.007")] {
            assert_eq!(time(Time::from_nanos(millis * 1_000_000)), text);
        }
        assert_eq!(time(Time::from_nanos(-1)), "-0.001");
        assert_eq!(seconds(Duration::from_millis(2500)), "2.500");
    }
}
