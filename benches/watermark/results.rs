//! The results of each case, and the table that compares them with Datadog's and checks bounds.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use super::{
    metric_sources::Source, poll_periods::PeriodStats, process::Process, write_order::WriteOrder,
};

/// Maximum memory relative to Datadog's.
const MAX_MEMORY_RATIO: f64 = 1.0 / 3.0;
/// Maximum CPU relative to Datadog's.
const MAX_CPU_RATIO: f64 = 0.5;
/// Maximum delay of a read relative to the period: a later read belongs to the next period.
const MAX_PERIOD_DELAY: f64 = 0.2;

/// A case of the benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub source: Source,
    pub objects: usize,
    /// Pods per object.
    pub pods: usize,
}

/// The result of a case.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub periods: PeriodStats,
    /// Process statistics before and after the measured periods.
    pub before: Process,
    pub after: Process,
    pub took: Duration,
    /// Time until every object had a status.
    pub warm: Duration,
    pub period: Duration,
    /// The order of the writes, if it was recorded.
    pub writes: Option<WriteOrder>,
}

/// Results of Datadog's controller with two pods per object and one External metric, on two similar cores: peak
/// megabytes, and the share of the expected reads.
struct Yardstick {
    words: &'static str,
    megabytes: f64,
    kept: f64,
    cores: Option<f64>,
    /// Whether it read every period; if not, the result is no reference.
    is_bound: bool,
}

/// Measured with release 0.12 on a similar control plane. Its module cannot be built in this testbed.
fn yardsticks(case: &Case) -> Vec<Yardstick> {
    match (case.source, case.objects) {
        (Source::External, 500) => vec![Yardstick {
            words: "Datadog's, default flags",
            megabytes: 86.0,
            kept: 428.0 / 3_000.0,
            cores: None,
            is_bound: true,
        }],
        (Source::External, 2000) => vec![
            Yardstick {
                words: "Datadog's, default flags",
                megabytes: 113.0,
                kept: 249.0 / 12_000.0,
                cores: None,
                is_bound: false,
            },
            Yardstick {
                words: "Datadog's, 8 workers, no rate limit",
                megabytes: 224.0,
                kept: 1.0,
                cores: Some(0.29),
                is_bound: true,
            },
        ],
        _ => Vec::new(),
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.source {
            Source::External => "an External metric",
            Source::Prometheus => "a query to Prometheus",
            Source::Busy => "an External metric that makes half of them scale in each period",
        };
        write!(f, "{} objects, {} pods each, {of}", self.objects, self.pods)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeriodStats { due, made, reads, longest } = self.periods;
        write!(
            f,
            "{made} of {due} periods kept by {reads} reads, at most {longest:.2} s between two, {:.1} MB peak, {:.1} MB \
             now, {:.3} cores; all objects had a status after {:.0?}",
            megabytes(self.after.peak),
            megabytes(self.after.resident),
            self.cores(),
            self.warm,
        )
    }
}

impl Figures {
    fn cores(&self) -> f64 {
        (self.after.cpu - self.before.cpu) / self.took.as_secs_f64()
    }
}

/// The table for docs/benchmarks.md, and whether all bounds hold.
pub fn table(measured: &[(Case, Figures)]) -> (String, bool) {
    let mut text = String::from(
        "| what | Plimsoll | against | ratio | at most | |\n|---|---|---|---|---|---|\n",
    );
    let mut all = !measured.is_empty();
    let mut row = |what: String, ours: String, against: String, ratio: f64, most: Option<f64>| {
        // A ratio that is NaN satisfies no bound.
        let is_held = most.map(|most| ratio <= most);
        all &= is_held != Some(false);
        let word = is_held.map_or("", |held| if held { "held" } else { "**NOT HELD**" });
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.3}") };
        let most = most.map_or_else(String::new, |most| format!("{most:.3}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {what} | {ours} | {against} | {ratio} | {most} | {word} |");
    };
    for (case, figures) in measured {
        let PeriodStats { due, made, longest, .. } = figures.periods;
        let missed = (due - made) as f64 / due as f64;
        let kept = format!("{made} of {due}");
        row(
            format!("{case}: periods in which each was asked about"),
            kept,
            "missed".to_owned(),
            missed,
            Some(0.0),
        );
        let period = figures.period.as_secs_f64();
        let late = format!("{longest:.2}");
        row(
            "s between two reads of one, longest".to_owned(),
            late,
            format!("{period:.0}"),
            longest / period,
            Some(1.0 + MAX_PERIOD_DELAY),
        );
        let (peak, cores) = (megabytes(figures.after.peak), figures.cores());
        let references = yardsticks(case);
        for (what, ours) in
            [("peak resident, MB", format!("{peak:.1}")), ("cores", format!("{cores:.3}"))]
        {
            if references.is_empty() {
                row(what.to_owned(), ours, String::new(), f64::NAN, None);
                continue;
            }
            for reference in &references {
                let is_memory = what.starts_with("peak");
                let theirs = if is_memory { Some(reference.megabytes) } else { reference.cores };
                let Some(theirs) = theirs else { continue };
                let (own, bound) =
                    if is_memory { (peak, MAX_MEMORY_RATIO) } else { (cores, MAX_CPU_RATIO) };
                let share = reference.kept * 100.0;
                let against =
                    format!("{theirs} ({}, {share:.0} % of its periods)", reference.words);
                row(
                    what.to_owned(),
                    ours.clone(),
                    against,
                    own / theirs,
                    reference.is_bound.then_some(bound),
                );
            }
        }
        if let Some(WriteOrder { scales, statuses, late_scales }) = figures.writes {
            row(
                "scales sent after a status of the same second, although read before it".to_owned(),
                format!("{late_scales} of {scales}, {statuses} statuses"),
                String::new(),
                // Without scales, nothing was tested.
                if scales == 0 { f64::NAN } else { late_scales as f64 / scales as f64 },
                // A scale whose decision is being made while a status is sent comes after it.
                Some(0.01),
            );
        }
        let warm = format!("{:.0}", figures.warm.as_secs_f64());
        row("s until all objects had a status".to_owned(), warm, String::new(), f64::NAN, None);
    }
    (text, all)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
