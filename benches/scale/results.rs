//! The results of a run, and the table that compares both sides.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::process::Process;
use super::support::http_get::http_get;
use super::support::recommender_pair::{Implementation, RecommenderProcess};
use super::write_ages::Summary;

const FAMILY: &str = "vpa_recommender_execution_latency_seconds";

/// Durations of passes by step.
#[derive(Debug, Default)]
pub struct PassTimes {
    last: BTreeMap<String, (f64, f64)>,
    /// Seconds of each pass, or the mean of those that ended between two scrapes.
    times: BTreeMap<String, Vec<f64>>,
}

/// All results of one side.
#[derive(Debug)]
pub struct Figures {
    pub passes: PassTimes,
    pub statuses: Summary,
    pub checkpoints: Summary,
    pub process: Process,
    pub duration: Duration,
}

// === impl PassTimes ===

impl PassTimes {
    /// Scrapes the recommender's metrics.
    pub async fn read_metrics(&mut self, recommender: &RecommenderProcess) {
        let address = format!("http://127.0.0.1:{}/metrics", recommender.port);
        let Some(body) = http_get(&address).await else { return };
        let now = sums_and_counts(&String::from_utf8_lossy(&body));
        for (step, (sum, count)) in &now {
            let (last_sum, last_count) = self.last.get(step).copied().unwrap_or_default();
            if *count > last_count {
                let each = (sum - last_sum) / (count - last_count);
                self.times.entry(step.clone()).or_default().push(each);
            }
        }
        self.last = now;
    }

    fn count(&self) -> f64 {
        self.last.get("total").map_or(0.0, |(_, count)| *count)
    }

    fn mean(&self, step: &str) -> Option<f64> {
        let (sum, count) = self.last.get(step)?;
        (*count > 0.0).then(|| sum / count)
    }

    fn longest(&self, step: &str) -> Option<f64> {
        self.times.get(step)?.iter().copied().reduce(f64::max)
    }
}

/// Sum and count of each step.
fn sums_and_counts(text: &str) -> BTreeMap<String, (f64, f64)> {
    let mut found: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(FAMILY) else { continue };
        let Some((name, value)) = rest.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let Some((kind, labels)) = name.split_once('{') else { continue };
        let Some(step) = labels.split('"').nth(1).filter(|_| labels.starts_with("step=")) else {
            continue;
        };
        let entry = found.entry(step.to_owned()).or_default();
        match kind {
            "_sum" => entry.0 = value,
            "_count" => entry.1 = value,
            _ => {}
        }
    }
    found
}

/// The table for docs/benchmarks.md: one row per figure, one column per side, and the ratio.
pub fn table(columns: &[(Implementation, Figures)]) -> String {
    let column =
        |side| columns.iter().find(|(of, _)| *of == side).map(|(_, figures)| rows(figures));
    let (ours, theirs) = (column(Implementation::Ours), column(Implementation::Upstream));
    let names: Vec<String> =
        ours.iter().chain(&theirs).flatten().map(|(name, _)| name.clone()).fold(
            Vec::new(),
            |mut names, name| {
                if !names.contains(&name) {
                    names.push(name);
                }
                names
            },
        );
    let value = |side: &Option<Vec<(String, Option<f64>)>>, name: &str| {
        side.as_ref()?.iter().find(|(of, _)| of == name)?.1
    };
    let mut text = String::from("| what | Plimsoll | upstream | ratio |\n|---|---|---|---|\n");
    for name in &names {
        let (one, other) = (value(&ours, name), value(&theirs, name));
        let ratio =
            one.zip(other).filter(|(_, other)| *other > 0.0).map(|(one, other)| one / other);
        let cell = |value: Option<f64>| value.map_or_else(String::new, number);
        let _ = writeln!(text, "| {name} | {} | {} | {} |", cell(one), cell(other), cell(ratio));
    }
    text
}

fn rows(figures: &Figures) -> Vec<(String, Option<f64>)> {
    let Figures { passes, statuses, checkpoints, process, duration } = figures;
    let seconds = |time: Duration| Some(time.as_secs_f64());
    let mebibytes = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
    let mut rows = vec![
        ("passes ended".to_owned(), Some(passes.count())),
        ("s a pass, mean".to_owned(), passes.mean("total")),
        ("s a pass, longest".to_owned(), passes.longest("total")),
    ];
    for step in passes.last.keys().filter(|step| *step != "total") {
        rows.push((format!("s of `{step}`, mean"), passes.mean(step)));
    }
    for (name, ages) in [("status", statuses), ("checkpoint", checkpoints)] {
        rows.extend([
            (format!("{name}: never written"), Some(ages.never as f64)),
            (format!("{name}: s until each was written once"), seconds(ages.first)),
            (format!("{name}: greatest age, s, of the median object"), seconds(ages.usual)),
            (format!("{name}: greatest age, s, of all"), seconds(ages.oldest)),
            (format!("{name}: % younger than a minute at the end"), Some(ages.fresh * 100.0)),
            (format!("{name}: s after an OOM kill"), ages.awaited.map(|time| time.as_secs_f64())),
        ]);
    }
    let writes = (statuses.writes + checkpoints.writes) as f64;
    rows.extend([
        ("writes a second".to_owned(), Some(writes / duration.as_secs_f64())),
        ("cores used".to_owned(), Some(process.cpu / duration.as_secs_f64())),
        ("peak resident, MiB".to_owned(), mebibytes(process.peak)),
        ("resident at the end, MiB".to_owned(), mebibytes(process.resident)),
    ]);
    rows
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.0095 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        ..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
