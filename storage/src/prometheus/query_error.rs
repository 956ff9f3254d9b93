//! Query failures, classified by their remedy.

use std::time::Duration;

use reqwest::StatusCode;

use super::{
    decode::DecodeError,
    transport::{TransportError, TransportErrorKind},
};
use crate::error_text::one_line;

/// Why a query failed. Every message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The query exceeds a limit of the server or our own budget. Half as much may work.
    #[error("query too large: {0}: query a shorter range or fewer series")]
    TooLarge(String),
    /// The result exceeds what the visitor may hold in memory.
    #[error("result exceeds the memory budget: query a shorter range or fewer series")]
    CollectorFull,
    /// The server is overloaded (429, 503).
    #[error("the server is too busy: {why}")]
    Busy {
        why: String,
        /// The delay that the server asks for.
        retry_after: Option<Duration>,
    },
    #[error("{0}")]
    Timeout(String),
    /// The server cannot be reached or failed, or the response was truncated.
    #[error("{0}")]
    Unavailable(String),
    /// Access was denied, or the request could not be sent: a setting, a secret or a permission has to change.
    #[error("{0}")]
    AccessDenied(String),
    /// The response is not from Prometheus, but from another server or a proxy in front of it.
    #[error("{0}")]
    NotPrometheus(String),
    #[error("the server rejected the query: {0}")]
    BadQuery(String),
}

impl QueryError {
    /// All values of [`QueryError::reason`].
    pub const REASONS: [&str; 7] =
        ["too_large", "busy", "timeout", "unavailable", "refused", "not_prometheus", "bad_query"];

    /// Whether a retry of the same query may succeed without intervention.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Timeout(_) | Self::Unavailable(_))
    }

    /// Whether only this query is affected, so that others may succeed.
    pub fn is_query_specific(&self) -> bool {
        matches!(self, Self::TooLarge(_) | Self::CollectorFull | Self::BadQuery(_))
    }

    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge(_) | Self::CollectorFull => "too_large",
            Self::Busy { .. } => "busy",
            Self::Timeout(_) => "timeout",
            Self::Unavailable(_) => "unavailable",
            Self::AccessDenied(_) => "refused",
            Self::NotPrometheus(_) => "not_prometheus",
            Self::BadQuery(_) => "bad_query",
        }
    }
}

impl From<TransportError> for QueryError {
    fn from(error: TransportError) -> Self {
        let line = error.to_string();
        match error.kind {
            TransportErrorKind::TimedOut => Self::Timeout(line),
            TransportErrorKind::Redirected => Self::NotPrometheus(line),
            _ if error.is_transient() => Self::Unavailable(line),
            _ => Self::AccessDenied(line),
        }
    }
}

impl From<DecodeError> for QueryError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Malformed { at: 0, .. } => Self::NotPrometheus(format!(
                "the response is not from Prometheus: {error}: check the address and any proxy in front of it"
            )),
            DecodeError::ReportedByServer { kind, message } => {
                reported(None, &kind, &message, None)
            }
            error => Self::Unavailable(error.to_string()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

impl ResponseHead {
    /// Whether the body is a query result.
    pub(super) fn is_answer(&self) -> bool {
        // Some proxies drop the header. The body decides then.
        self.status.is_success() && self.content_type.as_deref().is_none_or(is_json)
    }

    /// Classifies an error response by its status and the start of its body.
    pub(super) fn failure(&self, error: Option<(String, String)>, body: &str) -> QueryError {
        let Self { status, content_type, retry_after } = self;
        if let Some((kind, message)) = error {
            return reported(Some(*status), &kind, &message, *retry_after);
        }
        let kind = content_type.as_deref().unwrap_or("no content type");
        let description = match title(body) {
            Some(title) => format!("{status}, {kind}, titled {title:?}"),
            None if body.trim().is_empty() => format!("{status}, {kind}, empty body"),
            None => {
                let start: String = body.chars().take(80).collect();
                format!("{status}, {kind}, starting with {:?}", one_line(&start))
            }
        };
        match status.as_u16() {
            401 | 403 | 407 => QueryError::AccessDenied(format!(
                "the server denied access ({description}): check the credentials and their permissions"
            )),
            429 | 503 => QueryError::Busy { why: description, retry_after: *retry_after },
            408 | 499 | 504 => QueryError::Timeout(format!("no response in time ({description})")),
            413 => QueryError::TooLarge(description),
            400 | 422 if is_size(body) => QueryError::TooLarge(description),
            400 | 422 => QueryError::BadQuery(description),
            500.. => QueryError::Unavailable(format!("the server failed ({description})")),
            _ => QueryError::NotPrometheus(format!(
                "the response is not from Prometheus ({description}): check the address and any proxy in front of it"
            )),
        }
    }
}

/// Classifies an error that the server reports in the Prometheus format.
fn reported(
    status: Option<StatusCode>,
    kind: &str,
    message: &str,
    retry_after: Option<Duration>,
) -> QueryError {
    let line = match (kind, one_line(message)) {
        ("", line) => line,
        (kind, line) => format!("{}: {line}", one_line(kind)),
    };
    let status = status.map_or(0, |status| status.as_u16());
    match (status, kind) {
        (401 | 403, _) => QueryError::AccessDenied(format!(
            "the server denied access ({status} {line}): check the credentials and their permissions"
        )),
        (429, _) | (_, "too_many_requests") => QueryError::Busy { why: line, retry_after },
        _ if is_size(message) => QueryError::TooLarge(line),
        (408 | 499 | 504, _) | (_, "timeout" | "canceled") => QueryError::Timeout(format!(
            "the query timed out on the server ({line}): query less at once"
        )),
        (503, _) | (_, "unavailable") => QueryError::Busy { why: line, retry_after },
        (400 | 404 | 422, _) | (_, "bad_data" | "execution" | "not_found" | "422") => {
            QueryError::BadQuery(line)
        }
        _ => QueryError::Unavailable(format!("the server failed ({line})")),
    }
}

/// Whether an error message is about the size of a query. Prometheus says "too many samples" and "exceeded maximum
/// resolution of 11,000 points", Mimir and Thanos "exceeded limit", VictoriaMetrics "cannot select more than".
fn is_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let about = |word: &&str| message.contains(*word);
    // A parse error repeats the query, which may contain any of these words.
    !message.contains("parse error")
        && [
            "too many",
            "too large",
            "exceed",
            "maximum resolution",
            "cannot select more than",
            "larger than",
            "limit reached",
            "err-mimir-max-",
        ]
        .iter()
        .any(about)
}

fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.ends_with("/json") || media.ends_with("+json")
}

/// The title of an HTML page, which identifies login pages and error pages.
fn title(body: &str) -> Option<String> {
    let lower = body.to_ascii_lowercase();
    let tag = lower.find("<title")?;
    let start = tag + lower[tag..].find('>')? + 1;
    let end = start + lower[start..].find('<')?;
    Some(one_line(body.get(start..end)?)).filter(|title| !title.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(status: u16, content_type: &str) -> ResponseHead {
        let status = StatusCode::from_u16(status).expect("a status");
        ResponseHead { status, content_type: Some(content_type.to_owned()), retry_after: None }
    }

    #[test]
    fn errors_are_classified_by_their_remedy() {
        let too_many =
            "query processing would load too many samples into memory in query execution";
        let points = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution";
        let mimir = "the query exceeded the maximum number of chunks (limit: 2000000 chunks) (err-mimir-max-chunks-per-query)";
        for (status, kind, message, reason) in [
            (422, "execution", too_many, "too_large"),
            (400, "bad_data", points, "too_large"),
            (422, "execution", mimir, "too_large"),
            (
                422,
                "422",
                "cannot select more than -search.maxSamplesPerQuery=1 samples",
                "too_large",
            ),
            (400, "bad_data", "1:3: parse error: too many arguments", "bad_query"),
            (422, "execution", "found duplicate series for the match group", "bad_query"),
            (503, "timeout", "query timed out in expression evaluation", "timeout"),
            (503, "unavailable", "TSDB not ready", "busy"),
            (429, "too_many_requests", "too many outstanding requests", "busy"),
            (500, "internal", "block is gone", "unavailable"),
            (403, "", "no", "refused"),
        ] {
            let error = Some((kind.to_owned(), message.to_owned()));
            let failure = envelope(status, "application/json").failure(error, "");
            assert_eq!(failure.reason(), reason, "{status} {kind} {message}");
        }
        for (status, body, reason) in [
            (200, "<html><head><title>Sign in</title>", "not_prometheus"),
            (302, "", "not_prometheus"),
            (404, "404 page not found", "not_prometheus"),
            (401, "", "refused"),
            (403, "<html>", "refused"),
            (413, "", "too_large"),
            (429, "slow down", "busy"),
            (500, "oops", "unavailable"),
            (502, "<html><title>Bad Gateway</title>", "unavailable"),
            (503, "", "busy"),
            (504, "", "timeout"),
        ] {
            let failure = envelope(status, "text/html").failure(None, body);
            assert_eq!(failure.reason(), reason, "{status} {body}");
            assert!(!failure.to_string().contains('\n'));
        }
    }

    #[test]
    fn an_html_page_is_named_by_its_title() {
        let page = "<!doctype html>\n<html><head>\n<TITLE lang=en>\n Sign in\n to Grafana </TITLE>";
        let failure = envelope(200, "text/html; charset=utf-8").failure(None, page).to_string();
        assert!(
            failure.contains("200 OK, text/html; charset=utf-8, titled \"Sign in to Grafana\"")
        );
        assert!(!envelope(200, "text/html").is_answer());
        for json in
            ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"]
        {
            assert!(envelope(200, json).is_answer(), "{json}");
        }
    }
}
