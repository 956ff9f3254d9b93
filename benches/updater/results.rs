//! The results of both updaters, and the table that compares them and checks bounds.

use std::fmt::{self, Write as _};

use super::{process::Process, support::recommender_pair::Implementation};

/// Maximum memory relative to upstream.
const MAX_MEMORY_RATIO: f64 = 1.0 / 3.0;
/// Maximum time of an eviction relative to upstream: nearly all of it is the server's, which varies.
const MAX_TIME_RATIO: f64 = 1.05;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of evicted pods.
    pub evicted: f64,
    /// Duration of a pass in seconds.
    pub pass: f64,
    pub process: Process,
}

/// All results.
#[derive(Debug, Default)]
pub struct Comparison {
    ours: Measurements,
    upstream: Measurements,
}

#[derive(Debug, Default)]
struct Measurements {
    calm: Vec<Run>,
    busy: Vec<Run>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { evicted, pass, process } = self;
        let peak = mebibytes(process.peak);
        write!(
            f,
            "{evicted} pods evicted, {pass:.3} s a pass, {:.1} s of CPU, {peak:.1} MiB peak",
            process.cpu
        )
    }
}

impl Comparison {
    fn of(&mut self, side: Implementation) -> &mut Measurements {
        match side {
            Implementation::Ours => &mut self.ours,
            Implementation::Upstream => &mut self.upstream,
        }
    }

    /// Adds a run without changes.
    pub fn calm(&mut self, side: Implementation, run: Run) {
        self.of(side).calm.push(run);
    }

    /// Adds a run with evictions.
    pub fn busy(&mut self, side: Implementation, run: Run) {
        self.of(side).busy.push(run);
    }

    /// The table for docs/benchmarks.md, and whether all bounds hold.
    pub fn table(&self) -> (String, bool) {
        let (ours, theirs) = (&self.ours, &self.upstream);
        let calm = |of: fn(&Run) -> f64| [median(&ours.calm, of), median(&theirs.calm, of)];
        let busy = |of: fn(&Run) -> f64| [median(&ours.busy, of), median(&theirs.busy, of)];
        let rows: [(&str, [f64; 2], Option<f64>); 7] = [
            ("s of a pass that changes nothing", calm(|it| it.pass), Some(1.0)),
            ("s of CPU of such a run", calm(|it| it.process.cpu), None),
            ("evictions a second", busy(|it| it.evicted / it.pass), None),
            ("s an eviction", busy(|it| it.pass / it.evicted), Some(MAX_TIME_RATIO)),
            ("s of CPU of a run that evicts", busy(|it| it.process.cpu), None),
            ("peak resident, MiB", busy(|it| mebibytes(it.process.peak)), Some(MAX_MEMORY_RATIO)),
            ("resident at the end, MiB", busy(|it| mebibytes(it.process.resident)), None),
        ];
        let mut text = String::from(
            "| what | Plimsoll | upstream 1.8.1 | ratio | at most | |\n|---|---|---|---|---|---|\n",
        );
        // An updater that evicts nothing must not count as fast.
        let is_fair = busy(|it| it.evicted).iter().all(|pods| *pods > 0.0)
            && calm(|it| it.evicted).iter().all(|pods| *pods <= 0.0);
        let mut all = is_fair;
        for (name, [ours, theirs], bound) in rows {
            let ratio = ours / theirs;
            let is_held = bound.map(|most| ratio <= most);
            all &= is_held != Some(false);
            let word = is_held.map_or("", |held| if held { "held" } else { "**NOT HELD**" });
            let limit = bound.map_or_else(String::new, |most| format!("{most:.2}"));
            let [ours, theirs, ratio] = [ours, theirs, ratio].map(number);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {name} | {ours} | {theirs} | {ratio} | {limit} | {word} |");
        }
        (text, all)
    }
}

fn median(runs: &[Run], figure: fn(&Run) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(figure).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn number(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
