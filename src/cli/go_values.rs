//! Parses flag values as Go's flag packages do: booleans, integers of any base, durations, paths.

use std::{path::PathBuf, time::Duration};

use clap::builder::{OsStringValueParser, TypedValueParser};

use plimsoll_core::types::quantity::Quantity;
use plimsoll_storage::prometheus::selector::is_label;

/// The maximum duration in Go, in nanoseconds.
const MAX_NANOSECONDS: f64 = i64::MAX as f64;

/// Parses a boolean, with the same spellings as Go.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

/// Parses an integer: `10`, `0x10`, `0o7`, `010` (eight), `0b11`, `1_000`.
pub fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = magnitude(digits)?;
    let number = i128::from(magnitude);
    i64::try_from(if negative { -number } else { number }).ok()
}

/// Parses an integer without a sign.
fn magnitude(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(prefix, base)| lower.strip_prefix(prefix).map(|digits| (digits, base, true)));
    let (digits, base, prefixed) =
        prefixed.unwrap_or_else(|| match lower.strip_prefix('0').filter(|rest| !rest.is_empty()) {
            Some(rest) => (rest, 8, true),
            None => (&*lower, 10, false),
        });
    // An underscore is allowed between digits, or between the prefix and the first digit.
    let parts: Vec<&str> = digits.split('_').collect();
    let misplaced =
        |(at, part): (usize, &&str)| part.is_empty() && !(prefixed && at == 0 && parts.len() > 1);
    if parts.iter().enumerate().any(misplaced) || digits.contains(['+', '-']) {
        return None;
    }
    u64::from_str_radix(&parts.concat(), base).ok()
}

pub fn integer_between<T>(
    min: T,
    max: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<i64> + Copy + PartialOrd + std::fmt::Display + Send + Sync + 'static,
{
    move |text| {
        integer(text)
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("give a whole number from {min} to {max}"))
    }
}

/// Parses a Go duration: `1h30m`, `24h0m0s`, `1.5h`, `100ms`, `2us`, `0`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || "give a duration such as 90s, 24h or 1h30m".to_owned();
    if text.starts_with('-') {
        return Err(
            "a duration must not be negative: give a duration such as 90s, 24h or 1h30m".to_owned()
        );
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanoseconds = 0_u64;
    let mut first = true;
    while first || !rest.is_empty() {
        first = false;
        let unit_start = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wanted)?;
        let (number, after) = rest.split_at(unit_start);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let part = duration_part(number, unit).ok_or_else(wanted)?;
        nanoseconds = nanoseconds
            .checked_add(part)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or_else(wanted)?;
        rest = after;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Converts one number with its unit to nanoseconds.
fn duration_part(number: &str, unit: &str) -> Option<u64> {
    let unit: u64 = match unit {
        "ns" => 1,
        // Go accepts both the micro sign and the letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let fraction = format!("0.{fraction}0").parse::<f64>().ok()? * unit as f64;
    digits(whole)?.checked_mul(unit)?.checked_add(fraction.min(MAX_NANOSECONDS) as u64)
}

pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let wanted = || "give a duration above 0, such as 90s or 1h30m".to_owned();
    duration(text).and_then(|time| if time.is_zero() { Err(wanted()) } else { Ok(time) })
}

/// Parses a Prometheus duration: `8d`, `1w2d`, `12h`.
pub fn prometheus_duration(text: &str) -> Result<Duration, String> {
    // More than a century is a typing error, and exceeds the range of timestamps.
    let century = Duration::from_hours(100 * 365 * 24);
    let time = crate::report::doctor::diagnose::parse_prometheus_duration(text)
        .filter(|time| *time <= century);
    time.ok_or_else(|| "give a duration above 0, such as 8d, 36h or 1w".to_owned())
}

/// Parses a path, which may be empty: clap's own parser rejects empty paths, but upstream accepts them.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

pub fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "give a number".to_owned())
}

pub fn number_between(text: &str, min: f64, max: f64, wanted: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("give a number {wanted}"))
}

pub fn fraction(text: &str) -> Result<f64, String> {
    number_between(text, 0.0, 1.0, "from 0 to 1")
}

/// Parses the name of a label of series that is not the name of the metric.
pub fn label_name(text: &str) -> Result<String, String> {
    let fits = is_label(text) && text != "__name__";
    if fits { Ok(text.to_owned()) } else { Err("give a valid label name".to_owned()) }
}

/// Parses the maximum of a resource. As in upstream, 0 means no maximum.
pub fn maximum(text: &str) -> Result<Quantity, String> {
    let max: Quantity = text
        .parse()
        .map_err(|error: plimsoll_core::types::quantity::ParseError| error.to_string())?;
    if max.is_negative() {
        return Err(
            "a maximum must not be negative: use a quantity such as 2 or 4Gi, or omit the flag"
                .into(),
        );
    }
    Ok(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_parsed_like_go_does() {
        for (words, value) in [
            (["1", "t", "T", "true", "TRUE", "True"], true),
            (["0", "f", "F", "false", "FALSE", "False"], false),
        ] {
            assert!(words.iter().all(|word| boolean(word) == Ok(value)), "{words:?}");
        }
        for bad in ["", "yes", "on", "tRUE", " true", "2"] {
            assert!(boolean(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn integers_are_parsed_in_the_base_of_their_prefix() {
        for (text, value) in [
            ("0", 0),
            ("10", 10),
            ("+7", 7),
            ("-7", -7),
            ("0x10", 16),
            ("0XfF", 255),
            ("0o17", 15),
            ("017", 15),
            ("0b101", 5),
            ("1_000", 1000),
            ("0x_1f", 31),
            ("0_7", 7),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for bad in [
            "",
            "-",
            "1.0",
            "1e3",
            "08",
            "0x",
            "1__0",
            "_1",
            "1_",
            "0x1_",
            "+-1",
            "--1",
            "9223372036854775808",
        ] {
            assert_eq!(integer(bad), None, "{bad}");
        }
        assert!(
            integer_between(1_u32, 9)("10").is_err() && integer_between(1_u32, 9)("-1").is_err()
        );
    }

    #[test]
    fn durations_are_parsed_like_go_does() {
        for (text, milliseconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("1h30m", 5_400_000.0),
            ("24h0m0s", 86_400_000.0),
            ("1.5h", 5_400_000.0),
            (".5s", 500.0),
            ("5.s", 5_000.0),
            ("1.5h30m", 7_200_000.0),
            ("+10s", 10_000.0),
            ("100ms", 100.0),
            ("2us", 0.002),
            ("2µs", 0.002),
            ("2μs", 0.002),
            ("7ns", 0.000_007),
        ] {
            let read = duration(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read, Duration::from_secs_f64(milliseconds / 1000.0), "{text}");
        }
        for bad in [
            "", "+", "5", "1d", "8d", "s", ".s", "1.2.3s", "1 h", "1h ", "1H", "-5s", "9999999h",
            "1h30",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(positive_duration("0s").is_err());
    }

    #[test]
    fn durations_are_parsed_like_prometheus_does() {
        for (text, hours) in [("8d", 192), ("1w2d", 216), ("36h", 36), ("1h30m1800s", 2)] {
            assert_eq!(prometheus_duration(text), Ok(Duration::from_hours(hours)), "{text}");
        }
        for bad in ["", "8", "d", "0d", "-8d", "8 d", "1.5d", "101y", "99999999999999999999y"] {
            assert!(prometheus_duration(bad).is_err(), "{bad}");
        }
    }
}
