//! The results of each case, and the table that compares both controllers and checks bounds.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use super::{
    controllers::{BothProcesses, UpstreamLimits},
    metrics_api::Hanging,
    poll_periods::PeriodStats,
};

/// Maximum memory and CPU of ours relative to upstream's.
const MAX_RATIO: f64 = 1.0;
/// Maximum delay of a reconcile relative to the period: a later one belongs to the next period.
pub const MAX_PERIOD_DELAY: f64 = 0.2;

/// A case of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub objects: usize,
    /// What does not respond while it is measured.
    pub hanging: Option<Hanging>,
}

/// The result of a case, about the objects whose metrics respond.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Our reconciles.
    pub ours: PeriodStats,
    /// Upstream's reads of metrics: it reads the metric of an object in each reconcile.
    pub upstream: PeriodStats,
    /// The statistics of the processes before and after the measured periods.
    pub before: BothProcesses,
    pub after: BothProcesses,
    pub periods: u32,
    pub period: Duration,
    /// Time until upstream, and then ours, had decided about every object.
    pub warm: [Duration; 2],
    /// Number of comparisons by result.
    pub comparisons: BTreeMap<String, u64>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} HPAs, 2 pods each", self.objects)?;
        match self.hanging {
            None => Ok(()),
            Some(Hanging::Adapter) => {
                f.write_str(", the adapter of half of them hangs: the others")
            }
            Some(Hanging::Usage) => f.write_str(", the usage of one namespace hangs: the others"),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = |PeriodStats { due, made, longest, .. }| {
            format!("{made} of {due} periods kept, at most {longest:.2} s between two")
        };
        let (ours, upstream) = (self.cpu_seconds(true), self.cpu_seconds(false));
        write!(
            f,
            "ours: {}, {:.1} MB peak, {ours:.2} CPU s a period; upstream: {}, {:.1} MB peak, {upstream:.2} CPU s a period; \
             decided after {:.0?} and {:.0?}; comparisons {:?}",
            turns(self.ours),
            megabytes(self.after.ours.peak),
            turns(self.upstream),
            megabytes(self.after.upstream.peak),
            self.warm[1],
            self.warm[0],
            self.comparisons,
        )
    }
}

impl Figures {
    /// CPU seconds per period, of ours or of upstream's.
    fn cpu_seconds(&self, is_ours: bool) -> f64 {
        let (before, after) = if is_ours {
            (self.before.ours.cpu, self.after.ours.cpu)
        } else {
            (self.before.upstream.cpu, self.after.upstream.cpu)
        };
        (after - before) / f64::from(self.periods)
    }
}

/// The table for docs/benchmarks.md, and whether all bounds hold.
pub fn table(measured: &[(Case, Figures)], limits: UpstreamLimits) -> (String, bool) {
    let UpstreamLimits { syncs, qps } = limits;
    let mut text = format!(
        "kube-controller-manager with `--concurrent-horizontal-pod-autoscaler-syncs={syncs}` and `--kube-api-qps={qps}`.\n\n\
         | what | Plimsoll | upstream | ratio | at most | |\n|---|---|---|---|---|---|\n"
    );
    let mut all = true;
    let mut row = |what: String, ours: String, upstream: String, ratio: f64, most: Option<f64>| {
        // A ratio that is NaN satisfies no bound.
        let is_held = most.map(|most| ratio <= most);
        all &= is_held != Some(false);
        let word = is_held.map_or("", |held| if held { "held" } else { "**NOT HELD**" });
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.3}") };
        let most = most.map_or_else(String::new, |most| format!("{most:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {what} | {ours} | {upstream} | {ratio} | {most} | {word} |");
    };
    for (case, figures) in measured {
        let missed =
            |periods: PeriodStats| (periods.due - periods.made) as f64 / periods.due as f64;
        let kept = |periods: PeriodStats| format!("{} of {}", periods.made, periods.due);
        let (ours, upstream) = (figures.ours, figures.upstream);
        let what = format!("{case}: periods in which each was reconciled (ratio: missed)");
        row(what, kept(ours), kept(upstream), missed(ours), Some(0.0));
        let period = figures.period.as_secs_f64();
        row(
            "s between two reconciles of one, longest (ratio: to the period)".to_owned(),
            format!("{:.2}", ours.longest),
            format!("{:.2}", upstream.longest),
            ours.longest / period,
            Some(1.0 + MAX_PERIOD_DELAY),
        );
        // While metrics hang, upstream does less: its figures are no bound then.
        let bound = case.hanging.is_none().then_some(MAX_RATIO);
        let peaks = [figures.after.ours, figures.after.upstream].map(|of| megabytes(of.peak));
        let cpu = [figures.cpu_seconds(true), figures.cpu_seconds(false)];
        for (what, [ours, upstream], digits) in
            [("peak resident, MB", peaks, 1), ("CPU seconds per period", cpu, 2)]
        {
            let text = |value: f64| format!("{value:.digits$}");
            row(what.to_owned(), text(ours), text(upstream), ours / upstream, bound);
        }
        let results = figures.comparisons.iter().filter(|(_, count)| **count > 0);
        let results: Vec<_> = results.map(|(result, count)| format!("{count} {result}")).collect();
        row("decisions compared".to_owned(), results.join(", "), String::new(), f64::NAN, None);
    }
    (text, all)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
