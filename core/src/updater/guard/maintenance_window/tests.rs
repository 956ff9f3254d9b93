//! Tests of maintenance windows: openings, search cost, and rejected input.

use super::*;

fn at(text: &str) -> Time {
    Time::from(text.parse::<jiff::Timestamp>().expect("a time"))
}

#[test]
fn a_window_is_open_from_its_start_for_its_duration() {
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
        // Berlin: the hour from 2 to 3 is skipped on 29 March 2026, and repeated on 25 October.
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
        let windows: MaintenanceWindows = text.parse().expect(text);
        assert_eq!(windows.is_any_open(at(now)), open, "{text} at {now}");
        assert_eq!(windows.next_opening(at(now)), Some(at(next)), "{text} after {now}");
    }
    assert!(MaintenanceWindows::ALWAYS.is_any_open(Time::EPOCH));
    let never: MaintenanceWindows = "0 0 31 2 * for 1h".parse().expect("a window");
    assert!(!never.is_any_open(at("2026-02-28T00:10:00Z")));
    assert_eq!(never.next_opening(at("2026-02-28T00:10:00Z")), None);
}

#[test]
fn too_many_or_too_long_windows_are_rejected_in_one_line() {
    let window = "0 0 31 2 * for 1h;";
    assert!(window.repeat(MAX_WINDOWS).parse::<MaintenanceWindows>().is_ok());
    let long = format!("{}{}", window, " ".repeat(MAX_BYTES));
    for text in [window.repeat(MAX_WINDOWS + 1), window.repeat(14_000), long] {
        let annotations = [(CHANGE_WINDOW.name.to_owned(), format!("{text};"))].into();
        let bad = MaintenanceWindows::from_annotations(&annotations).expect_err("too much");
        let line = bad.to_string();
        assert!(line.len() < 512 && line.lines().count() == 1, "{line}");
        assert!(line.contains("at most 32 change windows") && line.contains("4 KiB"), "{line}");
    }
}

#[test]
fn an_invalid_window_is_rejected() {
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
        let error = text.parse::<MaintenanceWindows>().expect_err(text).to_string();
        assert!(error.contains(CHANGE_WINDOW.expected), "{error}");
    }
}
