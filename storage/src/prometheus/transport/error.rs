//! Why a door stayed shut: one line that says what, where and what to do, and never a secret.

use std::{error::Error as StdError, io, time::Duration};

use rustls::{AlertDescription, CertificateError, Error as TlsError};

/// Why a request got no answer that is worth reading.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransportError {
    /// Something was set that cannot work.
    #[error("{what} cannot be used: {why}: correct it")]
    InvalidSetting {
        /// What was set.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file is not there, or cannot be read.
    #[error("{what} cannot be read from {path}: {why}: mount the file, or correct its path")]
    UnreadableFile {
        /// What is in it.
        what: &'static str,
        /// Where it should be.
        path: String,
        /// What the system says.
        why: String,
    },
    /// A file has nothing of use in it.
    #[error("{what} in {path} cannot be used: {why}: write the file anew")]
    InvalidFile {
        /// What is in it.
        what: &'static str,
        /// Where it is.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// 401, with fresh credentials.
    #[error("{server} does not accept {credentials} (401): {advice}")]
    Unauthorized {
        /// Who says so.
        server: String,
        /// With what we signed in.
        credentials: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// 403.
    #[error(
        "{server} refuses access to whoever has {credentials} (403): grant it the right to query, or check the tenant"
    )]
    Forbidden {
        /// Who says so.
        server: String,
        /// With what we signed in.
        credentials: &'static str,
    },
    /// It sends us elsewhere. Credentials do not go there.
    #[error(
        "{server} redirects to {to} ({status}), where credentials are not sent: sign in as it wants, or give the address that answers itself"
    )]
    Redirected {
        /// Who says so.
        server: String,
        /// Where to, without what follows a question mark.
        to: String,
        /// The status.
        status: u16,
    },
    /// We do not believe who it is.
    #[error("the certificate of {server} is not trusted: {why}: {advice}")]
    Untrusted {
        /// Who it claims to be.
        server: String,
        /// What is wrong with it.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// It does not believe who we are.
    #[error(
        "{server} refuses our side of the TLS handshake: {why}: give it a client certificate that it trusts"
    )]
    ClientCertificate {
        /// Who says so.
        server: String,
        /// Which alert it sent.
        why: String,
    },
    /// Nobody is there.
    #[error(
        "{server} cannot be reached: {why}: check the address, network policies and whether it runs"
    )]
    Unreachable {
        /// Who.
        server: String,
        /// What happened.
        why: String,
    },
    /// No answer in time.
    #[error("{server} did not answer within {after:?}: ask for less at once, or give it more time")]
    TimedOut {
        /// Who.
        server: String,
        /// The limit.
        after: Duration,
    },
    /// A token was refused to us.
    #[error("{from} gives no token: {why}: {advice}")]
    TokenDenied {
        /// Who refused.
        from: String,
        /// What it says.
        why: String,
        /// What to do.
        advice: &'static str,
        /// Whether it may pass by itself.
        passing: bool,
    },
}

impl TransportError {
    /// Whether it may pass by itself: nobody has to change a setting, a secret or a right.
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

    /// Why a request failed before there was an answer.
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
            TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
                ("its issuer is unknown".to_owned(), "give its authority's certificate as CA file")
            }
            TlsError::InvalidCertificate(why) => {
                let advice = "give it a valid one, or ask it by a name that its certificate has";
                (why.to_string(), advice)
            }
            TlsError::AlertReceived(alert) if is_about_us(*alert) => {
                return Self::ClientCertificate { server, why: format!("{alert:?}") };
            }
            other => return Self::Unreachable { server, why: other.to_string() },
        };
        Self::Untrusted { server, why, advice }
    }
}

/// Whether an alert says that our certificate is not good enough.
fn is_about_us(alert: AlertDescription) -> bool {
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

/// What TLS had to say, at whatever depth.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    // The source of an io::Error is the source of what it wraps: that itself is reached otherwise.
    if let Some(wrapped) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return tls_error(wrapped);
    }
    tls_error(error.source()?)
}

/// The last cause, which is the one that says something. Its words have no URL, so no secret.
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

/// The beginning of somebody's words, on one line.
pub(super) fn one_line(words: &str) -> String {
    let words: Vec<_> = words.split_whitespace().collect();
    let mut line: String = words.join(" ").chars().take(200).collect();
    line.truncate(line.trim_end_matches(['.', ':']).len());
    line
}
