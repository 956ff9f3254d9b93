//! One question and its answer, read as it arrives.

use std::time::{Duration, Instant};

use reqwest::{
    Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use tokio::time::timeout;

use super::{CompletedQuery, PrometheusClient, QueryStats, backoff, series};
use crate::prometheus::{
    decode::{DecodeError, IgnoreSeries, ResponseDecoder, ResponseSummary, SeriesVisitor},
    query_error::{QueryError, ResponseHead},
};
use plimsoll_core::types::Time;

/// How much of an answer is taken before whoever takes it is asked whether it is too much.
const CHUNK_BYTES: usize = 64 << 10;
/// What is read of something that is no answer: enough for Prometheus' own errors, which repeat the query.
const MOST_OF_ERROR: usize = 256 << 10;

impl PrometheusClient {
    /// Asks, and asks again when the server is busy or away, until the attempts are used up.
    pub(super) async fn query_with_retries<S: SeriesVisitor + ?Sized>(
        &self,
        path: &str,
        form: &[(&str, String)],
        reader: fn() -> ResponseDecoder,
        visitor: &mut S,
    ) -> Result<(ResponseSummary, QueryStats), QueryError> {
        let mut tally = QueryStats::default();
        let mut failures = 0;
        loop {
            let failure = match self.exchange(path, form, reader(), visitor).await {
                Ok((summary, time)) => {
                    tally.add(summary.clone(), time);
                    return Ok((summary, tally));
                }
                Err(failure) => failure,
            };
            failures += 1;
            if !failure.is_transient() || failures >= self.limits.max_attempts {
                return Err(failure);
            }
            tally.retries += 1;
            let wait = backoff::pause(&self.limits, failures, &failure);
            tracing::debug!(%failure, ?wait, "a question is asked again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks once. On failure the visitor has discarded what came.
    pub(super) async fn exchange<S: SeriesVisitor + ?Sized>(
        &self,
        path: &str,
        form: &[(&str, String)],
        reader: ResponseDecoder,
        visitor: &mut S,
    ) -> Result<(ResponseSummary, Duration), QueryError> {
        // It is never closed.
        let _permit = self.permits.acquire().await;
        let start = Instant::now();
        let limit = self.limits.timeout;
        let mut sent = form.to_vec();
        sent.push(("timeout", seconds(limit)));
        let mut status = None;
        let asked = timeout(limit, async {
            let response = self.transport.send(path, &sent, limit).await?;
            status = Some(response.status().as_u16());
            let envelope = envelope(&response);
            if envelope.is_answer() {
                self.read(path, response, reader, visitor).await
            } else {
                Err(failure(response, &envelope).await)
            }
        });
        let answered = asked.await.unwrap_or_else(|_| Err(timeout_error(limit)));
        let time = start.elapsed();
        self.notify_observer(&CompletedQuery {
            path,
            parameters: form,
            status,
            duration: time,
            outcome: answered.as_ref(),
        });
        match answered {
            Ok(summary) => Ok((summary, time)),
            Err(failure) => {
                visitor.discard();
                Err(failure)
            }
        }
    }

    /// A document of JSON from this path, for what is asked about the server itself.
    pub(super) async fn fetch(
        &self,
        path: &str,
        form: &[(&str, String)],
        most: usize,
    ) -> Result<Vec<u8>, QueryError> {
        let _permit = self.permits.acquire().await;
        let start = Instant::now();
        let limit = self.limits.timeout;
        let mut status = None;
        let asked = timeout(limit, async {
            let mut response = self.transport.send(path, form, limit).await?;
            status = Some(response.status().as_u16());
            let envelope = envelope(&response);
            if !envelope.is_answer() {
                return Err(failure(response, &envelope).await);
            }
            let mut body = Vec::new();
            while let Some(piece) = chunk(&mut response, body.len() as u64, limit).await? {
                body.extend_from_slice(&piece);
                if body.len() > most {
                    return Err(QueryError::TooLarge(format!(
                        "{path} answers more than {most} bytes"
                    )));
                }
            }
            Ok(body)
        });
        let answered = asked.await.unwrap_or_else(|_| Err(timeout_error(limit)));
        let size = |body: &Vec<u8>| ResponseSummary {
            bytes: body.len() as u64,
            ..ResponseSummary::default()
        };
        let summary = answered.as_ref().map(size);
        let outcome = summary.as_ref().map_err(|failure| *failure);
        self.notify_observer(&CompletedQuery {
            path,
            parameters: form,
            status,
            duration: start.elapsed(),
            outcome,
        });
        answered
    }

    async fn read<S: SeriesVisitor + ?Sized>(
        &self,
        path: &str,
        mut response: Response,
        mut reader: ResponseDecoder,
        visitor: &mut S,
    ) -> Result<ResponseSummary, QueryError> {
        let limits = &self.limits;
        let unread = |error| decode_failure(path, error);
        while let Some(piece) = chunk(&mut response, reader.summary().bytes, limits.timeout).await?
        {
            for piece in piece.chunks(CHUNK_BYTES) {
                reader.push(piece, visitor).map_err(unread)?;
                if visitor.is_full() {
                    return Err(QueryError::CollectorFull);
                }
            }
            let ResponseSummary { bytes, points, .. } = reader.summary();
            if let Some(most) = limits.max_response_bytes.filter(|most| bytes > most) {
                return Err(QueryError::TooLarge(format!("the answer has more than {most} bytes")));
            }
            if let Some(most) = limits.max_response_points.filter(|most| points > most) {
                return Err(QueryError::TooLarge(format!(
                    "the answer has more than {most} points"
                )));
            }
        }
        reader.flush(visitor).map_err(unread)?;
        self.check_partial(reader.summary().is_partial)?;
        reader.finish(visitor).map_err(unread)
    }

    /// Whether an answer may be taken that is partial or is not.
    pub(super) fn check_partial(&self, is_partial: bool) -> Result<(), QueryError> {
        if !(is_partial && self.rejects_partial) {
            return Ok(());
        }
        let why = "the server's answer is partial, because a part of the server is away";
        Err(QueryError::Unavailable(why.to_owned()))
    }

    fn notify_observer(&self, asked: &CompletedQuery<'_>) {
        if let Some(watch) = &self.watch {
            watch.on_query(asked);
        }
    }
}

/// Why an answer could not be read. What is asked beside the numbers is not needed so much that it is waited for until
/// somebody mends what answers it wrongly.
fn decode_failure(path: &str, error: DecodeError) -> QueryError {
    match error {
        DecodeError::Malformed { .. } if path == series::PATH => {
            QueryError::NotPrometheus(format!("the answer of {path} cannot be read: {error}"))
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

/// Why this is no answer. Whatever goes wrong while that is found out matters less than its status.
async fn failure(mut response: Response, envelope: &ResponseHead) -> QueryError {
    let mut reader = Some(ResponseDecoder::new());
    let mut error = None;
    let mut begins = Vec::new();
    let mut size = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        size += piece.len();
        begins.extend(piece.iter().take(4096_usize.saturating_sub(begins.len())));
        reader = reader.filter(|_| size <= MOST_OF_ERROR);
        let Some(unread) = reader.as_mut() else { break };
        if unread.push(&piece, &mut IgnoreSeries).is_err() {
            reader = None;
        }
    }
    if let Some(Err(DecodeError::ReportedByServer { kind, message })) =
        reader.map(|reader| reader.finish(&mut IgnoreSeries))
    {
        error = Some((kind, message));
    }
    envelope.failure(error, &String::from_utf8_lossy(&begins))
}

fn envelope(response: &Response) -> ResponseHead {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    ResponseHead {
        status: response.status(),
        content_type: text(CONTENT_TYPE).map(str::to_owned),
        // The other form, a date, needs a wall clock: without one the own pause does.
        retry_after: text(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs),
    }
}

fn timeout_error(limit: Duration) -> QueryError {
    QueryError::Timeout(format!(
        "no whole answer within {limit:?}: ask for less at once, or give it more time"
    ))
}

/// A duration in seconds, to the millisecond.
pub(super) fn seconds(duration: Duration) -> String {
    let millis = duration.as_millis().max(1);
    decimal(i128::try_from(millis).unwrap_or(i128::MAX))
}

/// A time in seconds, to the millisecond, which is what Prometheus knows.
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

    /// A server that never ends.
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
    async fn no_answer_is_read_without_end() {
        let all = super::super::QueryLimits::default();
        assert!(all.max_response_bytes.is_some() && all.max_response_points.is_some());
        for limits in [
            super::super::QueryLimits { max_response_bytes: Some(10_000), ..all },
            super::super::QueryLimits { max_response_points: Some(100), ..all },
        ] {
            let client = PrometheusClient::new(std::sync::Arc::new(Endless), limits);
            let read = client
                .exchange("/api/v1/query", &[], ResponseDecoder::new(), &mut IgnoreSeries)
                .await;
            // Nobody wants the points, and those count that are handed out.
            let is_bytes = limits.max_response_bytes == Some(10_000);
            assert_eq!(is_bytes, matches!(read, Err(QueryError::TooLarge(_))), "{read:?}");
            let read =
                client.exchange("/api/v1/query", &[], ResponseDecoder::new(), &mut Wanting).await;
            assert!(matches!(read, Err(QueryError::TooLarge(_))), "{read:?}");
        }
    }

    /// Wants every point, and keeps none.
    struct Wanting;

    impl SeriesVisitor for Wanting {
        fn begin(&mut self, _: Labels<'_>) -> Interest {
            Interest::Points
        }

        fn point(&mut self, _: Time, _: f64) {}
    }

    #[test]
    fn times_are_sent_to_the_millisecond() {
        for (millis, text) in [(0, "0"), (1500, "1.500"), (1_700_000_000_007, "1700000000.007")] {
            assert_eq!(time(Time::from_nanos(millis * 1_000_000)), text);
        }
        assert_eq!(time(Time::from_nanos(-1)), "-0.001");
        assert_eq!(seconds(Duration::from_millis(2500)), "2.500");
    }
}
