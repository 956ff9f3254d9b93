//! Whether this process's clock may be wrong, judged by the times in the stored histories, before anything stored is
//! thrown away because of it. Clocks of nodes jump when they boot, before NTP has set them.

use std::{fmt, time::Duration};

use crate::{history::SampleStats, types::Time};

/// A process that has run for longer than this trusts its clock if nobody contradicts it: a recommender that was off for
/// more than a week finds nothing but expired histories, too.
const STARTUP_PERIOD: Duration = Duration::from_hours(1);

/// Clocks that differ by less agree: histories are kept for days.
pub const TOLERANCE: Duration = Duration::from_hours(1);

/// Fewer records than this say nothing by themselves.
const MIN_RECORDS: usize = 3;

/// How the stored records that were read look by this process's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredTimes {
    /// Recent enough to be used.
    pub usable: usize,
    /// Too old to say anything.
    pub expired: usize,
    /// Written later than now.
    pub in_future: usize,
}

/// What else is known of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockEvidence {
    /// By this process's clock.
    pub now: Time,
    /// How long this process has been running, by a clock that nobody sets.
    pub running: Duration,
    /// By the API server's clock, if it said.
    pub server: Option<Time>,
}

/// Why the clock is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockDoubt {
    /// The API server's clock shows another time.
    ServerDisagrees {
        /// The time that it shows.
        server: Time,
    },
    /// (Nearly) all records look expired or written in the future, and nobody confirms the time.
    Unconfirmed,
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerDisagrees { server } => write!(f, "the API server's clock shows {server}"),
            Self::Unconfirmed => f.write_str("nobody has confirmed the time yet"),
        }
    }
}

impl StoredTimes {
    /// Counts a record.
    pub fn record(&mut self, seen: [SampleStats; 2], is_expired: bool, now: Time) {
        let last = seen[0].last.max(seen[1].last);
        if last.is_some_and(|last| last > now.later(TOLERANCE)) {
            self.in_future += 1;
        } else if is_expired {
            self.expired += 1;
        } else {
            self.usable += 1;
        }
    }

    /// Whether any record looks as it should not by a clock that is right, so that it is worth asking for the time.
    pub fn needs_evidence(&self) -> bool {
        self.expired + self.in_future > 0
    }

    /// Why no stored record may be replaced or deleted for its age now, if any looks old or new enough for that.
    pub fn doubt(&self, evidence: ClockEvidence) -> Option<ClockDoubt> {
        let Self { usable, expired, in_future } = *self;
        let odd = expired + in_future;
        if odd == 0 {
            return None;
        }
        if let Some(server) = evidence.server {
            let apart = Duration::from_nanos(evidence.now.nanos_since(server).unsigned_abs());
            return (apart > TOLERANCE).then_some(ClockDoubt::ServerDisagrees { server });
        }
        let is_suspicious = odd >= MIN_RECORDS && odd >= 9 * usable;
        (is_suspicious && evidence.running < STARTUP_PERIOD).then_some(ClockDoubt::Unconfirmed)
    }

    /// Whether the question is settled for good: the server has confirmed the time, or nobody doubts it any more.
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
    fn a_clock_that_is_wrong_at_the_start_is_doubted() {
        let agrees = Some(NOW.later(Duration::from_secs(50)));
        let behind = Some(NOW.earlier(DAY * 10));
        let ahead = Some(NOW.later(DAY * 10));
        let disagrees =
            |server: Option<Time>| server.map(|server| ClockDoubt::ServerDisagrees { server });
        let unconfirmed = Some(ClockDoubt::Unconfirmed);
        for (usable, expired, in_future, minutes, server, doubt) in [
            // Nothing would be thrown away.
            (0, 0, 0, 0, None, None),
            (500, 0, 0, 0, behind, None),
            // The clock is ten days ahead: all has expired by it.
            (0, 500, 0, 0, None, unconfirmed),
            (0, 500, 0, 59, None, unconfirmed),
            (0, 500, 0, 60, None, None),
            (0, 500, 0, 0, behind, disagrees(behind)),
            (0, 500, 0, 600, behind, disagrees(behind)),
            // It was off for two weeks.
            (0, 500, 0, 0, agrees, None),
            // The clock is behind.
            (0, 0, 500, 0, None, unconfirmed),
            (0, 0, 500, 0, ahead, disagrees(ahead)),
            (0, 20, 480, 0, None, unconfirmed),
            // A VPA or two that came while the clock was wrong do not prove it right.
            (5, 495, 0, 0, None, unconfirmed),
            // Some workloads are gone for long, as in every cluster.
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
    fn records_are_told_apart_by_when_they_were_written() {
        let seen = |last: Time| SampleStats { count: 1, first: None, last: Some(last) };
        let mut stored = StoredTimes::default();
        let none = SampleStats::default();
        stored.record([seen(NOW), none], false, NOW);
        stored.record([none, seen(NOW.later(Duration::from_mins(30)))], false, NOW);
        stored.record([seen(NOW.earlier(DAY * 9)), none], true, NOW);
        stored.record([seen(NOW.earlier(DAY)), seen(NOW.later(DAY))], false, NOW);
        assert_eq!(stored, StoredTimes { usable: 2, expired: 1, in_future: 1 });
    }

    #[test]
    fn the_server_is_asked_until_it_has_confirmed_the_time_or_an_hour_is_over() {
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
