//! Windows of time that recur: five fields of cron, which specify when a window opens, a duration, and a time zone.
//!
//! A time zone is an offset or a rule as in `TZ` (`CET-1CEST,M3.5.0,M10.5.0/3`), because a name would need the time zone
//! database; the default is UTC.

use std::time::Duration;

use jiff::{
    ToSpan,
    civil::{Date, Weekday},
    tz::{Offset, TimeZone},
};

use super::Time;

/// Maximum duration of a window: a weekly window of a week is always open.
const MAX_OPEN_FOR: Duration = Duration::from_hours(7 * 24);

/// Months that are searched for the next opening: a 29 February on a given weekday recurs within 40 years.
const MONTHS_SEARCHED: i32 = 40 * 12;

const MINUTES_OF_A_DAY: i64 = 24 * 60;

/// A window that recurs as the five fields of cron say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecurringWindow {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// As in cron: if both day fields are restricted, a day needs to match only one of them.
    either_day: bool,
    open_for: Duration,
    zone: TimeZone,
}

const MONTHS: [&str; 13] =
    ["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// `*`, `5`, `1-5`, `*/15`, `1-5/2` and lists of them, as a set of bits.
fn parse_field(text: &str, min: u32, max: u32, names: &[&str]) -> Option<u64> {
    let number = |text: &str| {
        let by_name =
            names.iter().position(|name| !name.is_empty() && text.eq_ignore_ascii_case(name));
        let number = by_name.map_or_else(|| text.parse().ok(), |index| Some(index as u32))?;
        (min..=max).contains(&number).then_some(number)
    };
    text.split(',').try_fold(0_u64, |found, part| {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (min, max),
            Some((from, to)) => (number(from)?, number(to)?),
            None if part.contains('/') => (number(range)?, max),
            None => (number(range)?, number(range)?),
        };
        let bits = (from..=to).step_by(step as usize).fold(0_u64, |bits, bit| bits | (1 << bit));
        (from <= to).then_some(found | bits)
    })
}

fn parse_zone(text: &str) -> Option<TimeZone> {
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
    // A rule for daylight saving time must specify its dates, because the defaults depend on the implementation.
    let has_rule = text.contains(',') || !text.chars().any(|character| character.is_ascii_digit());
    TimeZone::posix(text)
        .ok()
        .filter(|_| has_rule || text.ends_with(|end: char| end.is_ascii_digit()))
}

const fn has_bit(set: u64, bit: u32) -> bool {
    bit < u64::BITS && set & (1 << bit) != 0
}

/// Returns the first set bit at or after `bit`.
fn first_bit_from(set: u64, bit: u32) -> Option<u32> {
    let left = set.checked_shr(bit).filter(|left| *left != 0)?;
    Some(bit + left.trailing_zeros())
}

impl RecurringWindow {
    /// Parses a window: `0 22 * * mon-fri`, `6h` and `+01:00`. Without a zone it is UTC.
    pub fn parse(cron: &str, open_for: &str, zone: Option<&str>) -> Option<Self> {
        let open_for: jiff::SignedDuration = open_for.trim().parse().ok()?;
        let open_for = Duration::try_from(open_for).ok()?;
        let fields: Vec<&str> = cron.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else { return None };
        let window = Self {
            minutes: parse_field(minutes, 0, 59, &[])?,
            hours: parse_field(hours, 0, 23, &[])?,
            days: parse_field(days, 1, 31, &[])?,
            months: parse_field(months, 1, 12, &MONTHS)?,
            weekdays: {
                let set = parse_field(weekdays, 0, 7, &WEEKDAYS)?;
                // Sunday is 0 and 7.
                (set | (set >> 7)) & 0x7f
            },
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
            open_for,
            zone: zone.map_or(Some(TimeZone::UTC), |zone| parse_zone(zone.trim()))?,
        };
        (open_for > Duration::ZERO && open_for <= MAX_OPEN_FOR).then_some(window)
    }

    fn opens_on_weekday(&self, date: Date) -> bool {
        let weekday = match date.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        has_bit(self.weekdays, u32::from(weekday.unsigned_abs()))
    }

    fn opens_on(&self, date: Date) -> bool {
        let bit = |value: i8| u32::from(value.unsigned_abs());
        let (day, weekday) = (has_bit(self.days, bit(date.day())), self.opens_on_weekday(date));
        let day = if self.either_day { day || weekday } else { day && weekday };
        has_bit(self.months, bit(date.month())) && day
    }

