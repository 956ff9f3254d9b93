//! The validity period of a certificate, parsed from its DER.

use plimsoll_core::types::Time;
use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509CertificateParser, nom::Parser as _};

use super::{CertificateError, parse_certificates};

/// The validity period, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Time,
    pub not_after: Time,
}

impl Validity {
    /// The validity of the first certificate in a PEM text. `what` names the source in errors.
    pub fn from_pem(pem: &[u8], what: &str) -> Result<Self, CertificateError> {
        let certificates = parse_certificates(pem, what)?;
        let first = certificates.first().ok_or_else(|| CertificateError::Empty(what.to_owned()))?;
        Self::from_der(first).ok_or_else(|| CertificateError::Malformed(what.to_owned()))
    }

    /// The validity of a DER certificate; `None` if it cannot be parsed.
    pub fn from_der(certificate: &CertificateDer<'_>) -> Option<Self> {
        // Only the period matters here: a certificate with extensions that TLS accepts must not be rejected because of them.
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (_, certificate) = parser.parse(certificate).ok()?;
        let [not_before, not_after] =
            [certificate.validity.not_before, certificate.validity.not_after]
                .map(|time| Time::from_secs(time.timestamp()));
        Some(Self { not_before, not_after })
    }

    pub fn contains(&self, now: Time) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(text: &str) -> Time {
        Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
    }

    fn made(begins: Time, ends: Time) -> rcgen::Certificate {
        let epoch = rcgen::date_time_ymd(1950, 1, 1);
        let since = |time: Time| {
            epoch + std::time::Duration::from_secs((time.as_secs() + 631_152_000) as u64)
        };
        let mut params = rcgen::CertificateParams::new(vec!["a.b.svc".into()]).expect("a name");
        (params.not_before, params.not_after) = (since(begins), since(ends));
        let key = rcgen::KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate")
    }

    #[test]
    fn the_validity_of_a_certificate_is_read_back() {
        for (begins, ends) in [
            ("2023-11-14T22:13:20Z", "2023-11-15T22:13:20Z"),
            ("1970-01-01T00:00:00Z", "2096-10-02T07:06:40Z"),
            // The first and the last time in the form with two digits of the year.
            ("1950-01-01T00:00:00Z", "2049-12-31T23:59:59Z"),
            ("2026-01-02T03:04:05Z", "2050-01-01T00:00:00Z"),
        ] {
            let expected = Validity { not_before: seconds(begins), not_after: seconds(ends) };
            let made = made(expected.not_before, expected.not_after);
            assert_eq!(Validity::from_der(made.der()), Some(expected));
            assert_eq!(Validity::from_pem(made.pem().as_bytes(), "it"), Ok(expected));
        }
        let error = Validity::from_pem(b"nothing", "tls.crt").expect_err("no PEM");
        assert!(error.to_string().contains("tls.crt"), "{error}");
    }

    #[test]
    fn a_certificate_with_invalid_times_is_malformed() {
        let (text, now) = ("260102030405Z", seconds("2026-01-02T03:04:05Z"));
        let der = made(now, now).der().to_vec();
        let at = der.windows(text.len()).position(|part| part == text.as_bytes()).expect("a time");
        for (bad, is_malformed) in [
            (text, false),
            ("261302030405Z", true),
            ("260132030405Z", true),
            ("260102250405Z", true),
            ("260102030405+", true),
            ("2601020304Z05", true),
        ] {
            let mut der = der.clone();
            der[at..at + bad.len()].copy_from_slice(bad.as_bytes());
            assert_eq!(Validity::from_der(&der.into()).is_none(), is_malformed, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn validity_parsing_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Validity::from_der(&CertificateDer::from(bytes));
        }

        #[test]
        fn validity_parsing_never_panics_on_a_damaged_certificate(at in 0_usize..2000, byte in any::<u8>()) {
            let key = rcgen::KeyPair::generate().expect("a key");
            let params = rcgen::CertificateParams::new(vec!["a".into()]).expect("a name");
            let mut bytes = params.self_signed(&key).expect("made").der().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Validity::from_der(&CertificateDer::from(bytes));
        }
    }
}
