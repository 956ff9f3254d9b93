//! The annotation `plimsoll.dev/schedule`: a minimum, and optionally a maximum, at recurring times.

use std::str::FromStr;

use serde::Serialize;

use crate::types::{RecurringWindow, Time};

/// Maximum number of entries of one object. Users write them, but the controller spends the time to evaluate them.
const MAX_ENTRIES: usize = 32;
/// Maximum length in bytes of the schedule of one object. See [`MAX_ENTRIES`].
const MAX_BYTES: usize = 4 * 1024;

const TIME_ZONE: &str = "CRON_TZ=";

/// Bounds of replicas at recurring times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    window: RecurringWindow,
    bounds: ScheduledBounds,
}

/// The bounds of a schedule at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ScheduledBounds {
    /// The fewest replicas.
    pub min: i32,
    /// The most replicas; `None` for those of the spec.
    pub max: Option<i32>,
}

impl Schedule {
    /// No entries: the bounds of the spec always apply.
    pub const NONE: Self = Self(Vec::new());

    /// The bounds at this time: the highest of all entries that apply; `None` if none does.
    pub fn bounds_at(&self, now: Time) -> Option<ScheduledBounds> {
        let open = self.0.iter().filter(|entry| entry.window.is_open(now));
        open.map(|entry| entry.bounds).reduce(|one, other| ScheduledBounds {
            min: one.min.max(other.min),
            max: one.max.zip(other.max).map(|(one, other)| one.max(other)),
        })
    }
}

impl FromStr for Schedule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() > MAX_BYTES {
            return Err(());
        }
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        // Parse one more than the maximum to detect that there are too many.
        let entries: Option<Vec<Entry>> = parts.take(MAX_ENTRIES + 1).map(Entry::parse).collect();
        let fits = |entries: &Vec<Entry>| (1..=MAX_ENTRIES).contains(&entries.len());
        entries.filter(fits).map(Self).ok_or(())
    }
}

impl Entry {
    /// Cron fields may contain commas, so the values are split off from the end.
    fn parse(text: &str) -> Option<Self> {
        let (rest, last) = text.rsplit_once(',')?;
        let last = parse_replicas(last)?;
        let (rest, before) = rest.rsplit_once(',')?;
        let (cron, duration, bounds) = match parse_replicas(before) {
            Some(min) => {
                let (cron, duration) = rest.rsplit_once(',')?;
                (cron, duration, ScheduledBounds { min, max: Some(last) })
            }
            None => (rest, before, ScheduledBounds { min: last, max: None }),
        };
        if bounds.max.is_some_and(|max| max < bounds.min) {
            return None;
        }
        let (zone, cron) = match cron.trim().strip_prefix(TIME_ZONE) {
            Some(rest) => {
                rest.split_once(char::is_whitespace).map(|(zone, cron)| (Some(zone), cron))?
            }
            None => (None, cron),
        };
        Some(Self { window: RecurringWindow::parse(cron, duration, zone)?, bounds })
    }
}

fn parse_replicas(text: &str) -> Option<i32> {
    text.trim().parse().ok().filter(|replicas| *replicas >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
    }

    fn bounds_at(schedule: &str, now: &str) -> Option<(i32, Option<i32>)> {
        let schedule: Schedule = schedule.parse().unwrap_or_else(|()| panic!("{schedule}"));
        schedule.bounds_at(at(now)).map(|bounds| (bounds.min, bounds.max))
    }

    #[test]
    fn bounds_apply_from_each_start_for_the_whole_duration() {
        // 2026-11-20 is a Friday.
        for (schedule, now, expected) in [
            ("0 8 * * *, 10h, 5", "2026-11-20T07:59:59.999999999Z", None),
            ("0 8 * * *, 10h, 5", "2026-11-20T08:00:00Z", Some((5, None))),
            ("0 8 * * *, 10h, 5", "2026-11-20T17:59:59.999999999Z", Some((5, None))),
            ("0 8 * * *, 10h, 5", "2026-11-20T18:00:00Z", None),
            ("0 8 * * mon-fri, 10h, 5, 20", "2026-11-20T12:00:00Z", Some((5, Some(20)))),
            ("0 8 * * mon-fri, 10h, 5, 20", "2026-11-21T12:00:00Z", None),
            // Commas of the cron fields.
            ("0 8,20 * * 1,5, 1h, 5", "2026-11-20T20:30:00Z", Some((5, None))),
            ("0 8 * * 1,3, 1h, 5, 6", "2026-11-20T08:30:00Z", None),
            // Past midnight.
            ("0 22 * * *,4h,3", "2026-11-21T01:00:00Z", Some((3, None))),
            ("CRON_TZ=+02:00 0 8 * * *, 1h, 5", "2026-11-20T06:30:00Z", Some((5, None))),
            ("CRON_TZ=+02:00 0 8 * * *, 1h, 5", "2026-11-20T08:30:00Z", None),
            (
                "CRON_TZ=CET-1CEST,M3.5.0,M10.5.0/3 0 8 * * *, 1h, 5",
                "2026-07-01T06:30:00Z",
                Some((5, None)),
            ),
            (
                "CRON_TZ=CET-1CEST,M3.5.0,M10.5.0/3 0 8 * * *, 1h, 5",
                "2026-11-20T07:30:00Z",
                Some((5, None)),
            ),
        ] {
            assert_eq!(bounds_at(schedule, now), expected, "{schedule} at {now}");
        }
    }

    #[test]
    fn of_several_entries_the_highest_bounds_apply() {
        let both = "0 8 * * *, 10h, 5, 9; 0 12 * * *, 1h, 8, 20;";
        assert_eq!(bounds_at(both, "2026-11-20T10:00:00Z"), Some((5, Some(9))));
        assert_eq!(bounds_at(both, "2026-11-20T12:30:00Z"), Some((8, Some(20))));
        let open_end = "0 8 * * *, 10h, 5, 9; 0 12 * * *, 1h, 3";
        assert_eq!(bounds_at(open_end, "2026-11-20T12:30:00Z"), Some((5, None)));
        assert_eq!(Schedule::NONE.bounds_at(Time::EPOCH), None);
    }

    #[test]
    fn an_invalid_schedule_is_rejected() {
        let many = "0 8 * * *, 1h, 5;".repeat(MAX_ENTRIES);
        assert!(many.parse::<Schedule>().is_ok());
        let (more, long) = (many.clone() + "0 8 * * *, 1h, 5", many + &" ".repeat(MAX_BYTES));
        for text in [
            "",
            ";",
            "5",
            "0 8 * * *",
            "0 8 * * *, 10h",
            "0 8 * * *, 5",
            "0 8 * * *, 5, 10",
            "0 8 * * *, 10h, 0",
            "0 8 * * *, 10h, -1",
            "0 8 * * *, 10h, 5, 4",
            "0 8 * * *, 10h, 5, 6, 7",
            "0 8 * * *, 0s, 5",
            "0 8 * * *, 169h, 5",
            "0 8 * *, 10h, 5",
            "0 25 * * *, 10h, 5",
            "CRON_TZ=+02:00, 10h, 5",
            "CRON_TZ=Nowhere 0 8 * * *, 10h, 5",
            "0 8 * * *, 10h, 5; nonsense",
            &more,
            &long,
        ] {
            assert_eq!(text.parse::<Schedule>(), Err(()), "{text}");
        }
    }
}
