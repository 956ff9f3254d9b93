//! Sends one request and reads its response as a stream.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{
    Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{CompletedQuery, QueryLimits, QueryObserver};
use crate::prometheus::{
    decode::{DecodeError, IgnoreSeries, ResponseDecoder, ResponseSummary, SeriesVisitor},
    query_error::{QueryError, ResponseHead},
    transport::{Transport, compressed_body::TransferredBytes},
};
use plimsoll_core::types::Time;

pub(super) const SERIES_PATH: &str = "/api/v1/series";
/// Bytes to decode before checking whether the visitor is full.
const CHUNK_BYTES: usize = 64 << 10;
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
        decoder: fn() -> ResponseDecoder,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let mut failures = 0;
        loop {
            match self.exchange(path, form, decoder(), visitor).await {
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
        decoder: ResponseDecoder,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<(ResponseSummary, Duration), QueryError> {
        let mut parameters = form.to_vec();
        parameters.push(("timeout", seconds(self.limits.timeout)));
        let borrowed = &mut *visitor;
        let read = move |response| async move {
            Ok((self.read(path, response, decoder, borrowed).await?, ()))
        };
        let result = self.send(path, form, &parameters, read).await;
        if result.is_err() {
            visitor.discard();
        }
        result.map(|(summary, (), time)| (summary, time))
    }

    /// Fetches a JSON document from this path, for information about the server itself.
    pub async fn fetch(&self, path: &str, form: &[(&str, String)]) -> Result<Vec<u8>, QueryError> {
        let read = |mut response: Response| async move {
            let mut body = Vec::new();
            let transferred = response.extensions().get::<TransferredBytes>().cloned();
            let limit = self.limits.timeout;
            while let Some(piece) = chunk(&mut response, body.len() as u64, limit).await? {
                body.extend_from_slice(&piece);
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

    async fn read(
        &self,
        path: &str,
        mut response: Response,
        mut decoder: ResponseDecoder,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let limits = &self.limits;
        let transferred = response.extensions().get::<TransferredBytes>().cloned();
        let decode_error = |error| decode_failure(path, error);
        while let Some(piece) = chunk(&mut response, decoder.summary.bytes, limits.timeout).await? {
            for piece in piece.chunks(CHUNK_BYTES) {
                decoder.push(piece, visitor).map_err(decode_error)?;
                if visitor.is_full() {
                    return Err(QueryError::CollectorFull);
                }
            }
            let ResponseSummary { bytes, points, .. } = decoder.summary;
            if let Some(max) = limits.max_response_bytes.filter(|max| bytes > *max) {
                return Err(QueryError::TooLarge(format!(
                    "the response has more than {max} bytes"
                )));
            }
            if let Some(max) = limits.max_response_points.filter(|max| points > *max) {
                return Err(QueryError::TooLarge(format!(
                    "the response has more than {max} points"
                )));
            }
        }
        decoder.flush(visitor).map_err(decode_error)?;
        self.check_partial(decoder.summary.is_partial)?;
        let mut summary = decoder.finish(visitor).map_err(decode_error)?;
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

/// Classifies a decode error. The list of series is optional, so a malformed one is permanent: do not retry until
/// someone fixes the server.
fn decode_failure(path: &str, error: DecodeError) -> QueryError {
    match error {
        DecodeError::Malformed { .. } if path == SERIES_PATH => {
            QueryError::NotPrometheus(format!("failed to decode the response of {path}: {error}"))
        }
        error => error.into(),
    }
}

async fn chunk(
    response: &mut Response,
    read: u64,
    limit: Duration,
) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> + use<>>, QueryError> {
    response.chunk().await.map_err(|error| {
        if error.is_timeout() {
            return timeout_error(limit);
        }
        QueryError::Unavailable(DecodeError::Truncated { bytes: read }.to_string())
    })
}

/// Classifies an error response. If reading its body fails too, the status alone decides.
async fn failure(mut response: Response, envelope: &ResponseHead) -> QueryError {
    let mut pending_decoder = Some(ResponseDecoder::new());
    let mut error = None;
    let mut start = Vec::new();
    let mut size = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        size += piece.len();
        start.extend(piece.iter().take(4096_usize.saturating_sub(start.len())));
        pending_decoder = pending_decoder.filter(|_| size <= MAX_ERROR_BYTES);
        let Some(decoder) = pending_decoder.as_mut() else { break };
        if decoder.push(&piece, &mut IgnoreSeries).is_err() {
            pending_decoder = None;
        }
    }
    if let Some(Err(DecodeError::ReportedByServer { kind, message })) =
        pending_decoder.map(|pending_decoder| pending_decoder.finish(&mut IgnoreSeries))
    {
        error = Some((kind, message));
    }
    envelope.failure(error, &String::from_utf8_lossy(&start))
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
                .exchange("/api/v1/query", &[], ResponseDecoder::new(), &mut IgnoreSeries)
                .await;
            // The visitor wants no points, and only points that it gets count.
            let is_bytes = limits.max_response_bytes == Some(10_000);
            assert_eq!(is_bytes, matches!(result, Err(QueryError::TooLarge(_))), "{result:?}");
            let result = client
                .exchange("/api/v1/query", &[], ResponseDecoder::new(), &mut TakeAllPoints)
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
