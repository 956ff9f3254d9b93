//! What an API server's refusal means for a checkpoint.

use std::time::Duration;

use crate::Error;

/// The rule that a role needs.
const REQUIRED_RBAC: &str = "a role needs apiGroups [autoscaling.k8s.io], resources \
    [verticalpodautoscalercheckpoints], verbs [get, list, create, patch, delete]";

/// Longest wait that a server can ask for within one save or load.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

/// Why a call did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// There is no such object, namespace or definition.
    NotFound(String),
    /// There is one of that name already.
    AlreadyExists,
    /// It changed since it was read.
    Conflict,
    /// The server will never take that.
    Invalid(String),
    /// The right is missing.
    Forbidden(String),
    /// It may work later: so soon, if the server said when.
    Transient(String, Option<Duration>),
}

impl ApiError {
    /// What an error of the client means.
    pub fn from_kube(error: &kube::Error) -> Self {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::BuildRequest(error) => return Self::Invalid(one_line(&error.to_string())),
            // Among them answers that did not come, and answers that are no JSON.
            other => return Self::Transient(causes(other), None),
        };
        let message = if status.message.is_empty() {
            format!("the API server answers {}", status.code)
        } else {
            one_line(&status.message)
        };
        match status.code {
            404 => Self::NotFound(message),
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 => Self::Conflict,
            // A namespace that is being removed is no matter of rights.
            403 if message.contains("being terminated") => Self::NotFound(message),
            401 | 403 => Self::Forbidden(message),
            400 | 405 | 413 | 415 | 422 => Self::Invalid(message),
            _ => {
                let after =
                    status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                let after =
                    (after > 0).then(|| Duration::from_secs(after.into()).min(MAX_RETRY_AFTER));
                Self::Transient(message, after)
            }
        }
    }

    /// In one line, with what to do.
    pub fn why(&self) -> String {
        match self {
            Self::NotFound(why) | Self::Invalid(why) | Self::Transient(why, _) => why.clone(),
            Self::AlreadyExists => "another object has its name".into(),
            Self::Conflict => "others changed it again and again".into(),
            Self::Forbidden(why) => format!("{why}; {REQUIRED_RBAC}"),
        }
    }

    /// As the error of a whole load or collection at this place.
    pub fn into_error(self, place: &str) -> Error {
        let (place, why) = (place.to_owned(), self.why());
        match self {
            Self::Transient(..) | Self::Conflict | Self::AlreadyExists => {
                Error::Unavailable { place, why }
            }
            Self::NotFound(_) => Error::Unusable {
                place,
                why: format!(
                    "{why}; if the definition is missing, apply the output of `plimsoll crds`"
                ),
            },
            Self::Forbidden(_) | Self::Invalid(_) => Error::Unusable { place, why },
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// An error with what caused it: the outermost line of a failed connection says nothing.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    one_line(&text)
}
