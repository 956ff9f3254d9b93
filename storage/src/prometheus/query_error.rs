//! Why a query failed, told apart by what can be done about it.

use std::time::Duration;

use reqwest::StatusCode;

use super::{
    decode::{DecodeError, one_line},
    transport::TransportError,
};

/// Why a query failed. Each is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// More than the server or our own budget lets through: half as much may work.
    #[error("too much for one query: {0}: ask for a shorter range or fewer series")]
    TooLarge(String),
    /// More than whoever takes the answer may hold at once.
    #[error("more came than may be held at once: ask for a shorter range or fewer series")]
    CollectorFull,
    /// The server wants fewer queries (429, 503).
    #[error("the server is too busy: {why}: it is asked again later")]
    Busy {
        /// What it says.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// No answer in time, or not all of it.
    #[error("{0}")]
    Timeout(String),
    /// Nobody there, a failure of the server's, or an answer that broke off.
    #[error("{0}: it is asked again later")]
    Unavailable(String),
    /// We are not let in, or cannot even knock: a setting, a secret or a right has to change.
    #[error("{0}")]
    AccessDenied(String),
    /// Whatever answers there is no Prometheus, or stands before one.
    #[error("{0}")]
    NotPrometheus(String),
    /// The server does not take the query.
    #[error("the server does not take the query: {0}")]
    BadQuery(String),
}

impl QueryError {
    /// All words that [`Failure::reason`] knows.
    pub const REASONS: [&str; 7] =
        ["too_large", "busy", "timeout", "unavailable", "refused", "not_prometheus", "bad_query"];

    /// Whether the same query may work later without anybody doing something.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Timeout(_) | Self::Unavailable(_))
    }

    /// Whether it is about this query alone: others may well be answered.
    pub fn is_query_specific(&self) -> bool {
        matches!(self, Self::TooLarge(_) | Self::CollectorFull | Self::BadQuery(_))
    }

    /// The word for labels of metrics and for reports.
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
        match error {
            TransportError::TimedOut { .. } => Self::Timeout(line),
            TransportError::Redirected { .. } => Self::NotPrometheus(line),
            error if error.is_transient() => Self::Unavailable(line),
            _ => Self::AccessDenied(line),
        }
    }
}

impl From<DecodeError> for QueryError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Malformed { at: 0, .. } => Self::NotPrometheus(format!(
                "what answers is no Prometheus: {error}: check the address and what is in front of it"
            )),
            DecodeError::ReportedByServer { kind, message } => {
                reported(None, &kind, &message, None)
            }
            error => Self::Unavailable(error.to_string()),
        }
    }
}

/// What is known of an answer besides its body.
#[derive(Clone, Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

impl ResponseHead {
    /// Whether the body is what was asked for.
    pub(super) fn is_answer(&self) -> bool {
        // Not all proxies keep the header; the body tells then.
        self.status.is_success() && self.content_type.as_deref().is_none_or(is_json)
    }

    /// Why the body is not what was asked for, from its beginning.
    pub(super) fn failure(&self, error: Option<(String, String)>, body: &str) -> QueryError {
        let Self { status, content_type, retry_after } = self;
        if let Some((kind, message)) = error {
            return reported(Some(*status), &kind, &message, *retry_after);
        }
        let kind = content_type.as_deref().unwrap_or("no content type");
        let came = match title(body) {
            Some(title) => format!("{status}, {kind}, titled {title:?}"),
            None if body.trim().is_empty() => format!("{status}, {kind}, with nothing in it"),
            None => {
                let begins: String = body.chars().take(80).collect();
                format!("{status}, {kind}, that begins with {:?}", one_line(&begins))
            }
        };
        match status.as_u16() {
            401 | 403 | 407 => QueryError::AccessDenied(format!(
                "the server does not let us in ({came}): check the credentials and what they may do"
            )),
            429 | 503 => QueryError::Busy { why: came, retry_after: *retry_after },
            408 | 499 | 504 => QueryError::Timeout(format!("no answer in time ({came})")),
            413 => QueryError::TooLarge(came),
            400 | 422 if is_size(body) => QueryError::TooLarge(came),
            400 | 422 => QueryError::BadQuery(came),
            500.. => QueryError::Unavailable(format!("the server failed ({came})")),
            _ => QueryError::NotPrometheus(format!(
                "what answers is no Prometheus ({came}): check the address and what is in front of it"
            )),
        }
    }
}

/// What to make of a failure that the server tells in its own form.
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
            "the server does not let us in ({status} {line}): check the credentials and what they may do"
        )),
        (429, _) | (_, "too_many_requests") => QueryError::Busy { why: line, retry_after },
        _ if is_size(message) => QueryError::TooLarge(line),
        (408 | 499 | 504, _) | (_, "timeout" | "canceled") => {
            QueryError::Timeout(format!("the server gave up ({line}): ask for less at once"))
        }
        (503, _) | (_, "unavailable") => QueryError::Busy { why: line, retry_after },
        (400 | 404 | 422, _) | (_, "bad_data" | "execution" | "not_found" | "422") => {
            QueryError::BadQuery(line)
        }
        _ => QueryError::Unavailable(format!("the server failed ({line})")),
    }
}

/// Whether a server's words are about the size of an answer. Prometheus says "too many samples" and "exceeded maximum
/// resolution of 11,000 points", Mimir and Thanos "exceeded limit", VictoriaMetrics "cannot select more than".
fn is_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let about = |word: &&str| message.contains(*word);
    // It repeats the query, in which there may be any words.
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

/// Whether a content type is one of JSON.
fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.ends_with("/json") || media.ends_with("+json")
}

/// The title of a page: login pages and error pages say there what they are.
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
    fn failures_are_told_apart_by_what_can_be_done() {
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
    fn pages_are_called_by_their_title() {
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
