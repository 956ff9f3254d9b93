//! Signs the assertion of a Google service account with its key (RFC 7523).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{rand::SystemRandom, rsa, signature};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::json;

use super::super::Secret;
use plimsoll_core::types::Time;

/// The longest lifetime that Google accepts.
const ASSERTION_LIFETIME_SECONDS: i64 = 3600;

#[derive(Deserialize)]
pub(super) struct ServiceAccount {
    client_email: String,
    private_key_id: Option<String>,
    private_key: String,
    pub(super) token_uri: String,
}

impl ServiceAccount {
    /// Returns a signed assertion that is valid for an hour.
    pub(super) fn assertion(&self, scope: &str, now: Time) -> Result<Secret, &'static str> {
        let invalid_key = "its private_key is not an RSA key in PKCS#8 format";
        let der = PrivatePkcs8KeyDer::from_pem_slice(self.private_key.as_bytes())
            .map_err(|_| invalid_key)?;
        let key = rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| invalid_key)?;
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.private_key_id });
        let claims = json!({
            "iss": self.client_email,
            "scope": scope,
            "aud": self.token_uri,
            "iat": now.as_secs(),
            "exp": now.as_secs() + ASSERTION_LIFETIME_SECONDS,
        });
        let encoded = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let signing_input = format!(
            "{}.{}",
            encoded(header.to_string().as_bytes()),
            encoded(claims.to_string().as_bytes())
        );
        let mut signed = vec![0; key.public().modulus_len()];
        key.sign(
            &signature::RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            signing_input.as_bytes(),
            &mut signed,
        )
        .map_err(|_| "signing with its private_key failed")?;
        Ok(format!("{signing_input}.{}", encoded(&signed)).into())
    }
}
