//! Classifies API server errors for checkpoints.

use std::time::Duration;

use crate::{Error, error_text::error_chain};

const REQUIRED_RBAC: &str = "a role needs apiGroups [autoscaling.k8s.io], resources \
    [verticalpodautoscalercheckpoints], verbs [get, list, create, patch, delete]";

/// Delays between attempts after transient errors.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Maximum `Retry-After` that is honored within one save or load.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// The object, the namespace or the CRD does not exist.
    NotFound(String),
    AlreadyExists,
    /// The object has changed since it was read.
    Conflict,
    Invalid(String),
    Forbidden(String),
    /// A retry may succeed, after this delay if the server requested one.
    Transient(String, Option<Duration>),
}

impl ApiError {
    pub fn from_kube(error: &kube::Error) -> Self {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::BuildRequest(error) => return Self::Invalid(one_line(&error.to_string())),
            // Includes connection errors and responses that are not JSON.
            other => return Self::Transient(one_line(&error_chain(other)), None),
        };
        let message = if status.message.is_empty() {
            format!("the API server responded with {}", status.code)
        } else {
            one_line(&status.message)
        };
        match status.code {
            404 => Self::NotFound(message),
            409 if status.is_already_exists() => Self::AlreadyExists,
            409 => Self::Conflict,
            // The namespace is terminating, which is not a permission problem.
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

    /// The delay before the next attempt after this many failures; `None` to give up.
    pub fn retry_delay(&self, failures: usize) -> Option<Duration> {
        let Self::Transient(_, retry_after) = self else { return None };
        RETRY_DELAYS.get(failures).map(|&delay| retry_after.unwrap_or(delay))
    }

    /// The message in one line, with the remedy.
    pub fn why(&self) -> String {
        match self {
            Self::NotFound(why) | Self::Invalid(why) | Self::Transient(why, _) => why.clone(),
            Self::AlreadyExists => "another object has the same name".into(),
            Self::Conflict => "too many conflicts with other writers".into(),
            Self::Forbidden(why) => format!("{why}; {REQUIRED_RBAC}"),
        }
    }

    /// Converts it to the error of a load or a garbage collection.
    pub fn into_error(self, place: &str) -> Error {
        let (place, why) = (place.to_owned(), self.why());
        match self {
            Self::Transient(..) | Self::Conflict | Self::AlreadyExists => {
                Error::Unavailable { place, why }
            }
            Self::NotFound(_) => Error::Unusable {
                place,
                why: format!("{why}; if the CRD is missing, apply the output of `plimsoll crds`"),
            },
            Self::Forbidden(_) | Self::Invalid(_) => Error::Unusable { place, why },
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}
