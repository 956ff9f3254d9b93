//! Change windows: `0 22 * * mon-fri for 6h in +01:00`, several of them separated by `;`.
//!
//! The five fields are cron's, and say when a window opens. A zone is an offset or a rule as in `TZ`
//! (`CET-1CEST,M3.5.0,M10.5.0/3`), because a name would have to be looked up in files; without one it is UTC.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use jiff::{
    ToSpan,
    civil::{Date, Weekday},
    tz::{Offset, TimeZone},
};
use plimsoll_storage::Time;

use crate::annotation::{BadAnnotation, CHANGE_WINDOW};

/// The longest that one window may be open: a week of windows of a week each is always.
const LONGEST: Duration = Duration::from_hours(7 * 24);

/// Days that are looked through for the next window: 29 February comes back after eight years at most.
const HORIZON: i32 = 8 * 366;

/// When a workload may be changed. No window at all is always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Cron's own rule: where both are given, a day need be only one of the two.
    either_day: bool,
    open_for: Duration,
    zone: TimeZone,
}

/// What is wrong with a window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of {wanted}", wanted = CHANGE_WINDOW.wanted)]
pub struct BadWindow(String);

impl FromStr for Windows {
    type Err = BadWindow;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let windows: Option<Vec<Window>> = parts.map(read).collect();
        let windows = windows.filter(|windows| !windows.is_empty());
        windows.map(Self).ok_or_else(|| BadWindow(text.to_owned()))
    }
}

fn read(text: &str) -> Option<Window> {
    let (cron, rest) = text.split_once(" for ")?;
    let (duration, zone) = rest.split_once(" in ").unwrap_or((rest, "UTC"));
    let open_for: jiff::SignedDuration = duration.trim().parse().ok()?;
    let open_for = Duration::try_from(open_for).ok()?;
    let fields: Vec<&str> = cron.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
    let window = Window {
        minutes: field(minutes, 0, 59, &[])?,
        hours: field(hours, 0, 23, &[])?,
        days: field(days, 1, 31, &[])?,
        months: field(months, 1, 12, &MONTHS)?,
        weekdays: {
            let set = field(weekdays, 0, 7, &WEEKDAYS)?;
            // Sunday is 0 and 7.
            (set | (set >> 7)) & 0x7f
        },
        either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        open_for,
        zone: read_zone(zone.trim())?,
    };
    (open_for > Duration::ZERO && open_for <= LONGEST).then_some(window)
}

const MONTHS: [&str; 13] =
    ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// `*`, `5`, `1-5`, `*/15`, `1-5/2` and lists of them, as a set of bits.
fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let number = |text: &str| {
        let by_name =
            names.iter().position(|name| !name.is_empty() && text.eq_ignore_ascii_case(name));
        let number = by_name.map_or_else(|| text.parse().ok(), |index| Some(index as u32))?;
        (least..=most).contains(&number).then_some(number)
    };
    text.split(',').try_fold(0_u64, |found, part| {
        let (range, every) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            None if part.contains('/') => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        let bits = (from..=to).step_by(every as usize).fold(0_u64, |bits, bit| bits | (1 << bit));
        (from <= to).then_some(found | bits)
    })
}

fn read_zone(text: &str) -> Option<TimeZone> {
    if matches!(text, "UTC" | "Z") {
        return Some(TimeZone::UTC);
    }
    if let Some(sign) = text.strip_prefix('+').map(|_| 1).or(text.strip_prefix('-').map(|_| -1)) {
        let (hours, minutes) = text[1..].split_once(':')?;
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let seconds = sign * (hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?);
        return (0..60)
            .contains(&minutes)
            .then(|| Offset::from_seconds(seconds).ok())?
            .map(TimeZone::fixed);
    }
    // A rule for summer time names its days; without them the implementation would choose.
    let has_rule = text.contains(',') || !text.chars().any(|one| one.is_ascii_digit());
    TimeZone::posix(text)
        .ok()
        .filter(|_| has_rule || text.ends_with(|end: char| end.is_ascii_digit()))
}

impl Windows {
    /// At any time.
    pub const ALWAYS: Self = Self(Vec::new());

    /// Those that the annotations of a VPA name, if they name any. They go before the flag.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, BadAnnotation> {
        CHANGE_WINDOW.read(annotations, |text| text.parse().ok())
    }

    /// Whether one is open.
    pub fn are_open(&self, now: Time) -> bool {
        self.0.is_empty() || self.0.iter().any(|window| window.is_open(now))
    }

    /// When the next one opens, if one ever does.
    pub fn next(&self, now: Time) -> Option<Time> {
        self.0.iter().filter_map(|window| window.next(now)).min()
    }
}

impl Window {
    fn has(&self, date: Date) -> bool {
        let has = |set: u64, bit: i8| set & (1 << bit) != 0;
        let weekday = match date.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let (day, weekday) = (has(self.days, date.day()), has(self.weekdays, weekday));
        let day = if self.either_day { day || weekday } else { day && weekday };
        has(self.months, date.month()) && day
    }

