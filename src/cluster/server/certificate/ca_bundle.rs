//! A bundle of trusted certificate authorities.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::{Validity, parse_certificates};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Certificate authorities, each with its original PEM text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaBundle {
    pub(crate) authorities: Vec<Authority>,
}

#[derive(Clone, Debug)]
pub(crate) struct Authority {
    pem: String,
    der: CertificateDer<'static>,
}

/// Compares the DER: the same authority may be encoded differently in PEM.
impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Authority {}

impl CaBundle {
    /// Parses the authorities of a PEM text. Skips anything that is not a certificate.
    pub fn parse(pem: &[u8]) -> Self {
        let mut bundle = Self::default();
        let text = String::from_utf8_lossy(pem);
        let mut rest = &*text;
        while let Some((_, after)) = rest.split_once(BEGIN) {
            let Some((content, after)) = after.split_once(END) else { break };
            let pem_block = format!("{BEGIN}{}{END}\n", content.replace('\r', ""));
            if let Ok(der) = CertificateDer::from_pem_slice(pem_block.as_bytes()) {
                bundle.add(Authority { pem: pem_block, der });
            }
            rest = after;
        }
        bundle
    }

    fn add(&mut self, authority: Authority) {
        if !self.authorities.contains(&authority) {
            self.authorities.push(authority);
        }
    }

    /// Adds the authorities of `others` that are not in this bundle.
    #[must_use]
    pub fn union(mut self, others: &Self) -> Self {
        for authority in &others.authorities {
            self.add(authority.clone());
        }
        self
    }

    /// Removes the authorities that are in `others`.
    #[must_use]
    pub fn difference(mut self, others: &Self) -> Self {
        self.authorities.retain(|authority| !others.authorities.contains(authority));
        self
    }

    /// Removes expired authorities. Keeps those whose validity cannot be parsed.
    #[must_use]
    pub fn unexpired(mut self, now: Time) -> Self {
        self.authorities.retain(|authority| {
            Validity::from_der(&authority.der).is_none_or(|validity| now <= validity.not_after)
        });
        self
    }

    pub fn is_empty(&self) -> bool {
        self.authorities.is_empty()
    }

    pub fn contains(&self, others: &Self) -> bool {
        others.authorities.iter().all(|authority| self.authorities.contains(authority))
    }

    /// Iterates over the authorities, each as a bundle of one.
    pub fn iter(&self) -> impl Iterator<Item = Self> {
        self.authorities.iter().map(|authority| Self { authorities: vec![authority.clone()] })
    }

    pub fn to_pem(&self) -> Vec<u8> {
        let blocks = self.authorities.iter().map(|authority| &*authority.pem);
        blocks.collect::<String>().into_bytes()
    }

    /// The authorities as trust roots of a TLS client.
    pub fn root_store(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            self.authorities.iter().map(|authority| authority.der.clone()),
        );
        roots
    }

    /// Verifies a certificate chain against this bundle for a server name, at the given time.
    pub fn verify(&self, chain: &[u8], name: &str, now: Time) -> Result<(), String> {
        let chain = parse_certificates(chain, "the chain").map_err(|error| error.to_string())?;
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err("the chain is empty".to_owned());
        };
        let roots = self.root_store();
        if roots.is_empty() {
            return Err("the CA bundle has no valid certificate".to_owned());
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("`{name}` is not a valid server name"))?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(
            u64::try_from(now.as_secs()).unwrap_or(0),
        ));
        verifier
            .verify_server_cert(leaf, intermediates, &name, &[], now)
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::{CertificateSpec, issue};

    fn authority(now: Time) -> Vec<u8> {
        let spec =
            CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: Duration::from_hours(1) };
        issue(&spec, now).expect("issued").authority
    }

    #[test]
    fn ca_bundles_merge_without_duplicates() {
        let now = Time::from_secs(1_800_000_000);
        let (one, two) = (authority(now), authority(now.later(Duration::from_hours(2))));
        let windows = String::from_utf8(one.clone()).expect("PEM").replace('\n', "\r\n");
        let (first, second) = (CaBundle::parse(&one), CaBundle::parse(&two));
        assert_eq!(first, CaBundle::parse(windows.as_bytes()), "line endings do not matter");
        let both = first.clone().union(&second).union(&first);
        assert_eq!(both.iter().count(), 2);
        assert_eq!(CaBundle::parse(&both.to_pem()), both);
        assert_eq!(both.clone().difference(&first), second);
        assert!(both.contains(&first) && both.contains(&second) && !first.contains(&second));
        let later = both.unexpired(now.later(Duration::from_mins(90)));
        assert_eq!(later, second, "expired authorities are removed");
    }

    #[test]
    fn text_that_is_no_certificate_is_skipped() {
        for text in [
            "",
            "nothing",
            BEGIN,
            "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        ] {
            let bundle = CaBundle::parse(text.as_bytes());
            assert!(bundle.is_empty(), "{text}");
            assert!(bundle.verify(text.as_bytes(), "a.svc", Time::EPOCH).is_err(), "{text}");
        }
    }
}
