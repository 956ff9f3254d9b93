//! Error responses of the in-memory API server.

use http::StatusCode;
use serde_json::{Value, json};

/// The reason of a rejected request.
#[derive(Debug)]
pub struct StatusError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
}

impl StatusError {
    pub fn new(code: u16, reason: &'static str, message: &str) -> Self {
        Self { code, reason, message: message.to_owned(), details: json!({}) }
    }

    pub fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn expired() -> Self {
        Self::new(410, "Expired", "too old resource version")
    }

    pub fn no_initial_events() -> Self {
        let words = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        Self::new(422, "Invalid", words)
    }

    pub fn bad_request() -> Self {
        Self::new(400, "BadRequest", "the object provided is unrecognized")
    }

    pub fn version_conflict() -> Self {
        Self::new(500, "", "resourceVersion should not be set on objects to be created")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the resource")
    }

    pub fn unsupported_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    }

    pub fn unprocessable() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    pub fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).expect("a code of ours")
    }

    pub fn status(&self) -> Value {
        let reason = Some(self.reason).filter(|it| !it.is_empty());
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "details": self.details, "code": self.code,
        })
    }
}
