//! Certificates: issuing a certificate with its CA, parsing its validity, verifying it against a CA bundle, and
//! selecting which of several to serve.
//!
//! ```text
//!   issue ─▶ IssuedCertificate: chain, key, authority ─▶ rotation: which one to serve, and when to renew
//!                                   validity, ca_bundle: whether API servers accept it
//! ```

pub(crate) mod ca_bundle;
pub(crate) mod issue;
pub(crate) mod rotation;
pub(crate) mod validity;

pub use ca_bundle::CaBundle;
pub use issue::{CertificateSpec, IssuedCertificate, issue};
pub(crate) use rotation::{Candidate, select_certificate};
pub(crate) use validity::Validity;

use plimsoll_storage::prometheus::transport::tls;
use rustls::pki_types::CertificateDer;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error(
        "no certificate found in {0}: expected PEM that begins with -----BEGIN CERTIFICATE-----"
    )]
    Empty(String),
    #[error("invalid X.509 certificate in {0}")]
    Malformed(String),
    #[error("failed to issue a certificate for {names}: {why}")]
    Issue { names: String, why: String },
}

/// The first certificate of a PEM text: the leaf of a chain.
pub fn leaf_certificate(chain: &[u8]) -> Option<CertificateDer<'static>> {
    tls::parse_certificates(chain)?.into_iter().next()
}

/// Parses the certificates in a PEM text. Skips other PEM blocks.
pub(crate) fn parse_certificates(
    pem: &[u8],
    what: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    tls::parse_certificates(pem).ok_or_else(|| CertificateError::Empty(what.to_owned()))
}
