//! Why a request has no page, and the page that says so.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;

use super::response::response;
use crate::ui::{access::Refusal, router::RouteError};

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    BadRequest,
    UnknownHost,
    Unauthorized(Refusal),
    NotFound,
    MethodNotAllowed,
    UriTooLong,
    TooManyRequests,
    Redirect(String),
    Starting,
    /// A review failed.
    Unreviewed,
    Internal,
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::BadRequest => Self::BadRequest,
            RouteError::NotFound => Self::NotFound,
            RouteError::MethodNotAllowed => Self::MethodNotAllowed,
            RouteError::UriTooLong => Self::UriTooLong,
            RouteError::Redirect(to) => Self::Redirect(to),
        }
    }
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
            Self::Starting | Self::Unreviewed => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::BadRequest => "The address is not valid.",
            Self::UnknownHost => "This server only answers to localhost and loopback addresses.",
            Self::Unauthorized(Refusal::NoToken) => {
                "A valid bearer token of the cluster is required: Authorization: Bearer TOKEN."
            }
            Self::Unauthorized(Refusal::NoProxy) => {
                "The request does not come from the authenticating proxy, or names no user."
            }
            Self::NotFound => "There is no such page, or you may not see it.",
            Self::MethodNotAllowed => "Only GET and HEAD are allowed.",
            Self::UriTooLong => "The address is too long.",
            Self::TooManyRequests => "There are too many requests. Try again in a second.",
            Self::Redirect(_) => "The page has moved.",
            Self::Starting => {
                "The cluster is being read for the first time. Try again in a few seconds."
            }
            Self::Unreviewed => {
                "The API server does not review access at the moment. Try again later."
            }
            Self::Internal => "The page could not be made.",
        }
    }

    /// The response. `depth` is the number of folders from the overview to the requested path.
    pub(super) fn response(&self, depth: usize) -> Response<Full<Bytes>> {
        let text = match self {
            // The same for what does not exist and for what may not be seen.
            Self::NotFound => failure_page(self, Some(depth)),
            _ => failure_page(self, None),
        };
        let mut response = response("text/html; charset=utf-8", text);
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        match self {
            Self::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            Self::Unauthorized(Refusal::NoToken) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::TooManyRequests => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Starting | Self::Unreviewed => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            Self::Redirect(to) => {
                if let Ok(to) = HeaderValue::from_str(to) {
                    headers.insert(LOCATION, to);
                }
            }
            _ => {}
        }
        response
    }
}

/// A page without data. `depth` is the number of folders to the overview.
fn failure_page(failure: &Failure, depth: Option<usize>) -> String {
    let (title, message) =
        (failure.status().canonical_reason().unwrap_or("Error"), failure.message());
    let back = depth.map_or_else(String::new, |depth| {
        format!("<p><a href=\"./{}\">Overview</a></p>\n", "../".repeat(depth))
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · Plimsoll</title>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p>{message}</p>\n{back}\
         </main>\n</body>\n</html>\n"
    )
}
