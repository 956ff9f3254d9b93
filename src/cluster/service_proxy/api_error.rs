//! Errors of the API server's proxy, as opposed to those of the server behind it: what is wrong, and what to do.

use std::{error::Error as StdError, io, time::Duration};

use http::StatusCode;
use plimsoll_storage::{
    error_text::one_line,
    prometheus::transport::{TransportError, TransportErrorKind},
};
use serde::Deserialize;

use super::address::ServiceAddress;
use crate::cluster::list_stream::error_message;

/// An error object of the API server. The server behind the proxy does not send such objects.
#[derive(Debug, Deserialize)]
pub(super) struct ApiStatus {
    kind: String,
    #[serde(default)]
    message: String,
}

impl ApiStatus {
    /// Parses the body of an error response; `None` if it is not from the API server.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().filter(|status: &Self| status.kind == "Status")
    }

    pub(super) fn message(&self) -> String {
        one_line(&self.message)
    }
}

/// Classifies an error of the API server. `None` if it is too busy: then the response itself says when to retry.
pub(super) fn of_api_server(
    address: &ServiceAddress,
    code: StatusCode,
    status: &ApiStatus,
) -> Option<TransportError> {
    use TransportErrorKind::{InvalidSetting, Refused, TimedOut, Unreachable};
    let message = status.message();
    let number = code.as_u16();
    let (kind, line) = match code {
        StatusCode::TOO_MANY_REQUESTS => return None,
        StatusCode::UNAUTHORIZED => (
            Refused,
            format!(
                "the API server rejected the credentials (401: {message}): log in again, or check the kubeconfig"
            ),
        ),
        StatusCode::FORBIDDEN if message.contains("services/proxy") => (
            Refused,
            format!(
                "{address} cannot be reached through the API server's proxy, because RBAC does not allow it (403: \
                 {message}): grant `get` on `services/proxy` in the namespace {}, or {}",
                address.namespace(),
                address.port_forward_hint()
            ),
        ),
        StatusCode::FORBIDDEN => (
            Refused,
            format!(
                "the API server denied access to {address} (403: {message}): grant the permission, or {}",
                address.port_forward_hint()
            ),
        ),
        StatusCode::NOT_FOUND => (
            InvalidSetting,
            format!(
                "{address} does not exist, or has no endpoints (404: {message}): check the namespace and the name of \
                 the Service, and that its pods are running"
            ),
        ),
        StatusCode::SERVICE_UNAVAILABLE if message.contains("no endpoints available") => (
            Unreachable,
            format!(
                "{address} has no ready endpoints (503: {message}): check that its pods are running"
            ),
        ),
        StatusCode::SERVICE_UNAVAILABLE if message.contains("no service port") => (
            InvalidSetting,
            format!("{address} has no such port (503: {message}): check the ports of the Service"),
        ),
        StatusCode::SERVICE_UNAVAILABLE if message.contains("error trying to reach service") => (
            Unreachable,
            format!(
                "the API server cannot reach {address} (503: {message}): check network policies and whether the port \
                 serves HTTP or HTTPS, or {}",
                address.port_forward_hint()
            ),
        ),
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => (
            TimedOut,
            format!(
                "the API server got no response from {address} in time ({number}: {message}): query less at once"
            ),
        ),
        code if code.is_server_error() => {
            (Unreachable, format!("the API server failed to reach {address} ({number}: {message})"))
        }
        _ => (
            InvalidSetting,
            format!("the API server rejected the request to {address} ({number}: {message})"),
        ),
    };
    Some(TransportError::new(kind, line))
}

/// Classifies a response of the server behind the proxy that asks for credentials, or redirects to a login page.
pub(super) fn of_login(
    address: &ServiceAddress,
    code: StatusCode,
    location: Option<&str>,
) -> Option<TransportError> {
    let (kind, what) = match (code, location) {
        (StatusCode::UNAUTHORIZED, _) => {
            (TransportErrorKind::Refused, "requires authentication (401)".to_owned())
        }
        (StatusCode::FORBIDDEN, _) => {
            (TransportErrorKind::Refused, "denied access (403)".to_owned())
        }
        (code, location) if code.is_redirection() => {
            // The query may contain secrets.
            let target = location.map(|to| one_line(to.split(['?', '#']).next().unwrap_or(to)));
            let target = target.filter(|to| !to.is_empty());
            let target = target.unwrap_or_else(|| "an unknown location".to_owned());
            let what = format!("redirects to {target} ({})", code.as_u16());
            (TransportErrorKind::Redirected, what)
        }
        _ => return None,
    };
    let line = format!(
        "{address} {what}, and the API server's proxy drops the header Authorization: {}, with the credentials",
        address.port_forward_hint()
    );
    Some(TransportError::new(kind, line))
}

/// Classifies a request without a response.
pub(super) fn of_request(address: &ServiceAddress, error: &kube::Error) -> TransportError {
    let why = error_message(error);
    let (kind, line) = match error {
        kube::Error::Auth(_) => (
            TransportErrorKind::Refused,
            format!("cannot authenticate to the API server: {why}: check the kubeconfig"),
        ),
        error if is_timeout(error) => (
            TransportErrorKind::TimedOut,
            format!(
                "no response from {address} through the API server in time: {why}: query less at once"
            ),
        ),
        _ => (
            TransportErrorKind::Unreachable,
            format!(
                "the API server cannot be reached for {address}: {why}: check the kubeconfig and the network"
            ),
        ),
    };
    TransportError::new(kind, line)
}

pub(super) fn timed_out(address: &ServiceAddress, after: Duration) -> TransportError {
    let line = format!(
        "{address} did not respond within {after:?} through the API server's proxy: query less at once, or raise the \
         timeout"
    );
    TransportError::new(TransportErrorKind::TimedOut, line)
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io: Option<&io::Error> = error.downcast_ref();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        next = error.source();
    }
    false
}
