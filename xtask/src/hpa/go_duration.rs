//! Times with Go's rounding: float seconds to whole nanoseconds and back, and durations as text.

use std::time::Duration;

const SECOND: i64 = 1_000_000_000;

/// Whole nanoseconds, truncated towards zero.
pub fn nanos(seconds: f64) -> i64 {
    (seconds * SECOND as f64) as i64
}

/// A duration, at least zero.
pub fn duration(seconds: f64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos(seconds)).unwrap_or(0))
}

/// Float seconds: whole seconds and the fraction are added.
pub fn seconds(nanos: i64) -> f64 {
    (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9
}

/// Parses a duration such as `1m30s`; returns zero for an invalid one.
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