    /// Returns the months that have one of its days: no February has a 31st.
    fn possible_months(&self) -> u64 {
        // Lengths of months in a leap year.
        const LENGTHS: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let is_possible = |month: u32| {
            let first = first_bit_from(self.days, 1).unwrap_or(u32::MAX);
            self.either_day || first <= LENGTHS[month as usize]
        };
        (1..=12)
            .filter(|month| has_bit(self.months, *month) && is_possible(*month))
            .fold(0, |months, month| months | (1 << month))
    }

    /// Iterates over the days on or after `first` on which it may open, ignoring the weekday. Months and days that cannot
    /// match are skipped, so that a window that never opens costs nothing.
    fn days_from(&self, first: Date) -> impl Iterator<Item = Date> + '_ {
        let months = self.possible_months();
        let start = i32::from(first.year()) * 12 + i32::from(first.month()) - 1;
        let end = if months == 0 { start } else { start + MONTHS_SEARCHED };
        (start..=end)
            .filter_map(move |month| {
                let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
                let is_possible = has_bit(months, month.unsigned_abs());
                let year = i16::try_from(year).ok().filter(|_| is_possible)?;
                Date::new(year, i8::try_from(month).ok()?, 1).ok()
            })
            .flat_map(move |of_month| {
                let days = (1..=of_month.days_in_month()).filter(move |day| {
                    self.either_day || has_bit(self.days, u32::from(day.unsigned_abs()))
                });
                days.filter_map(move |day| Date::new(of_month.year(), of_month.month(), day).ok())
            })
            .filter(move |date| *date >= first)
    }

    /// Returns the first minute of a day, at or after `minute`, at which it opens.
    fn minute_from(&self, minute: u32) -> Option<u32> {
        let (hour, minute) = (minute / 60, minute % 60);
        let this_hour = first_bit_from(self.minutes, minute).filter(|_| has_bit(self.hours, hour));
        if let Some(minute) = this_hour {
            return Some(hour * 60 + minute);
        }
        Some(first_bit_from(self.hours, hour + 1)? * 60 + first_bit_from(self.minutes, 0)?)
    }

    /// Returns the first time of a day, later than `after`, at which it opens.
    fn opening_on(&self, date: Date, after: Time) -> Option<Time> {
        if !self.opens_on(date) {
            return None;
        }
        let midnight = |date: Date| date.at(0, 0, 0, 0).to_zoned(self.zone.clone()).ok();
        let (start, end) = (midnight(date)?, midnight(date.tomorrow().ok()?)?);
        let (from, until) = (Time::from(start.timestamp()), Time::from(end.timestamp()));
        let is_plain = start.date() == date
            && start.offset() == end.offset()
            && until.as_secs() - from.as_secs() == MINUTES_OF_A_DAY * 60;
        if !is_plain {
            return self.opening_of_long_or_short_day(date, after);
        }
        if after >= until {
            return None;
        }
        let minute = if after < from { 0 } else { (after.as_secs() - from.as_secs()) / 60 + 1 };
        let minute = self.minute_from(u32::try_from(minute).ok()?)?;
        Some(Time::from_secs(from.as_secs() + i64::from(minute) * 60))
    }

    /// Like [`Self::opening_on`], for a day on which daylight saving time begins or ends: local times are not in order.
    fn opening_of_long_or_short_day(&self, date: Date, after: Time) -> Option<Time> {
        let bits = |set: u64| (0..60_i8).filter(move |bit| set & (1 << *bit) != 0);
        bits(self.hours)
            .flat_map(|hour| bits(self.minutes).map(move |minute| (hour, minute)))
            .filter_map(|(hour, minute)| {
                // A local time in the gap resolves to the time after it.
                let zoned = date.at(hour, minute, 0, 0).to_zoned(self.zone.clone()).ok()?;
                Some(Time::from(zoned.timestamp()))
            })
            .filter(|opening| *opening > after)
            .min()
    }

    fn today(&self, now: Time) -> Date {
        jiff::Timestamp::from(now).to_zoned(self.zone.clone()).date()
    }

    /// Whether it is open. The end of a window is not part of it.
    pub fn is_open(&self, now: Time) -> bool {
        let since = now.earlier(self.open_for);
        let today = self.today(now);
        let days = self.open_for.as_secs().div_ceil(24 * 3600) as i32;
        (0..=days)
            .filter_map(|days_ago| today.checked_sub(days_ago.days()).ok())
            .any(|date| self.opening_on(date, since).is_some_and(|opening| opening <= now))
    }

    /// When it opens next; `None` if never.
    pub fn next_opening(&self, now: Time) -> Option<Time> {
        self.days_from(self.today(now)).find_map(|date| self.opening_on(date, now))
    }
}

#[cfg(test)]
mod tests;
