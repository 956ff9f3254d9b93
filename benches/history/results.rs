//! The tables for docs/benchmarks.md.

use std::fmt::Write as _;

use super::reader_process::Figures;

/// Maximum time relative to the same requests with discarded responses.
const MAX_TIME_RATIO: f64 = 1.3;
/// Maximum MiB above a process that reads nothing.
const MAX_EXTRA_MEBIBYTES: f64 = 64.0;
/// Maximum peak memory relative to what remains.
const MAX_PEAK_RATIO: f64 = 2.0;

/// All results.
#[derive(Debug)]
pub struct Comparison {
    pub idle: Figures,
    pub unread: Figures,
    pub curl: Figures,
    pub ours: Figures,
    pub plain: Figures,
    pub upstream: Option<Figures>,
    pub large: Figures,
}

/// A row: its label and value.
type Row = (&'static str, fn(&Figures) -> f64);

const ROWS: [Row; 8] = [
    ("s", |it| it.seconds),
    ("s of CPU of the process", |it| it.cpu),
    ("s of CPU of the server", |it| it.server),
    ("requests", |it| it.requests as f64),
    ("MB of answers", |it| it.bytes as f64 / 1e6),
    ("M points", |it| it.points as f64 / 1e6),
    ("peak resident, MiB", |it| mebibytes(it.peak)),
    ("resident afterwards, MiB", |it| mebibytes(it.resident)),
];

impl Comparison {
    /// One row per figure, one column per reader.
    pub fn figures(&self) -> String {
        let Self { idle, unread, curl, ours, plain, upstream, .. } = self;
        let mut sides = vec![
            ("Plimsoll", ours),
            ("nothing read", idle),
            ("into /dev/null, same client", unread),
            ("into /dev/null, as curl", curl),
            ("prometheus-http-query", plain),
        ];
        sides.extend(upstream.as_ref().map(|it| ("upstream 1.8.1, 7 days at most", it)));
        let mut text = String::from("| what |");
        for (name, _) in &sides {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name} |");
        }
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(sides.len()));
        for (name, value) in ROWS {
            let cell = |side: &Figures| match value(side) {
                0.0 => String::new(),
                value => number(value),
            };
            let cells: Vec<_> = sides.iter().map(|(_, side)| cell(side)).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        text
    }

    /// The bounds, and whether all of them hold.
    pub fn bounds(&self) -> (String, bool) {
        let Self { idle, unread, curl, ours, large, .. } = self;
        let above = mebibytes(ours.peak) - mebibytes(idle.peak);
        let mut rows = vec![
            (
                "time against the same requests into /dev/null, same client",
                ours.seconds / unread.seconds,
                MAX_TIME_RATIO,
            ),
            (
                "time against the same requests into /dev/null, as curl",
                ours.seconds / curl.seconds,
                MAX_TIME_RATIO,
            ),
            ("MiB of the peak above a process that reads nothing", above, MAX_EXTRA_MEBIBYTES),
            (
                "made up: peak resident against resident afterwards",
                large.peak as f64 / large.resident.max(1) as f64,
                MAX_PEAK_RATIO,
            ),
        ];
        rows.extend(large.allocated.map(|(most, remaining)| {
            let ratio = most as f64 / remaining.max(1) as f64;
            ("made up: most allocated at once against what is left of it", ratio, MAX_PEAK_RATIO)
        }));
        let mut text = format!(
            "| {} histories, made up: {} MiB peak, {} MiB afterwards | | at most | |\n|---|---|---|---|\n",
            large.histories,
            number(mebibytes(large.peak)),
            number(mebibytes(large.resident))
        );
        let mut all = true;
        for (name, value, bound) in rows {
            let is_held = value <= bound;
            all &= is_held;
            let word = if is_held { "held" } else { "NOT HELD" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {name} | {} | {bound} | {word} |", number(value));
        }
        (text, all)
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn number(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
