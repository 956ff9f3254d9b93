//! Recorded load: a CSV file of `time,value` lines, read line by line.
//!
//! The time is in whole Unix seconds, RFC 3339, or `YYYY-MM-DD HH:MM:SS` (in UTC). One header line is allowed.
//! An invalid line is an error with file, line and remedy: a backtest on part of a file would be misleading.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::types::Time;

pub use super::series_line::{LineError, Point};
use super::series_line::{MAX_LINE_BYTES, parse_line};

/// A recorded load. A value holds until the next one. After its [end](Series::end) the recording repeats; stop
/// there to use each value only once.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    points: Vec<Point>,
    span: i64,
}

/// Why a file cannot be used as a series.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// A line is invalid.
    #[error("{}:{line}: {fault}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: u64,
        fault: LineError,
    },
    /// The file has fewer than two values.
    #[error("{}: fewer than two values: write lines like 1767571200,0.25", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
    },
}

impl Series {
    /// Reads a file; each value is multiplied by `scale` (0.01 for percent of a core).
    pub fn open(path: &Path, scale: f64) -> Result<Self, SeriesError> {
        let unreadable = |error| SeriesError::Unreadable { path: path.to_owned(), error };
        let file = File::open(path).map_err(unreadable)?;
        Self::read(path, BufReader::new(file), scale)
    }

    /// Reads from `input`; `path` is for error messages.
    pub fn read(path: &Path, input: impl BufRead, scale: f64) -> Result<Self, SeriesError> {
        let points = Points::new(path, input, scale).collect::<Result<Vec<Point>, _>>()?;
        let [first, .., before_last, last] = points.as_slice() else {
            let [first, last] = points.as_slice() else {
                return Err(SeriesError::TooShort { path: path.to_owned() });
            };
            let span = 2 * last.at.nanos_since(first.at);
            return Ok(Self { points, span });
        };
        // The last value holds as long as the one before it.
        let span = last.at.nanos_since(first.at) + last.at.nanos_since(before_last.at);
        Ok(Self { points, span })
    }

    /// Time of the first value.
    pub fn start(&self) -> Time {
        self.points.first().map_or(Time::EPOCH, |point| point.at)
    }

    /// The duration, including that of the last value.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.span.unsigned_abs())
    }

    /// The end of the last value; the recording repeats from here.
    pub fn end(&self) -> Time {
        self.start().later(self.span())
    }

    /// The values in order of time.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the value at a time.
    pub fn at(&self, time: Time) -> f64 {
        let start = self.start();
        let within = time.nanos_since(start).rem_euclid(self.span.max(1));
        let after = self.points.partition_point(|point| point.at.nanos_since(start) <= within);
        after
            .checked_sub(1)
            .and_then(|index| self.points.get(index))
            .map_or(0.0, |point| point.value)
    }
}

/// Iterates over the points of a series file.
pub struct Points<R> {
    path: PathBuf,
    input: R,
    scale: f64,
    line: Vec<u8>,
    number: u64,
    previous: Option<Time>,
    is_finished: bool,
}

impl<R: BufRead> Points<R> {
    /// Reads from `input`; each value is multiplied by `scale`, and `path` is for error messages.
    pub fn new(path: &Path, input: R, scale: f64) -> Self {
        Self {
            path: path.to_owned(),
            input,
            scale,
            line: Vec::new(),
            number: 0,
            previous: None,
            is_finished: false,
        }
    }

    /// Returns the next point, or `None` at the end.
    fn advance(&mut self) -> Result<Option<Point>, SeriesError> {
        loop {
            self.line.clear();
            let read = (&mut self.input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut self.line);
            if read.map_err(|error| SeriesError::Unreadable { path: self.path.clone(), error })?
                == 0
            {
                return Ok(None);
            }
            self.number += 1;
            let parsed = parse_line(&self.line, self.number == 1, self.previous, self.scale);
            let point = parsed.map_err(|fault| SeriesError::Malformed {
                path: self.path.clone(),
                line: self.number,
                fault,
            })?;
            if let Some(point) = point {
                self.previous = Some(point.at);
                return Ok(Some(point));
            }
        }
    }
}

impl<R: BufRead> Iterator for Points<R> {
    type Item = Result<Point, SeriesError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        let next = self.advance().transpose();
        self.is_finished = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "values are handed through, not computed")]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Series, String> {
        Series::read(Path::new("load.csv"), text.as_bytes(), 1.0).map_err(|error| error.to_string())
    }

    #[test]
    fn the_three_time_formats_are_equivalent() {
        let forms = [
            "ts,value\n1767571200,1.5\n1767571260,2\n",
            "timestamp,value\n2026-01-05T00:00:00Z,1.5\n2026-01-05T00:01:00Z,2\n",
            "timestamp,value\r\n2026-01-05 00:00:00,1.5\r\n2026-01-05 00:01:00,2\r\n",
            "\u{feff}2026-01-05 01:00:00+01:00,1.5\n\n2026-01-05 01:01:00+01:00,2",
        ];
        let series: Vec<Series> = forms.iter().map(|text| read(text).expect(text)).collect();
        assert!(series.windows(2).all(|pair| pair[0] == pair[1]), "{series:?}");
        assert_eq!(series[0].start(), Time::from_secs(1_767_571_200));
        assert_eq!(series[0].span(), Duration::from_mins(2));
    }

    #[test]
    fn a_value_lasts_until_the_next_and_the_recording_repeats() {
        let series = read("0,1\n60,2\n180,3\n").expect("three points");
        let at = |secs| series.at(Time::from_secs(secs));
        assert_eq!(
            [at(0), at(59), at(60), at(179), at(180), at(299)],
            [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
        );
        assert_eq!([at(300), at(360), at(-1)], [1.0, 2.0, 3.0]);
        assert_eq!(series.end(), Time::from_secs(300));
    }

    #[test]
    fn a_scale_converts_percent_to_cores() {
        let series = Series::read(Path::new("x"), "0,50\n60,100".as_bytes(), 0.01).expect("reads");
        assert_eq!(series.points().iter().map(|p| p.value).collect::<Vec<_>>(), [0.5, 1.0]);
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
    fn the_longest_possible_recording_does_not_overflow() {
        let series = read("0,1\n4102444799,2\n").expect("two points");
        assert_eq!(series.span(), Duration::from_secs(2 * 4_102_444_799));
        assert_eq!(series.at(Time::from_secs(4_102_444_799)), 2.0);
        let error = Series::read(Path::new("x"), &b"0,2e10\n1,1"[..], 1e300).expect_err("scaled");
        assert!(error.to_string().starts_with("x:1: \"2e10\" is too large"), "{error}");
    }

    #[test]
    fn a_binary_or_endless_line_is_rejected_without_buffering_it() {
        let endless = io::repeat(b'7');
        let error =
            Series::read(Path::new("z"), BufReader::new(endless), 1.0).expect_err("endless");
        assert!(
            error.to_string().starts_with("z:1: this line is longer than 256 bytes"),
            "{error}"
        );
        let error = Series::read(Path::new("z"), &b"\xff\xfe,1\n"[..], 1.0).expect_err("binary");
        assert!(error.to_string().starts_with("z:1: this line is not UTF-8 text"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Series::open(Path::new("/nonexistent/load.csv"), 1.0).expect_err("not there");
        assert!(error.to_string().starts_with("/nonexistent/load.csv: "), "{error}");
    }
}
