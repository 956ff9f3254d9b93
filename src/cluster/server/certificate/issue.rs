//! Makes a server's certificate and the authority that stands for it. The authority's key signs once and is gone: who
//! reads what is stored can pretend to be this server, and nobody else.

use std::{fmt, time::Duration};

use plimsoll_core::types::Time;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::CertificateError;

/// Clocks of others may be late by so much, or by a hundredth of the lifetime where that is less.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Nothing holds longer: years of five digits cannot be written.
const MAX_LIFETIME: Duration = Duration::from_hours(100 * 365 * 24);
/// What authorities are called, with when they were made: two of one name would be told apart by their keys alone.
const AUTHORITY: &str = "plimsoll-webhook-ca";

/// A server's certificate, its key, and the authority that stands for it; all PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The certificate, with what comes between it and the authority.
    pub chain: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// What others must trust to believe it.
    pub authority: Vec<u8>,
}

/// Keys stay out of logs.
impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

/// What is wanted of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The names, or addresses, that the server is called by.
    pub names: Vec<String>,
    /// How long it holds.
    pub lifetime: Duration,
}

/// Makes a pair under a new authority.
pub fn issue(wanted: &CertificateSpec, now: Time) -> Result<IssuedCertificate, CertificateError> {
    let attempt = || {
        let lifetime = wanted.lifetime.min(MAX_LIFETIME);
        let begins = now.earlier(CLOCK_SKEW.min(lifetime / 100)).as_secs();
        let ends = now.later(lifetime).as_secs();
        let authority = issue_authority(begins, ends, now)?;
        let key = KeyPair::generate()?;
        let chain = params(wanted, begins, ends)?.signed_by(&key, &authority)?;
        Ok::<_, rcgen::Error>(IssuedCertificate {
            chain: chain.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            authority: authority.pem().into_bytes(),
        })
    };
    attempt().map_err(|why| CertificateError::Issue {
        names: wanted.names.join(", "),
        why: why.to_string(),
    })
}

fn issue_authority(
    begins: i64,
    ends: i64,
    now: Time,
) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("{AUTHORITY}@{}", now.as_secs()));
    // It signs servers itself, and no other authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, begins, ends);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn params(
    wanted: &CertificateSpec,
    begins: i64,
    ends: i64,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(wanted.names.clone())?;
    if let Some(name) = wanted.names.first() {
        // Common names hold 64 characters; nobody reads this one who checks certificates.
        params
            .distinguished_name
            .push(DnType::CommonName, name.chars().take(64).collect::<String>());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, begins, ends);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, begins: i64, ends: i64) {
    // The library's kind of time has no name here, and is reached from the one that it gives.
    let at = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    (params.not_before, params.not_after) = (at(begins), at(ends));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::{CaBundle, Validity};

    const NAME: &str = "vpa-webhook.kube-system.svc";

    #[test]
    fn a_pair_is_believed_by_who_trusts_its_authority_as_long_as_it_holds() {
        let now = Time::from_secs(1_800_000_000);
        let names = vec![NAME.to_owned(), "10.0.0.1".to_owned()];
        let wanted = CertificateSpec { names, lifetime: Duration::from_hours(24) };
        let (one, two) = (issue(&wanted, now).expect("made"), issue(&wanted, now).expect("made"));
        let trusts =
            |bundle: &IssuedCertificate, chain: &IssuedCertificate, name: &str, at: Time| {
                CaBundle::parse(&bundle.authority).verify(&chain.chain, name, at)
            };
        assert_eq!(trusts(&one, &one, NAME, now), Ok(()));
        assert_eq!(trusts(&one, &one, "10.0.0.1", now), Ok(()));
        assert!(trusts(&one, &two, NAME, now).is_err(), "of another authority");
        assert!(trusts(&one, &one, "other.kube-system.svc", now).is_err());
        assert!(trusts(&one, &one, NAME, now.later(Duration::from_hours(25))).is_err());
        let validity = Validity::from_pem(&one.chain, "it").expect("a certificate");
        assert_eq!(validity.not_after, now.later(wanted.lifetime));
        assert!(validity.not_before < now, "clocks of others may be late");
    }

    #[test]
    fn no_lifetime_is_too_long_or_too_short() {
        for lifetime in [Duration::from_secs(2), Duration::MAX] {
            let wanted = CertificateSpec { names: vec![NAME.to_owned()], lifetime };
            let pair = issue(&wanted, Time::from_secs(1_800_000_000)).expect("made");
            assert!(Validity::from_pem(&pair.chain, "it").is_ok());
        }
        let wanted =
            CertificateSpec { names: vec!["\u{e9}".to_owned()], lifetime: Duration::from_secs(9) };
        let error = issue(&wanted, Time::EPOCH).expect_err("names are ASCII");
        assert!(matches!(error, CertificateError::Issue { .. }));
    }

    #[test]
    fn a_key_is_not_written_into_logs() {
        let wanted =
            CertificateSpec { names: vec![NAME.to_owned()], lifetime: Duration::from_secs(9) };
        let pair = issue(&wanted, Time::EPOCH).expect("made");
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }
}
