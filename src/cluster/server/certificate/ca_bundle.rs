//! Authorities that somebody trusts, and what they stand for.

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

/// Authorities, each as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaBundle {
    authorities: Vec<Authority>,
}

#[derive(Clone, Debug)]
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
}

/// However it is written, it is the same authority.
impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Authority {}

impl CaBundle {
    /// The authorities of a PEM text. What is none is passed over.
    pub fn parse(pem: &[u8]) -> Self {
        let mut bundle = Self::default();
        let text = String::from_utf8_lossy(pem);
        let mut rest = &*text;
        while let Some((_, after)) = rest.split_once(BEGIN) {
            let Some((content, after)) = after.split_once(END) else { break };
            let written = format!("{BEGIN}{}{END}\n", content.replace('\r', ""));
            if let Ok(der) = CertificateDer::from_pem_slice(written.as_bytes()) {
                bundle.add(Authority { pem: written, der });
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

    /// These, then those of another that are not among them.
    #[must_use]
    pub fn union(mut self, others: &Self) -> Self {
        for authority in &others.authorities {
            self.add(authority.clone());
        }
        self
    }

    /// Those that are not among others.
    #[must_use]
    pub fn difference(mut self, others: &Self) -> Self {
        self.authorities.retain(|authority| !others.authorities.contains(authority));
        self
    }

    /// Those that hold at this moment or later, or of which that cannot be told.
    #[must_use]
    pub fn unexpired(mut self, now: Time) -> Self {
        self.authorities.retain(|authority| {
            Validity::from_der(&authority.der).is_none_or(|validity| now <= validity.not_after)
        });
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.authorities.len()
    }

    /// Whether all of another are among these.
    pub fn contains(&self, others: &Self) -> bool {
        others.authorities.iter().all(|authority| self.authorities.contains(authority))
    }

    /// Each of them by itself.
    pub fn iter(&self) -> impl Iterator<Item = Self> {
        self.authorities.iter().map(|authority| Self { authorities: vec![authority.clone()] })
    }

    /// As one PEM text.
    pub fn to_pem(&self) -> Vec<u8> {
        let written = self.authorities.iter().map(|authority| &*authority.pem);
        written.collect::<String>().into_bytes()
    }

    /// As roots for a client.
    pub fn root_store(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            self.authorities.iter().map(|authority| authority.der.clone()),
        );
        roots
    }

    /// Whether who trusts these believes that chain under this name at this moment; otherwise why not.
    pub fn verify(&self, chain: &[u8], name: &str, now: Time) -> Result<(), String> {
        let chain = parse_certificates(chain, "the chain").map_err(|why| why.to_string())?;
        let Some((leaf, between)) = chain.split_first() else {
            return Err("the chain is empty".to_owned());
        };
        let roots = self.root_store();
        if roots.is_empty() {
            return Err("no authority is trusted".to_owned());
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|why| why.to_string())?;
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("`{name}` is no name of a server"))?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(
            u64::try_from(now.as_secs()).unwrap_or(0),
        ));
        verifier
            .verify_server_cert(leaf, between, &name, &[], now)
            .map(drop)
            .map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::{CertificateSpec, issue};

    fn authority(now: Time) -> Vec<u8> {
        let wanted =
            CertificateSpec { names: vec!["a.svc".to_owned()], lifetime: Duration::from_hours(1) };
        issue(&wanted, now).expect("made").authority
    }

    #[test]
    fn bundles_add_up_and_keep_what_is_there_once() {
        let now = Time::from_secs(1_800_000_000);
        let (one, two) = (authority(now), authority(now.later(Duration::from_hours(2))));
        let windows = String::from_utf8(one.clone()).expect("PEM").replace('\n', "\r\n");
        let (first, second) = (CaBundle::parse(&one), CaBundle::parse(&two));
        assert_eq!(first, CaBundle::parse(windows.as_bytes()), "however it is written");
        let both = first.clone().union(&second).union(&first);
        assert_eq!(both.len(), 2);
        assert_eq!(CaBundle::parse(&both.to_pem()), both);
        assert_eq!(both.clone().difference(&first), second);
        assert!(both.contains(&first) && both.contains(&second) && !first.contains(&second));
        let later = both.unexpired(now.later(Duration::from_mins(90)));
        assert_eq!(later, second, "what has ended is let go");
    }

    #[test]
    fn what_is_no_certificate_is_passed_over() {
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
