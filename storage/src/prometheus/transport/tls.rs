//! TLS for clients: the files of a TLS configuration, and the rustls configuration that follows from them.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use plimsoll_core::api::scale_target::TlsConfig;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    version::{TLS12, TLS13},
};

use super::TransportError;

/// Maximum size of a file. The author of an object may name any file of our own container.
const MAX_FILE_BYTES: u64 = 1 << 20;
const AUTHORITIES: &str = "the CA certificate";
const CERTIFICATE: &str = "the client certificate";
const KEY: &str = "the key of the client certificate";

#[derive(Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    authorities: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Reads the files. Blocks.
    pub(super) fn load(tls: &TlsConfig) -> Result<Self, TransportError> {
        if tls.cert_file.is_empty() != tls.key_file.is_empty() {
            let why = "certFile and keyFile must be set together";
            return Err(TransportError::setting(CERTIFICATE, why));
        }
        Ok(Self {
            authorities: read_file(AUTHORITIES, &tls.ca_file)?,
            certificate: read_file(CERTIFICATE, &tls.cert_file)?,
            key: read_file(KEY, &tls.key_file)?,
        })
    }
}

fn read_file(what: &'static str, path: &str) -> Result<Option<Vec<u8>>, TransportError> {
    if path.is_empty() {
        return Ok(None);
    }
    let unreadable = |error: std::io::Error| TransportError::unreadable(what, path, &error);
    // A special file might never end.
    if !Path::new(path).metadata().map_err(unreadable)?.is_file() {
        return Err(TransportError::file(what, path, "it is not a regular file"));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let why = format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(TransportError::file(what, path, why));
    }
    Ok(Some(content))
}

/// Parses the certificates in a PEM text. `None` if there are none, or if one is malformed.
pub fn parse_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.ok().filter(|certificates| !certificates.is_empty())
}

/// Creates the client configuration. Without a TLS configuration it is for plain HTTP: it works without certificates of
/// the system.
pub(super) fn client_config(
    tls: Option<&TlsConfig>,
    files: &TlsFiles,
) -> Result<ClientConfig, TransportError> {
    let error = |why: Error| TransportError::setting("TLS", why);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let Some(tls) = tls else {
        let builder = builder.with_safe_default_protocol_versions().map_err(error)?;
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    };
    let builder = builder
        .with_protocol_versions(&versions(tls)?)
        .map_err(error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier(tls, files)?);
    let mut config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let TlsConfig { cert_file, key_file, .. } = tls;
            let missing = |what, path, kind| {
                TransportError::file(what, path, format!("it contains no PEM {kind}"))
            };
            let chain = parse_certificates(certificate)
                .ok_or_else(|| missing(CERTIFICATE, cert_file, "certificate"))?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| missing(KEY, key_file, "private key"))?;
            builder.with_client_auth_cert(chain, key).map_err(|why| {
                let why = match why {
                    Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        "private key does not match public key".to_owned()
                    }
                    other => other.to_string(),
                };
                let why = format!("tls: {why}: its key is in {key_file}");
                TransportError::file(CERTIFICATE, cert_file, why)
            })?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn versions(tls: &TlsConfig) -> Result<Vec<&'static SupportedProtocolVersion>, TransportError> {
    let number = |field: &str, text: &str, unset: u8| match text {
        "" => Ok(unset),
        "TLS10" => Ok(10),
        "TLS11" => Ok(11),
        "TLS12" => Ok(12),
        "TLS13" => Ok(13),
        other => Err(TransportError::setting(
            format!("{field} {other:?}"),
            "it is not one of TLS10, TLS11, TLS12, TLS13",
        )),
    };
    let oldest = number("minVersion", &tls.min_version, 10)?;
    let newest = number("maxVersion", &tls.max_version, 13)?;
    let supported = [(12, &TLS12), (13, &TLS13)];
    let allowed = supported.into_iter().filter(|(version, _)| (oldest..=newest).contains(version));
    let allowed: Vec<_> = allowed.map(|(_, version)| version).collect();
    if allowed.is_empty() {
        let TlsConfig { min_version, max_version, .. } = tls;
        return Err(TransportError::setting(
            format!("minVersion {min_version:?} with maxVersion {max_version:?}"),
            "they allow neither TLS12 nor TLS13",
        ));
    }
    Ok(allowed)
}

fn verifier(
    tls: &TlsConfig,
    files: &TlsFiles,
) -> Result<Arc<dyn ServerCertVerifier>, TransportError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    if let Some(pem) = &files.authorities {
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
        if roots.is_empty() {
            let why = "it contains no PEM certificate";
            return Err(TransportError::file(AUTHORITIES, &tls.ca_file, why));
        }
    }
    if tls.insecure_skip_verify {
        return Ok(Arc::new(CustomVerifier::new(AcceptedCertificates::Any)));
    }
    let by_chain: Arc<dyn ServerCertVerifier> = if roots.is_empty() {
        let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(|why| {
            let why = format!("{why}; set a CA file if the system has no certificates");
            TransportError::setting("TLS", why)
        })?;
        Arc::new(verifier)
    } else {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|why| TransportError::file(AUTHORITIES, &tls.ca_file, why))?
    };
    if tls.server_name.is_empty() {
        return Ok(by_chain);
    }
    let name = ServerName::try_from(tls.server_name.clone()).map_err(|_| {
        let what = format!("serverName {:?}", tls.server_name);
        TransportError::setting(what, "it is not a valid server name")
    })?;
    Ok(Arc::new(CustomVerifier::new(AcceptedCertificates::Name(name, by_chain))))
}

/// Which certificates a [`CustomVerifier`] accepts.
#[derive(Debug)]
pub enum AcceptedCertificates {
    Any,
    Only(CertificateDer<'static>),
    /// Those that the verifier accepts for this name, instead of the name in the URL.
    Name(ServerName<'static>, Arc<dyn ServerCertVerifier>),
}

/// Verifies servers in ways that rustls has no verifier for. Every server must prove that it has the key.
#[derive(Debug)]
pub struct CustomVerifier {
    trust: AcceptedCertificates,
    algorithms: WebPkiSupportedAlgorithms,
}

impl CustomVerifier {
    pub fn new(trust: AcceptedCertificates) -> Self {
        Self { trust, algorithms: ring::default_provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for CustomVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            AcceptedCertificates::Any => Ok(ServerCertVerified::assertion()),
            AcceptedCertificates::Only(pinned) if leaf == pinned => {
                Ok(ServerCertVerified::assertion())
            }
            AcceptedCertificates::Only(_) => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            AcceptedCertificates::Name(name, inner) => {
                inner.verify_server_cert(leaf, intermediates, name, ocsp, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_versions_before_1_2_are_rejected() {
        let between = |oldest: &str, newest: &str| {
            let tls = TlsConfig {
                min_version: oldest.to_owned(),
                max_version: newest.to_owned(),
                ..TlsConfig::default()
            };
            versions(&tls).map(|versions| versions.len()).map_err(|why| why.to_string())
        };
        for (oldest, newest, count) in [
            ("", "", 2),
            ("TLS10", "", 2),
            ("TLS13", "", 1),
            ("", "TLS12", 1),
            ("TLS10", "TLS12", 1),
        ] {
            assert_eq!(between(oldest, newest), Ok(count), "{oldest} {newest}");
        }
        for (oldest, newest) in [("", "TLS11"), ("TLS13", "TLS12"), ("TLS1.2", ""), ("", "tls13")] {
            let message = between(oldest, newest).expect_err("leaves none");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
