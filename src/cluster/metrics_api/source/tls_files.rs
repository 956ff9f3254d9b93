//! TLS for recommenders: the files of a TLS configuration, and the client configuration that follows from them.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    version::{TLS12, TLS13},
};

use crate::cluster::server::certificate::CaBundle;
use plimsoll_core::api::scale_target::TlsConfig;

/// Maximum size of a file. The author of an object may name any file of our own container.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of the files of a TLS configuration.
#[derive(Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    authorities: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Reads the files. Blocks.
    pub(super) fn load(tls: &TlsConfig) -> Result<Self, String> {
        if tls.cert_file.is_empty() != tls.key_file.is_empty() {
            return Err("certFile and keyFile must be set together".to_owned());
        }
        Ok(Self {
            authorities: read_file("caFile", &tls.ca_file)?,
            certificate: read_file("certFile", &tls.cert_file)?,
            key: read_file("keyFile", &tls.key_file)?,
        })
    }
}

/// Reads a file, if it is configured.
fn read_file(what: &str, path: &str) -> Result<Option<Vec<u8>>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    let error = |why: std::io::Error| format!("{what} {path} cannot be read: {why}");
    // A special file might never end.
    if !Path::new(path).metadata().map_err(error)?.is_file() {
        return Err(format!("{what} {path} is not a regular file"));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(error)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(error)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{what} {path} is larger than {} MiB", MAX_FILE_BYTES >> 20));
    }
    Ok(Some(content))
}

/// The client configuration of a TLS configuration.
pub(super) fn client_config(tls: &TlsConfig, files: &TlsFiles) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let error = |why: Error| format!("tls: {why}");
    let verifier = verifier(tls, files, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(tls)?)
        .map_err(error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let TlsConfig { cert_file, key_file, .. } = tls;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| format!("certFile {cert_file} has no PEM certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| format!("keyFile {key_file} has no PEM private key"))?;
    builder.with_client_auth_cert(chain, key).map_err(|why| match why {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            format!("tls: private key does not match public key: {key_file} is not of {cert_file}")
        }
        other => format!("tls: {cert_file} and {key_file} cannot be used: {other}"),
    })
}

/// A client configuration for plain HTTP: works in an image without certificates too.
pub(super) fn client_config_without_roots() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| format!("tls: {why}"))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The allowed TLS versions.
fn versions(tls: &TlsConfig) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let number = |field: &str, text: &str, unset: u8| match text {
        "" => Ok(unset),
        "TLS10" => Ok(10),
        "TLS11" => Ok(11),
        "TLS12" => Ok(12),
        "TLS13" => Ok(13),
        other => Err(format!("{field} {other:?} is not one of TLS10, TLS11, TLS12, TLS13")),
    };
    let oldest = number("minVersion", &tls.min_version, 10)?;
    let newest = number("maxVersion", &tls.max_version, 13)?;
    let supported = [(12, &TLS12), (13, &TLS13)];
    let allowed = supported.into_iter().filter(|(version, _)| (oldest..=newest).contains(version));
    let allowed: Vec<_> = allowed.map(|(_, version)| version).collect();
    if allowed.is_empty() {
        let TlsConfig { min_version, max_version, .. } = tls;
        return Err(format!(
            "minVersion {min_version:?} and maxVersion {max_version:?} allow neither TLS12 nor TLS13"
        ));
    }
    Ok(allowed)
}

fn verifier(
    tls: &TlsConfig,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let roots = match &files.authorities {
        Some(pem) => {
            let roots = CaBundle::parse(pem).root_store();
            if roots.is_empty() {
                return Err(format!("caFile {} has no PEM certificate", tls.ca_file));
            }
            Some(roots)
        }
        None => None,
    };
    if tls.insecure_skip_verify {
        return Ok(Arc::new(InsecureVerifier(Arc::clone(provider))));
    }
    let chain_verifier: Arc<dyn ServerCertVerifier> = match roots {
        Some(roots) => {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|why| format!("caFile {} cannot be used: {why}", tls.ca_file))?
        }
        None => Arc::new(rustls_platform_verifier::Verifier::new(Arc::clone(provider)).map_err(
            |why| format!("tls: {why}; give a caFile if the system has no certificates"),
        )?),
    };
    if tls.server_name.is_empty() {
        return Ok(chain_verifier);
    }
    let name = ServerName::try_from(tls.server_name.clone())
        .map_err(|_| format!("serverName {:?} is not a valid server name", tls.server_name))?;
    Ok(Arc::new(ServerNameVerifier { name, inner: chain_verifier }))
}

/// Verifies the certificate against a configured name instead of the name in the URL.
#[derive(Debug)]
struct ServerNameVerifier {
    name: ServerName<'static>,
    inner: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for ServerNameVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner.verify_server_cert(leaf, between, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Accepts any certificate, if the server has its key.
#[derive(Debug)]
struct InsecureVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for InsecureVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if leaf.is_empty() {
            return Err(CertificateError::BadEncoding.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
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
            versions(&tls).map(|versions| versions.len())
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
