//! Tests of recurring windows: the search for the next opening, and its cost. Openings: see the maintenance windows.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Time {
    Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
}

#[test]
fn impossible_dates_are_not_searched_for_the_next_opening() {
    let today = "2026-11-20".parse().expect("a date");
    for (text, days) in [
        ("0 0 31 2 * for 1h", 0),
        ("* * 30,31 2 * for 168h", 0),
        ("0 0 31 2,4,6,9,11 * for 1h", 0),
        // The next leap day that is a Sunday is in 2032.
        ("0 0 29 2 */7 for 1h", 2),
        ("0 0 1 1 * for 1h", 1),
        ("0 0 31 */2 * for 1h", 1),
        ("0 0 13 * */5 for 1h", 1),
    ] {
        let (cron, open_for) = text.split_once(" for ").expect("a duration");
        let window = RecurringWindow::parse(cron, open_for, None).expect(text);
        let mut searched = 0;
        let found =
            window.days_from(today).inspect(|_| searched += 1).find(|date| window.opens_on(*date));
        assert_eq!(searched, days, "{text}: {found:?}");
        assert_eq!(window.next_opening(at("2026-11-20T12:00:00Z")).is_some(), days > 0, "{text}");
    }
}

/// Searches the next opening day by day, without skipping any.
fn slowly(window: &RecurringWindow, now: Time) -> Option<Time> {
    let first = window.today(now);
    let days = (0..=400).map_while(|ahead| first.checked_add(ahead.days()).ok());
    days.filter(|date| window.opens_on(*date))
        .find_map(|date| window.opening_of_long_or_short_day(date, now))
}

proptest! {
    #[test]
    fn the_next_opening_is_the_earliest_one(
        minutes in 1_u64..1 << 60,
        hours in 1_u64..1 << 24,
        days in 1_u64..1 << 31,
        months in 1_u64..1 << 12,
        weekdays in 1_u64..1 << 7,
        either_day: bool,
        seconds in 0_i64..400 * 24 * 3600,
    ) {
        let zone = parse_zone("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let (days, months) = (days << 1, months << 1);
        let open_for = Duration::from_secs(90);
        let window = RecurringWindow { minutes, hours, days, months, weekdays, either_day, open_for, zone };
        let now = at("2026-01-15T00:00:00Z").later(Duration::from_secs(seconds.unsigned_abs()));
        let expected = slowly(&window, now);
        if expected.is_some() {
            prop_assert_eq!(window.next_opening(now), expected);
        }
        let opened = expected.map(|opening| opening.later(Duration::from_secs(89)));
        prop_assert!(opened.is_none_or(|at| window.is_open(at)));
    }
}
