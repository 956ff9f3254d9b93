//! Recorded load: a CSV file of `time,value` lines, read line by line.
//!
//! The time is in whole Unix seconds, RFC 3339, or `YYYY-MM-DD HH:MM:SS` (in UTC). One header line is allowed.
//! An invalid line is an error with file, line and remedy: a backtest on part of a file would be misleading.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

pub use super::series_line::{LineError, Point};
use super::series_line::{MAX_LINE_BYTES, parse_line};

/// Why a file cannot be used as a series.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}:{line}: {fault}", path.display())]
    Malformed { path: PathBuf, line: u64, fault: LineError },
    #[error("{}: fewer than two values: write lines like 1767571200,0.25", path.display())]
    TooShort { path: PathBuf },
}

/// Reads a recorded load; each value is multiplied by `scale` (0.01 for percent of a core).
pub fn read_series(path: &Path, scale: f64) -> Result<Vec<Point>, SeriesError> {
    let unreadable = |error| SeriesError::Unreadable { path: path.to_owned(), error };
    let file = File::open(path).map_err(unreadable)?;
    parse_series(path, BufReader::new(file), scale)
}

/// Reads from `input`; `path` is for error messages.
fn parse_series(
    path: &Path,
    mut input: impl BufRead,
    scale: f64,
) -> Result<Vec<Point>, SeriesError> {
    let (mut points, mut line) = (Vec::<Point>::new(), Vec::new());
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| SeriesError::Unreadable { path: path.to_owned(), error })? == 0 {
            break;
        }
        let before = points.last().map(|point| point.at);
        let parsed = parse_line(&line, number == 1, before, scale);
        let malformed =
            |fault| SeriesError::Malformed { path: path.to_owned(), line: number, fault };
        points.extend(parsed.map_err(malformed)?);
    }
    if points.len() < 2 {
        return Err(SeriesError::TooShort { path: path.to_owned() });
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::types::Time;

    fn read(text: &str) -> Result<Vec<Point>, String> {
        parse_series(Path::new("load.csv"), text.as_bytes(), 1.0).map_err(|error| error.to_string())
    }

    #[test]
    fn the_three_time_formats_are_equivalent() {
        let forms = [
            "ts,value\n1767571200,1.5\n1767571260,2\n",
            "timestamp,value\n2026-01-05T00:00:00Z,1.5\n2026-01-05T00:01:00Z,2\n",
            "timestamp,value\r\n2026-01-05 00:00:00,1.5\r\n2026-01-05 00:01:00,2\r\n",
            "\u{feff}2026-01-05 01:00:00+01:00,1.5\n\n2026-01-05 01:01:00+01:00,2",
        ];
        let series: Vec<Vec<Point>> = forms.iter().map(|text| read(text).expect(text)).collect();
        assert!(series.windows(2).all(|pair| pair[0] == pair[1]), "{series:?}");
        let times: Vec<Time> = series[0].iter().map(|point| point.at).collect();
        assert_eq!(times, [1_767_571_200, 1_767_571_260].map(Time::from_secs));
    }

    #[test]
    fn a_scale_converts_percent_to_cores() {
        let series = parse_series(Path::new("x"), "0,50\n60,100".as_bytes(), 0.01).expect("reads");
        assert_eq!(series.iter().map(|point| point.value).collect::<Vec<_>>(), [0.5, 1.0]);
    }

    #[test]
    fn every_invalid_line_is_reported_with_its_position_and_a_remedy() {
        let cases: [(&str, &str); 16] = [
            (
                "ts,value\n1,2,3\n",
                r#"load.csv:2: "1,2,3" does not have two columns: write time,value"#,
            ),
            ("5\n", r#"load.csv:1: "5" does not have two columns: write time,value"#),
            (
                "ts,value\nyesterday,1\n",
                "load.csv:2: \"yesterday\" is not a time: write Unix seconds, \
                 2026-01-05T00:00:00Z or 2026-01-05 00:00:00 (UTC)",
            ),
            (
                "1767571200000,1\n",
                "load.csv:1: 1767571200000 is in the far future: Unix times are read as seconds, \
                 divide milliseconds by 1000",
            ),
            (
                "0,1\n9999999999,2\n",
                "load.csv:2: \"9999999999\" is not between 1970 and 2100: check the column of times",
            ),
            (
                "-1,1\n",
                "load.csv:1: \"-1\" is not between 1970 and 2100: check the column of times",
            ),
            (
                "2262-04-12T00:00:00Z,1\n",
                "load.csv:1: \"2262-04-12T00:00:00Z\" is not between 1970 and 2100: check the column \
                 of times",
            ),
            ("1,1e308\n", "load.csv:1: \"1e308\" is too large, more than 1e15: check the unit"),
            (
                "1,1000000000000001\n",
                "load.csv:1: \"1000000000000001\" is too large, more than 1e15: check the \
                 unit",
            ),
            (
                "1,1\n2,NaN\n",
                "load.csv:2: \"NaN\" is not a non-negative number: write one like 0.25, or \
                 remove the line",
            ),
            (
                "1,1\n2,-3\n",
                "load.csv:2: \"-3\" is not a non-negative number: write one like 0.25, or \
                 remove the line",
            ),
            (
                "1,\n",
                "load.csv:1: \"\" is not a non-negative number: write one like 0.25, or remove \
                 the line",
            ),
            (
                "60,1\n0,1\n",
                "load.csv:2: 1970-01-01T00:00:00Z is not later than 1970-01-01T00:01:00Z on the \
                 line before: sort by time, each time once",
            ),
            (
                "60,1\n60,1\n",
                "load.csv:2: 1970-01-01T00:01:00Z is not later than 1970-01-01T00:01:00Z on the \
                 line before: sort by time, each time once",
            ),
            ("ts,value\n", "load.csv: fewer than two values: write lines like 1767571200,0.25"),
            ("0,1\n", "load.csv: fewer than two values: write lines like 1767571200,0.25"),
        ];
        for (text, message) in cases {
            assert_eq!(read(text).expect_err(text), message);
        }
    }

    #[test]
    fn a_value_that_is_too_large_after_scaling_is_rejected() {
        let input = &b"0,2e10\n1,1"[..];
        let error = parse_series(Path::new("x"), input, 1e300).expect_err("scaled");
        assert!(error.to_string().starts_with("x:1: \"2e10\" is too large"), "{error}");
    }

    #[test]
    fn a_binary_or_endless_line_is_rejected_without_buffering_it() {
        let endless = io::repeat(b'7');
        let error =
            parse_series(Path::new("z"), BufReader::new(endless), 1.0).expect_err("endless");
        assert!(
            error.to_string().starts_with("z:1: this line is longer than 256 bytes"),
            "{error}"
        );
        let error = parse_series(Path::new("z"), &b"\xff\xfe,1\n"[..], 1.0).expect_err("binary");
        assert!(error.to_string().starts_with("z:1: this line is not UTF-8 text"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_series(Path::new("/nonexistent/load.csv"), 1.0).expect_err("not there");
        assert!(error.to_string().starts_with("/nonexistent/load.csv: "), "{error}");
    }
}
