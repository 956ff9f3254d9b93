//! Keys and certificates of testbeds: generated for each run, so the repository contains no secrets.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

/// A CA that signs certificates for servers on loopback.
pub struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
pub struct CertificateWithKey {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

// === impl CertificateAuthority ===

impl CertificateAuthority {
    /// Creates a CA.
    pub fn new(name: &str) -> Self {
        let mut params = certificate_params(name, Vec::new());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer =
            CertifiedIssuer::self_signed(params, new_key()).expect("a self-signed authority");
        Self { issuer }
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for a server, or a client, on loopback.
    pub fn sign(&self, name: &str) -> CertificateWithKey {
        self.sign_with_alternative_names(name, &[])
    }

    /// The same with additional DNS names.
    pub fn sign_with_alternative_names(&self, name: &str, names: &[&str]) -> CertificateWithKey {
        let names = ["localhost", "127.0.0.1"].iter().chain(names);
        let names = names.map(ToString::to_string).collect();
        let key = new_key();
        let certificate = certificate_params(name, names)
            .signed_by(&key, &self.issuer)
            .expect("a signed certificate");
        CertificateWithKey { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Generates a private key: ECDSA, which Kubernetes supports and which is fast to generate.
pub fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

fn certificate_params(name: &str, alternatives: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(alternatives).expect("names are ASCII");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
