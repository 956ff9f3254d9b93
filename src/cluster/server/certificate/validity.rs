//! The validity period of a certificate, parsed from its DER.

use plimsoll_core::types::Time;
use rustls::pki_types::CertificateDer;

use super::{CertificateError, parse_certificates};

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The explicit version tag, which X.509 v1 certificates omit.
const VERSION: u8 = 0xa0;

/// The validity period, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the period.
    pub not_before: Time,
    /// End of the period.
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
        let (certificate, _) = read_tagged(certificate, SEQUENCE)?;
        let (mut signed, _) = read_tagged(certificate, SEQUENCE)?;
        if signed.first() == Some(&VERSION) {
            signed = read_element(signed)?.2;
        }
        let (_, rest) = read_tagged(signed, INTEGER)?;
        let (_, rest) = read_tagged(rest, SEQUENCE)?;
        let (_, rest) = read_tagged(rest, SEQUENCE)?;
        let (validity, _) = read_tagged(rest, SEQUENCE)?;
        let (not_before, rest) = read_time(validity)?;
        let (not_after, _) = read_time(rest)?;
        Some(Self { not_before, not_after })
    }

    /// Whether `now` is within the period.
    pub fn contains(&self, now: Time) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// Reads one DER element: its tag, its content and the remaining bytes.
fn read_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Certificates are shorter than 16 MiB, so three length bytes are enough.
        let count = usize::from(first & 0x7f);
        let (digits, rest) = rest.split_at_checked(count).filter(|_| (1..=3).contains(&count))?;
        (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn read_tagged(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = read_element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Reads a time: `YYMMDDHHMMSSZ` up to 2049 and `YYYYMMDDHHMMSSZ` from 2050, the only forms in certificates (RFC
/// 5280).
fn read_time(bytes: &[u8]) -> Option<(Time, &[u8])> {
    let (tag, content, rest) = read_element(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, text) = match tag {
        UTC_TIME => {
            let (year, text) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text)
        }
        GENERALIZED_TIME => {
            let (year, text) = text.split_at_checked(4)?;
            (year.parse().ok()?, text)
        }
        _ => return None,
    };
    if text.len() != 10 {
        return None;
    }
    let part = |at: usize| text.get(at..at + 2)?.parse::<i8>().ok();
    let date = jiff::civil::Date::new(year, part(0)?, part(2)?).ok()?;
    let clock = jiff::civil::Time::new(part(4)?, part(6)?, part(8)?, 0).ok()?;
    let at = date.to_datetime(clock).to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some((Time::from(at.timestamp()), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(text: &str) -> Time {
        Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
    }

    #[test]
    fn both_asn1_time_formats_are_parsed() {
        for (tag, text, expected) in [
            (UTC_TIME, "260102030405Z", Some("2026-01-02T03:04:05Z")),
            (UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (UTC_TIME, "500101000000Z", Some("1950-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "20500101000000Z", Some("2050-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "99991231235959Z", None),
            (UTC_TIME, "260102030405", None),
            (UTC_TIME, "2601020304Z", None),
            (UTC_TIME, "261302030405Z", None),
            (SEQUENCE, "260102030405Z", None),
        ] {
            let mut bytes = vec![tag, text.len() as u8];
            bytes.extend(text.bytes());
            let read = read_time(&bytes).map(|(time, _)| time);
            // The year 9999 is outside the range of `Time`.
            if text.starts_with("9999") {
                continue;
            }
            assert_eq!(read, expected.map(seconds), "{text}");
        }
    }

    #[test]
    fn the_validity_of_a_certificate_is_read_back() {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        for (begins, ends) in [(1_700_000_000, 1_700_086_400), (0, 4_000_000_000_u64)] {
            let mut params = rcgen::CertificateParams::new(vec!["a.b.svc".into()]).expect("a name");
            params.not_before = epoch + std::time::Duration::from_secs(begins);
            params.not_after = epoch + std::time::Duration::from_secs(ends);
            let key = rcgen::KeyPair::generate().expect("a key");
            let made = params.self_signed(&key).expect("a certificate");
            let expected = Validity {
                not_before: Time::from_secs(begins as i64),
                not_after: Time::from_secs(ends as i64),
            };
            assert_eq!(Validity::from_der(made.der()), Some(expected));
            assert_eq!(Validity::from_pem(made.pem().as_bytes(), "it"), Ok(expected));
        }
        let error = Validity::from_pem(b"nothing", "tls.crt").expect_err("no PEM");
        assert!(error.to_string().contains("tls.crt"), "{error}");
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
