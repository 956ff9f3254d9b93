//! Detects a wrong system clock by comparing it with the times in the stored histories, before a stored history is
//! discarded because of its age. Clocks of nodes can be wrong after boot until NTP has set them.

use std::time::Duration;

use crate::{history::SampleStats, types::Time};

/// A process that has run for longer than this trusts its clock unless the API server disagrees: a recommender that
/// was down for more than a week also finds only expired histories.
const STARTUP_PERIOD: Duration = Duration::from_hours(1);

/// The maximum difference of clocks that agree: histories are valid for days.
pub const TOLERANCE: Duration = Duration::from_hours(1);

/// Fewer records than this are no evidence.
const MIN_RECORDS: usize = 3;

/// Numbers of stored records, by their age according to this process's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredTimes {
    /// Records that are recent enough to be used.
    pub usable: usize,
    /// Records that are too old to be used.
    pub expired: usize,
    /// Records that were written later than now.
    pub in_future: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockEvidence {
    /// The time of this process's clock.
    pub now: Time,
    /// How long this process has been running, by a monotonic clock.
    pub running: Duration,
    /// The time of the API server's clock, if known.
    pub server: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockDoubt {
    #[error("the API server's clock shows {server}")]
    ServerDisagrees { server: Time },
    /// Nearly all records look expired or written in the future, and the time is not confirmed.
    #[error("the time is not confirmed yet")]
    Unconfirmed,
}

impl StoredTimes {
    /// Counts a record.
    pub fn record(&mut self, stats: [SampleStats; 2], is_expired: bool, now: Time) {
        let last = stats[0].last.max(stats[1].last);
        if last.is_some_and(|last| last > now.later(TOLERANCE)) {
            self.in_future += 1;
        } else if is_expired {
            self.expired += 1;
        } else {
            self.usable += 1;
        }
    }

    /// Whether any record looks expired or in the future, so that the API server should be asked for the time.
    pub fn needs_evidence(&self) -> bool {
        self.expired + self.in_future > 0
    }

    /// Returns why the clock is doubted; then no stored record may be replaced or deleted because of its age.
    pub fn doubt(&self, evidence: ClockEvidence) -> Option<ClockDoubt> {
        let Self { usable, expired, in_future } = *self;
        let suspicious = expired + in_future;
        if suspicious == 0 {
            return None;
        }
        if let Some(server) = evidence.server {
            let difference = Duration::from_nanos(evidence.now.nanos_since(server).unsigned_abs());
            return (difference > TOLERANCE).then_some(ClockDoubt::ServerDisagrees { server });
        }
        let is_suspicious = suspicious >= MIN_RECORDS && suspicious >= 9 * usable;
        (is_suspicious && evidence.running < STARTUP_PERIOD).then_some(ClockDoubt::Unconfirmed)
    }

    /// Whether the clock needs no more checks: the API server confirmed the time, or the startup period is over.
    pub fn is_settled(evidence: ClockEvidence, doubt: Option<ClockDoubt>) -> bool {
        doubt.is_none() && (evidence.server.is_some() || evidence.running >= STARTUP_PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_780_000_000);
    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_wrong_clock_is_detected_at_start() {
        let agrees = Some(NOW.later(Duration::from_secs(50)));
        let behind = Some(NOW.earlier(DAY * 10));
        let ahead = Some(NOW.later(DAY * 10));
        let disagrees =
            |server: Option<Time>| server.map(|server| ClockDoubt::ServerDisagrees { server });
        let unconfirmed = Some(ClockDoubt::Unconfirmed);
        for (usable, expired, in_future, minutes, server, doubt) in [
            // Nothing would be discarded.
            (0, 0, 0, 0, None, None),
            (500, 0, 0, 0, behind, None),
            // The clock is ten days ahead: all records look expired.
            (0, 500, 0, 0, None, unconfirmed),
            (0, 500, 0, 59, None, unconfirmed),
            (0, 500, 0, 60, None, None),
            (0, 500, 0, 0, behind, disagrees(behind)),
            (0, 500, 0, 600, behind, disagrees(behind)),
            // The recommender was down for two weeks.
            (0, 500, 0, 0, agrees, None),
            // The clock is behind.
            (0, 0, 500, 0, None, unconfirmed),
            (0, 0, 500, 0, ahead, disagrees(ahead)),
            (0, 20, 480, 0, None, unconfirmed),
            // A few VPAs that were created while the clock was wrong do not prove it right.
            (5, 495, 0, 0, None, unconfirmed),
            // Some workloads have been deleted long ago, as in every cluster.
            (400, 100, 0, 0, None, None),
            (0, 2, 0, 0, None, None),
            (0, 2, 0, 0, behind, disagrees(behind)),
        ] {
            let stored = StoredTimes { usable, expired, in_future };
            let running = Duration::from_mins(minutes);
            let evidence = ClockEvidence { now: NOW, running, server };
            assert_eq!(stored.doubt(evidence), doubt, "{stored:?} {evidence:?}");
        }
    }

    #[test]
    fn usable_expired_and_future_records_are_counted_separately() {
        let stats = |last: Time| SampleStats { count: 1, first: None, last: Some(last) };
        let mut stored = StoredTimes::default();
        let none = SampleStats::default();
        stored.record([stats(NOW), none], false, NOW);
        stored.record([none, stats(NOW.later(Duration::from_mins(30)))], false, NOW);
        stored.record([stats(NOW.earlier(DAY * 9)), none], true, NOW);
        stored.record([stats(NOW.earlier(DAY)), stats(NOW.later(DAY))], false, NOW);
        assert_eq!(stored, StoredTimes { usable: 2, expired: 1, in_future: 1 });
    }

    #[test]
    fn the_server_time_is_requested_until_it_is_confirmed_or_an_hour_has_passed() {
        let evidence = |minutes, server| {
            let running = Duration::from_mins(minutes);
            ClockEvidence { now: NOW, running, server }
        };
        let settled = StoredTimes::is_settled;
        assert!(settled(evidence(0, Some(NOW)), None));
        assert!(!settled(evidence(0, None), None));
        assert!(settled(evidence(60, None), None));
        assert!(!settled(evidence(60, Some(Time::EPOCH)), Some(ClockDoubt::Unconfirmed)));
    }
}
