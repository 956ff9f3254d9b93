//! Times in UTC, as flags accept them and as axes and tables show them.

use std::{error, fmt};

const DAY: i64 = 86_400;

/// The text is not a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTime {
    text: String,
}

impl fmt::Display for InvalidTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid time {:?}: use 2026-11-22T12:00:00Z, or seconds since the Unix epoch",
            self.text
        )
    }
}

impl error::Error for InvalidTime {}

/// Parses `1700000000` or `2026-11-22T12:00:00Z` into seconds since the Unix epoch.
pub fn moment(text: &str) -> Result<f64, InvalidTime> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Ok(seconds);
    }
    let seconds = civil(text).ok_or_else(|| InvalidTime { text: text.to_owned() })?;
    Ok(seconds as f64)
}

fn civil(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text.split(separator).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let right = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second);
    right.then(|| days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second)
}

/// Days since the Unix epoch. Years start in March here, so that the leap day is the last day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

/// Year, month and day.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let of_years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + of_years + i64::from(month < 3), month, day)
}

/// `2026-11-22 12:00`.
pub fn date_and_time(seconds: f64) -> String {
    let (year, month, day) = date((seconds as i64).div_euclid(DAY));
    format!("{year}-{month:02}-{day:02} {}", time(seconds))
}

/// `12:00`.
pub fn time(seconds: f64) -> String {
    let of_day = (seconds as i64).rem_euclid(DAY);
    format!("{:02}:{:02}", of_day / 3_600, of_day / 60 % 60)
}

/// `11/22`.
pub fn day(seconds: f64) -> String {
    let (_, month, day) = date((seconds as i64).div_euclid(DAY));
    format!("{month:02}/{day:02}")
}

/// Parses a duration in the syntax of Prometheus and Grafana: `90s`, `6h`, `1d`.
pub fn length(text: &str) -> Option<f64> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3_600.0,
        'd' => 86_400.0,
        'w' => 604_800.0,
        _ => return None,
    };
    let number: f64 = text.trim_end_matches(unit).parse().ok()?;
    (number > 0.0).then_some(number * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_and_printed() {
        assert_eq!(moment("2026-11-22T12:34:56Z").expect("a time"), 1_795_350_896.0);
        assert_eq!(moment("1795350896").expect("a time"), 1_795_350_896.0);
        assert_eq!(date_and_time(1_795_350_896.0), "2026-11-22 12:34");
        assert_eq!(day(1_795_350_896.0), "11/22");
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2100-02-28T23:59:59Z", 4_107_542_399),
        ] {
            assert_eq!(civil(text), Some(seconds), "{text}");
            assert_eq!(date_and_time(seconds as f64)[..10], text[..10]);
        }
        for text in ["noon", "2026-11-22", "2026-13-01T00:00:00Z", "2026-11-22T25:00:00Z"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_parsed() {
        assert_eq!(length("6h"), Some(21_600.0));
        assert_eq!(length("1.5d"), Some(129_600.0));
        for text in ["", "h", "6", "6y", "-1h", "0s"] {
            assert_eq!(length(text), None, "{text}");
        }
    }
}
