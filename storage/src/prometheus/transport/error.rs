//! Transport errors: one line with the cause, the place and the remedy, and never a secret.

use std::{error::Error as StdError, fmt::Display, io, time::Duration};

use crate::error_text;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use self::TransportErrorKind::{
    ClientCertificate, InvalidSetting, TimedOut, TokenUnavailable, Unreachable, Untrusted,
};

/// Why a request got no usable response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    pub kind: TransportErrorKind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportErrorKind {
    /// A setting or the content of a file is invalid, or a file cannot be read.
    InvalidSetting,
    /// The server responded with 401 or 403, even to reloaded credentials.
    Refused,
    /// The server redirects. Credentials are not sent to the target.
    Redirected,
    Untrusted,
    /// The server rejects our side of the TLS handshake.
    ClientCertificate,
    Unreachable,
    TimedOut,
    /// A token endpoint issued no token.
    TokenDenied,
    /// A token endpoint failed. A retry may succeed.
    TokenUnavailable,
}

impl TransportError {
    /// Creates an error. The message is one line with the cause, the place and the remedy, and without secrets.
    pub fn new(kind: TransportErrorKind, message: String) -> Self {
        Self { kind, message }
    }

    /// Whether a retry may succeed without a changed setting, secret or permission.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Unreachable | TimedOut | TokenUnavailable)
    }

    pub(super) fn setting(what: impl Display, why: impl Display) -> Self {
        Self::new(InvalidSetting, format!("{what} is invalid: {why}"))
    }

    pub(super) fn file(what: &str, path: impl Display, why: impl Display) -> Self {
        let message = format!("{what} in {path} is invalid: {why}: replace the file");
        Self::new(InvalidSetting, message)
    }

    pub(super) fn unreadable(what: &str, path: impl Display, why: &io::Error) -> Self {
        let message =
            format!("failed to read {what} from {path}: {why}: mount the file or correct its path");
        Self::new(InvalidSetting, message)
    }

    fn unreachable(server: &str, why: impl Display) -> Self {
        let advice = "check the address, network policies and whether it is running";
        Self::new(Unreachable, format!("{server} cannot be reached: {why}: {advice}"))
    }

    /// Classifies a request that failed before a response arrived.
    pub(super) fn of_request(server: &str, error: &reqwest::Error, after: Duration) -> Self {
        if let Some(tls) = tls_error(error) {
            return Self::of_tls(server, tls);
        }
        if error.is_timeout() {
            let advice = "query less at once, or raise the timeout";
            let message = format!("{server} did not respond within {after:?}: {advice}");
            return Self::new(TimedOut, message);
        }
        Self::unreachable(server, innermost(error))
    }

    fn of_tls(server: &str, error: &TlsError) -> Self {
        let (why, advice) = match error {
            TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => (
                "its issuer is unknown".to_owned(),
                "set a CA file with the certificate of its issuer",
            ),
            TlsError::InvalidCertificate(why) => {
                let advice = "install a valid certificate, or use a host name that it covers";
                (why.to_string(), advice)
            }
            TlsError::AlertReceived(alert) if rejects_client_certificate(*alert) => {
                let advice = "configure a client certificate that it trusts";
                let message = format!("{server} rejected the TLS handshake: {alert:?}: {advice}");
                return Self::new(ClientCertificate, message);
            }
            other => return Self::unreachable(server, other),
        };
        let message = format!("the certificate of {server} is not trusted: {why}: {advice}");
        Self::new(Untrusted, message)
    }
}

fn rejects_client_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

/// Finds a TLS error anywhere in the chain of causes.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    // The source of an io::Error is the source of the wrapped error, so get the wrapped error itself.
    if let Some(wrapped) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return tls_error(wrapped);
    }
    tls_error(error.source()?)
}

/// The root cause, which is the informative one. It contains no URL, so no secret.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    match last.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_builder() => "the request cannot be built".to_owned(),
        Some(_) => "the request failed".to_owned(),
        None => one_line(&last.to_string()),
    }
}

/// A text on one line, to be followed by more text.
pub(super) fn one_line(text: &str) -> String {
    error_text::one_line(text).trim_end_matches(['.', ':']).to_owned()
}
