//! Seconds as Go counts them: a float into whole nanoseconds and back, and durations as text.

use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

/// Whole nanoseconds, cut towards zero.
pub fn nanos(seconds: f64) -> i64 {
    (seconds * SECOND as f64) as i64
}

/// A duration, not below zero.
pub fn duration(seconds: f64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos(seconds)).unwrap_or(0))
}

/// As a float: whole seconds and the rest are added.
pub fn seconds(nanos: i64) -> f64 {
    (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9
}

/// A duration such as `1m30s`; nothing if it is none.
pub fn parse(text: &str) -> Duration {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (number, unit_and_more) = rest.split_at(end);
        let unit_end =
            unit_and_more.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit_and_more.len());
        let (unit, more) = unit_and_more.split_at(unit_end);
        let factor = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "ms" => 1e-3,
            _ => 1.0,
        };
        total += duration(number.parse::<f64>().unwrap_or(0.0) * factor);
        rest = more;
    }
    total
}
