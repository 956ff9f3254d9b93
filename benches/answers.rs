//! Decoding of Prometheus responses, on one thread and without a server: `cargo xtask bench answers`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{FutureExt as _, stream};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::decode::{
    DecodeError, Interest, Labels, ResponseKind, SeriesVisitor, decode_response,
};

const SERIES: u64 = 250;
const POINTS: u64 = 11_000;
const RUNS: usize = 7;
/// Bytes per chunk, as read from a connection.
const PIECE: usize = 16 << 10;

/// The value of a sample.
type Value = fn(u64) -> String;

/// Adds up the values, or skips all samples.
struct Sum {
    wants: Interest,
    sum: f64,
}

impl SeriesVisitor for Sum {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        self.wants
    }

    fn point(&mut self, _: Time, value: f64) {
        self.sum += value;
    }
}

fn main() {
    println!("{:<44}{:>10}{:>10}{:>12}", "", "MB", "MB/s", "points/s");
    let memory: Value = |n| (100_000_000 + n * 4096).to_string();
    let cpu: Value = |n| (1.0 / (n + 7) as f64).to_string();
    for (name, value, wants) in [
        ("memory: whole bytes", memory, Interest::Points),
        ("CPU: 17 digits", cpu, Interest::Points),
        ("CPU, passed over", cpu, Interest::LabelsOnly),
    ] {
        let answer = answer(value);
        let best = (0..RUNS).map(|_| read(&answer, wants)).min().unwrap_or_default();
        let seconds = best.as_secs_f64();
        let megabytes = answer.len() as f64 / 1e6;
        let points = (SERIES * POINTS) as f64;
        println!(
            "{name:<44}{megabytes:>10.0}{:>10.0}{:>12.0}",
            megabytes / seconds,
            points / seconds
        );
    }
}

fn read(answer: &str, wants: Interest) -> Duration {
    let start = Instant::now();
    let mut sum = Sum { wants, sum: 0.0 };
    let pieces = answer.as_bytes().chunks(PIECE);
    let pieces = pieces.map(|piece| Ok::<_, DecodeError>(Bytes::copy_from_slice(piece)));
    let kind = ResponseKind::QueryResult;
    let decoded = decode_response(stream::iter(pieces), kind, &mut sum, |_, _| Ok(()));
    let summary = decoded.now_or_never().expect("it has arrived").expect("a complete response");
    assert_eq!(summary.series, SERIES);
    black_box(sum.sum);
    start.elapsed()
}

fn answer(value: Value) -> String {
    let mut text = r#"{"status":"success","data":{"resultType":"matrix","result":["#.to_owned();
    for series in 0..SERIES {
        let comma = if series == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#"{comma}{{"metric":{{"namespace":"web","pod":"web-7d5f9c4b6d-{series:05}","container":"main"}},"values":["#
        );
        for point in 0..POINTS {
            let comma = if point == 0 { "" } else { "," };
            let _ = write!(
                text,
                r#"{comma}[{},"{}"]"#,
                1_700_000_000 + 60 * point,
                value(series + point)
            );
        }
        text.push_str("]}");
    }
    text.push_str("]}}");
    text
}
