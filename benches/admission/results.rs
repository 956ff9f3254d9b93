//! The results of both sides, and the table that compares them and checks bounds.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use super::{
    load::{LoadPattern, LoadResult},
    process::Process,
    support::recommender_pair::Implementation,
};

/// Maximum memory relative to upstream.
const MAX_MEMORY_RATIO: f64 = 1.0 / 3.0;

/// The result of one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Median latency in milliseconds.
    p50: f64,
    /// 99th percentile of the latency in milliseconds.
    p99: f64,
    /// Responses per second.
    rate: f64,
    /// CPU time of the webhook per response, in microseconds.
    cpu: f64,
}

/// All results.
#[derive(Debug, Default)]
pub struct Comparison {
    ours: Measurements,
    upstream: Measurements,
}

#[derive(Debug, Default)]
struct Measurements {
    rounds: BTreeMap<LoadPattern, Vec<Round>>,
    process: Process,
}

/// The bound of a ratio.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    None,
}

// === impl Round ===

impl Round {
    /// A round for which the webhook used this many seconds of CPU.
    pub fn of(result: LoadResult, cpu: f64) -> Self {
        let LoadResult { mut latencies, took } = result;
        latencies.sort_unstable();
        let count = latencies.len();
        let at = |share: f64| {
            let place = (count as f64 * share) as usize;
            f64::from(latencies[place.min(count - 1)]) / 1e6
        };
        Self {
            p50: at(0.5),
            p99: at(0.99),
            rate: count as f64 / took.as_secs_f64(),
            cpu: cpu * 1e6 / count as f64,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50: half, p99: most, rate, cpu } = self;
        write!(f, "p50 {half:.3} ms, p99 {most:.3} ms, {rate:.0}/s, {cpu:.1} µs of CPU")
    }
}

// === impl Comparison ===

impl Comparison {
    fn of(&mut self, side: Implementation) -> &mut Measurements {
        match side {
            Implementation::Ours => &mut self.ours,
            Implementation::Upstream => &mut self.upstream,
        }
    }

    /// Adds a round.
    pub fn add(&mut self, side: Implementation, pattern: LoadPattern, round: Round) {
        self.of(side).rounds.entry(pattern).or_default().push(round);
    }

    /// Sets the process statistics of a side.
    pub fn end(&mut self, side: Implementation, process: Process) {
        self.of(side).process = process;
    }

    /// Half of the slower side's rate on eight connections, if it was measured.
    pub fn pace(&self) -> f64 {
        let rates =
            [&self.ours, &self.upstream].map(|it| it.median(LoadPattern::Eight, |it| it.rate));
        rates.into_iter().fold(f64::MAX, f64::min) / 2.0
    }

    /// The table for docs/benchmarks.md, and whether all bounds hold.
    pub fn table(&self) -> (String, bool) {
        let mut rows = Vec::new();
        for pattern in LoadPattern::ALL {
            let words = pattern.words();
            let figure = |of: fn(&Round) -> f64| {
                [self.ours.median(pattern, of), self.upstream.median(pattern, of)]
            };
            // At the same rate both do the same work, so only the latency differs.
            let rate =
                if pattern == LoadPattern::Paced { Bound::None } else { Bound::AtLeast(1.0) };
            rows.extend([
                (format!("{words}: p50, ms"), figure(|it| it.p50), Bound::AtMost(1.0)),
                (format!("{words}: p99, ms"), figure(|it| it.p99), Bound::AtMost(1.0)),
                (format!("{words}: reviews a second"), figure(|it| it.rate), rate),
                (format!("{words}: µs of CPU a review"), figure(|it| it.cpu), Bound::None),
            ]);
        }
        let memory = |of: fn(&Process) -> u64| {
            [&self.ours, &self.upstream].map(|it| of(&it.process) as f64 / f64::from(1 << 20))
        };
        rows.push((
            "peak resident, MiB".to_owned(),
            memory(|it| it.peak),
            Bound::AtMost(MAX_MEMORY_RATIO),
        ));
        rows.push(("resident at the end, MiB".to_owned(), memory(|it| it.resident), Bound::None));
        let mut text = String::from(
            "| what | Plimsoll | upstream 1.8.1 | ratio | bound | |\n|---|---|---|---|---|---|\n",
        );
        let mut all = true;
        for (name, [ours, theirs], bound) in rows {
            let ratio = ours / theirs;
            let (limit, is_held) = match bound {
                Bound::AtMost(most) => (format!("at most {most:.2}"), Some(ratio <= most)),
                Bound::AtLeast(least) => (format!("at least {least:.2}"), Some(ratio >= least)),
                Bound::None => (String::new(), None),
            };
            all &= is_held != Some(false);
            let word = is_held.map_or("", |held| if held { "held" } else { "**NOT HELD**" });
            let [ours, theirs, ratio] = [ours, theirs, ratio].map(number);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {name} | {ours} | {theirs} | {ratio} | {limit} | {word} |");
        }
        (text, all)
    }
}

impl Measurements {
    fn median(&self, pattern: LoadPattern, of: fn(&Round) -> f64) -> f64 {
        let mut all: Vec<f64> = self.rounds.get(&pattern).into_iter().flatten().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

fn number(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
