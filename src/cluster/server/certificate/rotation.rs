//! Which of several certificates is shown, and when it is time for the next.
//!
//! A new one is shown only when whoever calls has had time to learn of its authority: as long as that is not known, the
//! one before goes on being shown, while it holds.

use std::time::Duration;

use plimsoll_core::types::Time;

use super::Validity;

/// One that could be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// When it holds.
    pub validity: Validity,
    /// For how long callers are known to trust its authority; `None` when they are not.
    pub trusted_for: Option<Duration>,
}

/// Which of these, the newest first, is shown: the newest that callers trust for long enough (`settle`), else one that
/// they trust, else one that holds at all.
pub fn select_certificate(
    newest_first: &[Candidate],
    now: Time,
    settle: Duration,
) -> Option<usize> {
    let find = |wanted: &dyn Fn(&Candidate) -> bool| {
        newest_first.iter().position(|it| it.validity.contains(now) && wanted(it))
    };
    find(&|it| it.trusted_for.is_some_and(|since| since >= settle))
        .or_else(|| {
            newest_first
                .iter()
                .rposition(|it| it.validity.contains(now) && it.trusted_for.is_some())
        })
        .or_else(|| find(&|_| true))
        .or_else(|| (!newest_first.is_empty()).then_some(0))
}

/// Whether the next one should be made: two thirds of its life are over. The rest is time for whoever has to learn of
/// the new one.
pub fn needs_renewal(validity: Validity, now: Time) -> bool {
    let life = validity.not_after.nanos_since(validity.not_before).max(0);
    now.nanos_since(validity.not_before) >= life / 3 * 2
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
    fn a_new_certificate_is_shown_once_callers_have_learned_of_it() {
        let old = |trusted| of(0, 1000, trusted);
        let new = |trusted| of(600, 2000, trusted);
        for (candidates, now, expected) in [
            (vec![], 700, None),
            (vec![new(None)], 700, Some(0)),
            (vec![new(None), old(Some(900))], 700, Some(1)),
            (vec![new(Some(10)), old(Some(900))], 700, Some(1)),
            (vec![new(Some(60)), old(Some(900))], 700, Some(0)),
            // Nobody knows what callers trust: nothing is better than what they were shown before.
            (vec![new(Some(10)), old(Some(10))], 700, Some(1)),
            (vec![new(None), old(None)], 700, Some(0)),
            // What has ended is of no use to anybody.
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

    #[test]
    fn the_next_is_made_when_two_thirds_are_over() {
        for (now, due) in [(0, false), (599, false), (600, true), (5000, true), (-5, false)] {
            assert_eq!(
                needs_renewal(of(0, 900, None).validity, Time::from_secs(now)),
                due,
                "{now}"
            );
        }
        assert!(
            needs_renewal(of(10, 10, None).validity, Time::from_secs(10)),
            "one without a life"
        );
    }
}
