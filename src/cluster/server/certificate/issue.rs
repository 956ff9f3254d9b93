//! Issues a server certificate together with a new CA. The CA's private key signs this one certificate and is then
//! discarded: a reader of the stored Secret can impersonate this server, but cannot sign for any other name.

use std::{fmt, time::Duration};

use plimsoll_core::types::Time;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::CertificateError;

/// Tolerated clock skew of clients, at most a hundredth of the lifetime.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// Upper bound on lifetimes: years of five digits cannot be encoded.
const MAX_LIFETIME: Duration = Duration::from_hours(100 * 365 * 24);
/// Prefix of the CA's common name. The issue time is appended, so that two CAs do not share a name.
const AUTHORITY: &str = "plimsoll-webhook-ca";

/// A server certificate, its key and its CA, all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
    /// The CA certificate that clients must trust.
    pub authority: Vec<u8>,
}

/// Omits the keys, so that they do not reach logs.
impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// DNS names or IP addresses of the server.
    pub names: Vec<String>,
    pub lifetime: Duration,
}

pub fn issue(spec: &CertificateSpec, now: Time) -> Result<IssuedCertificate, CertificateError> {
    let attempt = || {
        let lifetime = spec.lifetime.min(MAX_LIFETIME);
        let not_before = now.earlier(CLOCK_SKEW.min(lifetime / 100)).as_secs();
        let not_after = now.later(lifetime).as_secs();
        let authority = issue_authority(not_before, not_after, now)?;
        let key = KeyPair::generate()?;
        let chain = params(spec, not_before, not_after)?.signed_by(&key, &authority)?;
        Ok::<_, rcgen::Error>(IssuedCertificate {
            chain: chain.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            authority: authority.pem().into_bytes(),
        })
    };
    attempt().map_err(|error| CertificateError::Issue {
        names: spec.names.join(", "),
        why: error.to_string(),
    })
}

fn issue_authority(
    not_before: i64,
    not_after: i64,
    now: Time,
) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("{AUTHORITY}@{}", now.as_secs()));
    // It signs server certificates itself, and no intermediate CAs.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, not_before, not_after);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn params(
    spec: &CertificateSpec,
    not_before: i64,
    not_after: i64,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(spec.names.clone())?;
    if let Some(name) = spec.names.first() {
        // Common names are limited to 64 characters. Clients verify the SANs and ignore this name.
        params
            .distinguished_name
            .push(DnType::CommonName, name.chars().take(64).collect::<String>());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, not_before, not_after);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, not_before: i64, not_after: i64) {
    // rcgen does not re-export its time type, so start from a value that it returns.
    let at = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    };
    (params.not_before, params.not_after) = (at(not_before), at(not_after));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::server::certificate::{CaBundle, Validity};

    const NAME: &str = "vpa-webhook.kube-system.svc";

    #[test]
    fn a_certificate_is_trusted_with_its_ca_while_it_is_valid() {
        let now = Time::from_secs(1_800_000_000);
        let names = vec![NAME.to_owned(), "10.0.0.1".to_owned()];
        let spec = CertificateSpec { names, lifetime: Duration::from_hours(24) };
        let (one, two) = (issue(&spec, now).expect("made"), issue(&spec, now).expect("made"));
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
        assert_eq!(validity.not_after, now.later(spec.lifetime));
        assert!(validity.not_before < now, "clients' clocks may be behind");
    }

    #[test]
    fn any_certificate_lifetime_is_possible() {
        for lifetime in [Duration::from_secs(2), Duration::MAX] {
            let spec = CertificateSpec { names: vec![NAME.to_owned()], lifetime };
            let pair = issue(&spec, Time::from_secs(1_800_000_000)).expect("made");
            assert!(Validity::from_pem(&pair.chain, "it").is_ok());
        }
        let spec =
            CertificateSpec { names: vec!["\u{e9}".to_owned()], lifetime: Duration::from_secs(9) };
        let error = issue(&spec, Time::EPOCH).expect_err("names are ASCII");
        assert!(matches!(error, CertificateError::Issue { .. }));
    }

    #[test]
    fn debug_output_contains_no_key() {
        let spec =
            CertificateSpec { names: vec![NAME.to_owned()], lifetime: Duration::from_secs(9) };
        let pair = issue(&spec, Time::EPOCH).expect("made");
        assert!(!format!("{pair:?}").contains("PRIVATE"));
    }
}
