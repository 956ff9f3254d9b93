//! Certificates as data: what one says, how a pair is made, whether an authority stands for it, and which of several
//! is shown.
//!
//! ```text
//!   make ─▶ Pair: chain, key, authority ─▶ choice: which one is shown, and when the next is made
//!                                   validity, trust: what an API server would say of it
//! ```

pub mod ca_bundle;
pub mod issue;
pub mod rotation;
pub mod validity;

pub use ca_bundle::CaBundle;
pub use issue::{CertificateSpec, IssuedCertificate, issue};
pub use rotation::{Candidate, select_certificate};
pub use validity::Validity;

/// Why certificates are of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is no PEM, or holds no certificate.
    #[error("{0} holds no certificate: give PEM that begins with -----BEGIN CERTIFICATE-----")]
    Empty(String),
    /// It is no X.509.
    #[error("{0} holds something that is no certificate")]
    Malformed(String),
    /// A key or certificate could not be made.
    #[error("a certificate cannot be made for {names}: {why}")]
    Issue {
        /// The names that it was for.
        names: String,
        /// The library's words.
        why: String,
    },
}

/// The first certificate of a PEM text, which is what a server shows as its own.
pub fn leaf_certificate(chain: &[u8]) -> Option<rustls::pki_types::CertificateDer<'static>> {
    parse_certificates(chain, "the chain").ok()?.into_iter().next()
}

/// The certificates in a PEM text; what else is in it is passed over.
pub(crate) fn parse_certificates(
    pem: &[u8],
    what: &str,
) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, CertificateError> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(found) if found.is_empty() => Err(CertificateError::Empty(what.to_owned())),
        Ok(found) => Ok(found),
        Err(_) => Err(CertificateError::Empty(what.to_owned())),
    }
}
