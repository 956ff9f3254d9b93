//! Selects which of several certificates to serve, and decides when to renew.
//!
//! A new certificate is served once API servers have had time to pick up its CA. Until then the previous one is
//! served, as long as it is valid.

use std::time::Duration;

use plimsoll_core::types::Time;

use super::Validity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub validity: Validity,
    /// How long API servers have been known to trust its CA; `None` if they are not known to.
    pub trusted_for: Option<Duration>,
}

/// Selects a certificate from candidates sorted newest first: the newest whose CA has been trusted for at least
/// `settle`, else the oldest whose CA is trusted, else the newest that is valid.
pub fn select_certificate(
    newest_first: &[Candidate],
    now: Time,
    settle: Duration,
) -> Option<usize> {
    let find = |matches: &dyn Fn(&Candidate) -> bool| {
        newest_first
            .iter()
            .position(|candidate| candidate.validity.contains(now) && matches(candidate))
    };
    find(&|candidate| candidate.trusted_for.is_some_and(|trusted| trusted >= settle))
        .or_else(|| {
            newest_first.iter().rposition(|candidate| {
                candidate.validity.contains(now) && candidate.trusted_for.is_some()
            })
        })
        .or_else(|| find(&|_| true))
        .or_else(|| (!newest_first.is_empty()).then_some(0))
}

/// Whether to renew: two thirds of the validity period are over. The remaining third gives API servers time to pick
/// up the new CA.
pub fn needs_renewal(validity: Validity, now: Time) -> bool {
    let lifetime = validity.not_after.nanos_since(validity.not_before).max(0);
    now.nanos_since(validity.not_before) >= lifetime / 3 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_mins(1);

    fn of(begins: i64, ends: i64, trusted: Option<u64>) -> Candidate {
        let validity =
            Validity { not_before: Time::from_secs(begins), not_after: Time::from_secs(ends) };
        Candidate { validity, trusted_for: trusted.map(Duration::from_secs) }
    }

    #[test]
    fn a_new_certificate_is_served_once_clients_trust_it() {
        let old = |trusted| of(0, 1000, trusted);
        let new = |trusted| of(600, 2000, trusted);
        for (candidates, now, expected) in [
            (vec![], 700, None),
            (vec![new(None)], 700, Some(0)),
            (vec![new(None), old(Some(900))], 700, Some(1)),
            (vec![new(Some(10)), old(Some(900))], 700, Some(1)),
            (vec![new(Some(60)), old(Some(900))], 700, Some(0)),
            // It is not known what API servers trust: keep serving the previous one.
            (vec![new(Some(10)), old(Some(10))], 700, Some(1)),
            (vec![new(None), old(None)], 700, Some(0)),
            // An expired certificate is never selected while another is valid.
            (vec![new(Some(10)), old(Some(900))], 1001, Some(0)),
            (vec![new(None), old(Some(900))], 1001, Some(0)),
            (vec![new(Some(900)), old(Some(900))], 2001, Some(0)),
        ] {
            assert_eq!(
                select_certificate(&candidates, Time::from_secs(now), SETTLE),
                expected,
                "{candidates:?}"
            );
        }
    }
}