    /// The moments of a day at which it opens, in order.
    fn openings(&self, date: Date) -> impl Iterator<Item = Time> + '_ {
        let bits = |set: u64| (0..64_i8).filter(move |bit| set & (1 << *bit) != 0);
        let has = self.has(date);
        bits(self.hours)
            .flat_map(move |hour| bits(self.minutes).map(move |minute| (hour, minute)))
            .filter_map(move |(hour, minute)| {
                let civil = has.then(|| date.at(hour, minute, 0, 0))?;
                // A moment that the summer leaves out is the one after the gap.
                civil.to_zoned(self.zone.clone()).ok().map(|zoned| Time::from(zoned.timestamp()))
            })
    }

    fn today(&self, now: Time) -> Date {
        jiff::Timestamp::from(now).to_zoned(self.zone.clone()).date()
    }

    fn is_open(&self, now: Time) -> bool {
        let since = now.earlier(self.open_for);
        let today = self.today(now);
        let days = self.open_for.as_secs().div_ceil(24 * 3600) as i32;
        (0..=days)
            .filter_map(|back| today.checked_sub(back.days()).ok())
            .any(|date| self.openings(date).any(|opening| opening <= now && opening > since))
    }

    fn next(&self, now: Time) -> Option<Time> {
        let today = self.today(now);
        let days = (0..=HORIZON).map_while(|ahead| today.checked_add(ahead.days()).ok());
        days.filter(|date| self.has(*date))
            .find_map(|date| self.openings(date).find(|opening| *opening > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
    }

    #[test]
    fn windows_are_open_from_the_minute_that_they_name_for_as_long_as_they_say() {
        // 2026-11-20 is a Friday.
        for (text, now, open, next) in [
            ("0 22 * * * for 4h", "2026-11-20T21:59:59Z", false, "2026-11-20T22:00:00Z"),
            ("0 22 * * * for 4h", "2026-11-20T22:00:00Z", true, "2026-11-21T22:00:00Z"),
            ("0 22 * * * for 4h", "2026-11-21T01:59:59Z", true, "2026-11-21T22:00:00Z"),
            ("0 22 * * * for 4h", "2026-11-21T02:00:00Z", false, "2026-11-21T22:00:00Z"),
            ("0 22 * * mon-fri for 4h", "2026-11-21T22:00:00Z", false, "2026-11-23T22:00:00Z"),
            ("0 22 * * 7 for 4h", "2026-11-20T22:00:00Z", false, "2026-11-22T22:00:00Z"),
            ("0 2 * * sat,sun for 2h", "2026-11-22T03:00:00Z", true, "2026-11-28T02:00:00Z"),
            ("*/30 8-10/2 * * * for 10m", "2026-11-20T08:35:00Z", true, "2026-11-20T10:00:00Z"),
            ("0 0 1 jan * for 48h", "2026-01-02T12:00:00Z", true, "2027-01-01T00:00:00Z"),
            ("0 0 1 * fri for 1h", "2026-11-20T00:30:00Z", true, "2026-11-27T00:00:00Z"),
            ("0 22 * * * for 4h in +02:00", "2026-11-20T20:30:00Z", true, "2026-11-21T20:00:00Z"),
            (
                "0 22 * * * for 1h; 0 3 * * * for 1h",
                "2026-11-20T03:30:00Z",
                true,
                "2026-11-20T22:00:00Z",
            ),
            ("0 0 29 2 * for 1h", "2026-11-20T03:30:00Z", false, "2028-02-29T00:00:00Z"),
            // Berlin: the hour from 2 to 3 is left out on 29 March 2026, and is there twice on 25 October.
            (
                "30 2 * * * for 1h in CET-1CEST,M3.5.0,M10.5.0/3",
                "2026-03-29T01:45:00Z",
                true,
                "2026-03-30T00:30:00Z",
            ),
            (
                "30 2 * * * for 1h in CET-1CEST,M3.5.0,M10.5.0/3",
                "2026-07-01T00:29:00Z",
                false,
                "2026-07-01T00:30:00Z",
            ),
        ] {
            let windows: Windows = text.parse().expect(text);
            assert_eq!(windows.are_open(at(now)), open, "{text} at {now}");
            assert_eq!(windows.next(at(now)), Some(at(next)), "{text} after {now}");
        }
        assert!(Windows::ALWAYS.are_open(Time::EPOCH));
        let never: Windows = "0 0 31 2 * for 1h".parse().expect("a window");
        assert!(!never.are_open(at("2026-02-28T00:10:00Z")));
        assert_eq!(never.next(at("2026-02-28T00:10:00Z")), None);
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "always",
            "0 22 * * *",
            "0 22 * * for 4h",
            "0 24 * * * for 4h",
            "60 2 * * * for 4h",
            "0 2 0 * * for 4h",
            "0 2 * 13 * for 4h",
            "0 2 * * 8 for 4h",
            "0 2 * * fri-mon for 4h",
            "*/0 2 * * * for 4h",
            "0 2 * * * for 0s",
            "0 2 * * * for -4h",
            "0 2 * * * for 169h",
            "0 2 * * * for 4h in Berlin/Nowhere",
            "0 2 * * * for 4h in +25:99",
            "0 22 * * * for 4h; rubbish",
        ] {
            let error = text.parse::<Windows>().expect_err(text).to_string();
            assert!(error.contains(CHANGE_WINDOW.wanted), "{error}");
        }
    }
}
