//! TLS of the webhook: versions and cipher suites from upstream's flags, and a certificate that can be replaced
//! without dropping connections.

use std::{str::FromStr, sync::Arc};

use parking_lot::RwLock;
use plimsoll_storage::prometheus::transport::tls::parse_certificates;
use rustls::{
    CipherSuite, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key cannot be parsed.
    #[error("{what} is not a PEM {wanted}")]
    Unreadable { what: String, wanted: &'static str },
    /// Key and certificate do not match, or the key type is not supported.
    #[error("the key cannot be used with the certificate: {0}")]
    Mismatch(String),
    #[error("invalid TLS settings: {0}")]
    Settings(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

impl FromStr for MinVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "tls1_2" => Ok(Self::Tls12),
            "tls1_3" => Ok(Self::Tls13),
            _ => Err("use tls1_2 or tls1_3".to_owned()),
        }
    }
}

/// Cipher suites of TLS 1.2, by Go's names. As in Go, those of TLS 1.3 are not configurable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CipherSuites {
    /// `None` selects all.
    selected: Option<Vec<CipherSuite>>,
    /// Names that Go supports, but that are too weak to be supported here.
    pub weak: Vec<String>,
    /// Unknown names; upstream ignores them as well.
    pub unknown: Vec<String>,
}

/// Suites of TLS 1.3: accepted in the list without effect.
const TLS13_SUITES: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
/// Suites that Go supports and rustls does not: without forward secrecy or without authenticated encryption.
const WEAK_SUITES: [&str; 6] = [
    "TLS_RSA_WITH_",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_",
    "TLS_ECDHE_RSA_WITH_3DES_",
];

impl CipherSuites {
    /// Parses names separated by commas or colons. If none of them is supported, all suites are used.
    pub fn parse(list: &str) -> Self {
        let (mut ciphers, mut selected, mut has_known) = (Self::default(), Vec::new(), false);
        for name in list.split([',', ':']).map(str::trim).filter(|name| !name.is_empty()) {
            if let Some(suite) = tls12_suite(name) {
                selected.push(suite);
                has_known = true;
            } else if TLS13_SUITES.contains(&name) {
                has_known = true;
            } else if WEAK_SUITES.iter().any(|weak| name.starts_with(weak)) {
                ciphers.weak.push(name.to_owned());
            } else {
                ciphers.unknown.push(name.to_owned());
            }
        }
        ciphers.selected = has_known.then_some(selected);
        ciphers
    }

    fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if let Some(selected) = &self.selected {
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || selected.contains(&suite.suite()));
        }
        provider
    }
}

/// The suite with this name. Go has two names for the ChaCha20 suites.
fn tls12_suite(name: &str) -> Option<CipherSuite> {
    let is_named = |suite: &CipherSuite| {
        let full_name = suite.as_str().unwrap_or_default();
        full_name == name
            || (name.ends_with("_CHACHA20_POLY1305")
                && full_name.strip_suffix("_SHA256") == Some(name))
    };
    let suites = ring::ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_none());
    suites.map(rustls::SupportedCipherSuite::suite).find(is_named)
}

/// The certificate for new connections. Open connections keep the one that they started with.
#[derive(Debug, Default)]
pub struct ReloadableCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ReloadableCertificate {
    pub fn set(&self, key: CertifiedKey) {
        *self.0.write() = Some(Arc::new(key));
    }

    pub fn is_empty(&self) -> bool {
        self.0.read().is_none()
    }
}

impl ResolvesServerCert for ReloadableCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

/// Builds a certified key from a certificate chain and its private key, both in PEM.
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let unreadable = |what: &str, wanted| TlsError::Unreadable { what: what.to_owned(), wanted };
    let chain =
        parse_certificates(chain).ok_or_else(|| unreadable("the certificate", "certificate"))?;
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|_| unreadable("the key", "private key"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| TlsError::Mismatch(error.to_string()))
}

pub fn server_config(
    minimum: MinVersion,
    ciphers: &CipherSuites,
    certificate: Arc<ReloadableCertificate>,
) -> Result<ServerConfig, TlsError> {
    static TLS12_AND_TLS13: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    static ONLY_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];
    let provider = ciphers.provider();
    let supports_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
    let versions: &[_] = match minimum {
        MinVersion::Tls12 if supports_tls12 => &TLS12_AND_TLS13,
        _ => &ONLY_TLS13,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Settings(error.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // No session resumption: API servers do not use it, and a resumed session would keep trusting a replaced
    // certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::Time;

    use super::*;
    use crate::cluster::server::certificate::{CertificateSpec, issue};

    #[test]
    fn cipher_suites_have_gos_names_and_unsupported_ones_are_reported() {
        let ecdsa = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        for (list, chosen, weak, unknown) in [
            ("", None, 0, 0),
            (ecdsa, Some(1), 0, 0),
            (
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305:TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
                Some(2),
                0,
                0,
            ),
            ("TLS_AES_128_GCM_SHA256", Some(0), 0, 0),
            ("TLS_RSA_WITH_AES_128_CBC_SHA,nonsense", None, 1, 1),
            ("tls_ecdhe_ecdsa_with_aes_128_gcm_sha256", None, 0, 1),
        ] {
            let read = CipherSuites::parse(list);
            assert_eq!(read.selected.as_ref().map(Vec::len), chosen, "{list}");
            assert_eq!((read.weak.len(), read.unknown.len()), (weak, unknown), "{list}");
            for minimum in [MinVersion::Tls12, MinVersion::Tls13] {
                server_config(minimum, &read, Arc::default()).expect("every combination is valid");
            }
        }
        let one = CipherSuites::parse(ecdsa).provider();
        let old = one.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
        assert_eq!(old, 1);
        assert!(one.cipher_suites.len() > 1, "those of TLS 1.3 stay");
    }

    #[test]
    fn a_key_of_another_certificate_is_rejected() {
        let spec = CertificateSpec {
            names: vec!["a.svc".into()],
            lifetime: std::time::Duration::from_hours(1),
        };
        let now = Time::from_secs(1_800_000_000);
        let (one, two) = (issue(&spec, now).expect("made"), issue(&spec, now).expect("made"));
        certified_key(&one.chain, &one.key).expect("key and certificate match");
        let mixed = certified_key(&one.chain, &two.key).expect_err("they do not");
        assert!(matches!(mixed, TlsError::Mismatch(_)), "{mixed}");
        for (chain, key) in [(&one.key, &one.key), (&one.chain, &one.chain)] {
            let bad = certified_key(chain, key).expect_err("not what it should be");
            assert!(matches!(bad, TlsError::Unreadable { .. }), "{bad}");
        }
    }

    #[test]
    fn the_minimum_tls_version_has_upstreams_names() {
        assert_eq!("".parse(), Ok(MinVersion::Tls12));
        assert_eq!("tls1_3".parse(), Ok(MinVersion::Tls13));
        assert!("tls1_1".parse::<MinVersion>().is_err());
    }
}
