//! Parses one line of a series file. Errors say how to fix the line.

use crate::types::Time;

/// No valid line is longer. The bound keeps a binary file from being read as one line.
pub(super) const MAX_LINE_BYTES: u64 = 256;
/// The latest valid time, in Unix seconds: the year 2100. Twice such a span still fits in nanoseconds.
const MAX_TIME_SECONDS: i64 = 4_102_444_800;
/// No container uses more: millicores and bytes stay far within their integers.
const MAX_VALUE: f64 = 1e15;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at: Time,
    pub value: f64,
}

/// Why a line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("{0:?} does not have two columns: write time,value")]
    Columns(String),
    #[error(
        "{0:?} is not a time: write Unix seconds, 2026-01-05T00:00:00Z or 2026-01-05 00:00:00 (UTC)"
    )]
    Time(String),
    #[error(
        "{0} is in the far future: Unix times are read as seconds, divide milliseconds by 1000"
    )]
    Milliseconds(i64),
    #[error("{0:?} is not between 1970 and 2100: check the column of times")]
    TimeOutOfRange(String),
    #[error("{0:?} is too large, more than 1e15: check the unit")]
    ValueTooLarge(String),
    #[error("{0:?} is not a non-negative number: write one like 0.25, or remove the line")]
    Value(String),
    #[error("{this} is not later than {before} on the line before: sort by time, each time once")]
    OutOfOrder { this: Time, before: Time },
    #[error("this line is longer than {MAX_LINE_BYTES} bytes: is this a CSV file of time,value?")]
    TooLong,
    #[error("this line is not UTF-8 text: is this a CSV file of time,value?")]
    NotText,
}

/// Parses a line. Returns `None` for a header or an empty line.
pub(super) fn parse_line(
    line: &[u8],
    first: bool,
    before: Option<Time>,
    scale: f64,
) -> Result<Option<Point>, LineError> {
    if line.len() as u64 > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    let text = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
    // Some spreadsheets write a byte order mark.
    let text = if first { text.trim_start_matches('\u{feff}') } else { text }.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let columns: Vec<&str> = text.split(',').map(str::trim).collect();
    let [time, value] = columns.as_slice() else {
        return Err(LineError::Columns(text.to_owned()));
    };
    let is_word = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '"');
    if first && is_word(time) && is_word(value) {
        return Ok(None);
    }
    let at = parse_time(time)?;
    let recorded: f64 = value
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| LineError::Value((*value).to_owned()))?;
    let scaled = recorded * scale;
    if !(0.0..=MAX_VALUE).contains(&scaled) {
        return Err(LineError::ValueTooLarge((*value).to_owned()));
    }
    match before {
        Some(before) if at <= before => Err(LineError::OutOfOrder { this: at, before }),
        _ => Ok(Some(Point { at, value: scaled })),
    }
}

/// Parses a time in any of the accepted formats.
fn parse_time(text: &str) -> Result<Time, LineError> {
    let time = parse_any_time(text)?;
    let valid = Time::EPOCH..Time::from_secs(MAX_TIME_SECONDS);
    if valid.contains(&time) { Ok(time) } else { Err(LineError::TimeOutOfRange(text.to_owned())) }
}

fn parse_any_time(text: &str) -> Result<Time, LineError> {
    if let Ok(seconds) = text.parse::<i64>() {
        // 99,999,999,999 seconds are in the year 5138; today's milliseconds are far above that.
        return if seconds.abs() > 99_999_999_999 {
            Err(LineError::Milliseconds(seconds))
        } else {
            Ok(Time::from_secs(seconds))
        };
    }
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Ok(timestamp.into());
    }
    text.parse::<jiff::civil::DateTime>()
        .and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC))
        .map(|zoned| zoned.timestamp().into())
        .map_err(|_| LineError::Time(text.to_owned()))
}
