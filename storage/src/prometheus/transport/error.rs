//! Transport errors: one line with the cause, the place and the remedy, and never a secret.

use std::{error::Error as StdError, io, time::Duration};

use crate::error_text;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

/// Why a request got no usable response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransportError {
    /// A setting is invalid.
    #[error("{what} is invalid: {why}")]
    InvalidSetting {
        /// The setting.
        what: String,
        /// The cause.
        why: String,
    },
    /// A file is missing or cannot be read.
    #[error("failed to read {what} from {path}: {why}: mount the file or correct its path")]
    UnreadableFile {
        /// The content of the file.
        what: &'static str,
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        why: String,
    },
    /// The content of a file is invalid.
    #[error("{what} in {path} is invalid: {why}: replace the file")]
    InvalidFile {
        /// The content of the file.
        what: &'static str,
        /// The path of the file.
        path: String,
        /// The cause.
        why: String,
    },
    /// The server responded with 401, even to reloaded credentials.
    #[error("{server} rejected {credentials} (401): {advice}")]
    Unauthorized {
        /// The address of the server.
        server: String,
        /// The kind of credentials.
        credentials: &'static str,
        /// The remedy.
        advice: &'static str,
    },
    /// The server responded with 403.
    #[error(
        "{server} denied access with {credentials} (403): grant permission to query, or check the tenant"
    )]
    Forbidden {
        /// The address of the server.
        server: String,
        /// The kind of credentials.
        credentials: &'static str,
    },
    /// The server redirects. Credentials are not sent to the target.
    #[error(
        "{server} redirects to {to} ({status}), and redirects are not followed: configure authentication, or use \
         the final address"
    )]
    Redirected {
        /// The address of the server.
        server: String,
        /// The target of the redirect, without its query.
        to: String,
        /// The HTTP status.
        status: u16,
    },
    /// The certificate of the server is not trusted.
    #[error("the certificate of {server} is not trusted: {why}: {advice}")]
    Untrusted {
        /// The address of the server.
        server: String,
        /// The cause.
        why: String,
        /// The remedy.
        advice: &'static str,
    },
    /// The server rejects our side of the TLS handshake.
    #[error(
        "{server} rejected the TLS handshake: {why}: configure a client certificate that it trusts"
    )]
    ClientCertificate {
        /// The address of the server.
        server: String,
        /// The TLS alert.
        why: String,
    },
    /// The connection failed.
    #[error(
        "{server} cannot be reached: {why}: check the address, network policies and whether it is running"
    )]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The response did not arrive in time.
    #[error("{server} did not respond within {after:?}: query less at once, or raise the timeout")]
    TimedOut {
        /// The address of the server.
        server: String,
        /// The timeout.
        after: Duration,
    },
    /// A token endpoint issued no token.
    #[error("failed to get a token from {from}: {why}: {advice}")]
    TokenDenied {
        /// The address of the token endpoint.
        from: String,
        /// The cause, as the endpoint reports it.
        why: String,
        /// The remedy.
        advice: &'static str,
        /// Whether a retry may succeed.
        passing: bool,
    },
}

impl TransportError {
    /// Whether a retry may succeed without a changed setting, secret or permission.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::TokenDenied { passing, .. } => *passing,
            _ => false,
        }
    }

    pub(super) fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::InvalidSetting { what: what.into(), why: why.into() }
    }

    pub(super) fn file(what: &'static str, path: &str, why: impl Into<String>) -> Self {
        Self::InvalidFile { what, path: path.to_owned(), why: why.into() }
    }

    /// Classifies a request that failed before a response arrived.
    pub(super) fn of_request(server: &str, error: &reqwest::Error, after: Duration) -> Self {
        let server = server.to_owned();
        if let Some(tls) = tls_error(error) {
            return Self::of_tls(server, tls);
        }
        if error.is_timeout() {
            return Self::TimedOut { server, after };
        }
        Self::Unreachable { server, why: innermost(error) }
    }

    fn of_tls(server: String, error: &TlsError) -> Self {
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
                return Self::ClientCertificate { server, why: format!("{alert:?}") };
            }
            other => return Self::Unreachable { server, why: other.to_string() },
        };
        Self::Untrusted { server, why, advice }
    }
}

/// Whether an alert rejects our client certificate.
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
