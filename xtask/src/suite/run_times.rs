//! Durations of the last runs, in the user's cache: `cargo xtask times` prints them, and the next run is planned with
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use xtask::cache;

use super::report::{Report, println};
use super::suite_outcome::SuiteOutcome;
use super::{Options, Tier};

/// Number of runs that are stored.
const RUNS: usize = 12;
/// Number of tests that are listed.
const SLOWEST: usize = 40;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Times {
    /// Duration of each test's last success, in seconds.
    tests: BTreeMap<String, f64>,
    /// The last complete runs, oldest first.
    runs: Vec<Run>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Run {
    /// Seconds since the Unix epoch.
    ended: u64,
    tier: String,
    noise: bool,
    seconds: f64,
    parts: Vec<(String, f64, Option<u64>)>,
    passed: usize,
    failed: usize,
    flaky: Vec<String>,
    testbed: String,
}

fn path() -> Result<PathBuf> {
    Ok(cache::folder()?.join("times.json"))
}

fn load() -> Times {
    // The durations only affect the order, so a damaged file is ignored.
    let text = path().ok().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Duration of each test's last success, in seconds.
pub fn last_durations() -> BTreeMap<String, f64> {
    load().tests
}

/// Stores the durations of a run.
pub fn keep(options: &Options, report: &Report, verdict: &SuiteOutcome) -> Result<()> {
    let mut times = load();
    let is_whole = options.filters.is_empty() && options.selection.is_all();
    let is_usual = options.tier == Tier::Gate && !options.noise;
    if is_usual {
        for one in &verdict.passed {
            times.tests.insert(one.test.full.clone(), one.end.duration.as_secs_f64());
        }
    }
    if is_whole {
        if is_usual {
            let names = verdict.passed.iter().map(|one| &one.test.full);
            let names = names.chain(verdict.failed.iter().map(|(test, _)| &test.full));
            let names: std::collections::BTreeSet<&String> = names.collect();
            times.tests.retain(|name, _| report.not_started > 0 || names.contains(name));
        }
        times.runs.push(Run {
            ended: now(),
            tier: options.tier.name().to_owned(),
            noise: options.noise,
            seconds: report.total.as_secs_f64(),
            parts: report
                .parts
                .iter()
                .map(|part| (part.name.clone(), part.took.as_secs_f64(), part.busy))
                .collect(),
            passed: verdict.passed.len(),
            failed: verdict.failed.len(),
            flaky: verdict.flaky.iter().map(|(test, _)| test.full.clone()).collect(),
            testbed: report.events.line(),
        });
        let old = times.runs.len().saturating_sub(RUNS);
        times.runs.drain(..old);
    }
    let path = path()?;
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    // Renamed into place, so that an interrupted run leaves the old file.
    let half = path.with_extension("half");
    fs::write(&half, serde_json::to_string(&times)?).context("cannot write to the cache")?;
    fs::rename(&half, &path)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a note for people, when a run was")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Prints the slowest tests, sums by area, and the last runs.
pub fn print() {
    let times = load();
    if times.tests.is_empty() {
        println("no run has been recorded: run `cargo xtask test`");
        return;
    }
    let mut tests: Vec<(&String, f64)> =
        times.tests.iter().map(|(name, seconds)| (name, *seconds)).collect();
    tests.sort_by(|one, other| other.1.total_cmp(&one.1));
    println("SLOWEST TESTS");
    for (name, seconds) in tests.iter().take(SLOWEST) {
        println(&format!("{seconds:9.1} s  {name}"));
    }
    println("\nBY AREA       seconds  tests  over 10 s");
    for (area, (seconds, count, slow)) in by_area(&tests) {
        println(&format!("{area:<12} {seconds:9.1} {count:6} {slow:10}"));
    }
    println("\nLAST RUNS");
    for run in &times.runs {
        let ended = run.ended;
        let noise = if run.noise { " with noise" } else { "" };
        println(&format!(
            "{} s ago: {}{noise}, {:.0} s, {} passed, {} failed, flaky: {:?}",
            now().saturating_sub(ended),
            run.tier,
            run.seconds,
            run.passed,
            run.failed,
            run.flaky
        ));
        for (name, seconds, busy) in &run.parts {
            let busy = busy.map_or(String::new(), |busy| format!(", cores {busy} % busy"));
            println(&format!("{seconds:9.1} s  {name}{busy}"));
        }
        println(&format!("             {}", run.testbed));
    }
}

/// Seconds, tests and slow tests by the first module of their names, the slowest area first.
fn by_area<'a>(tests: &[(&'a String, f64)]) -> Vec<(&'a str, (f64, usize, usize))> {
    let mut areas: BTreeMap<&str, (f64, usize, usize)> = BTreeMap::new();
    for (name, seconds) in tests {
        let area = name.split("::").next().unwrap_or(name);
        let sums = areas.entry(area).or_default();
        sums.0 += seconds;
        sums.1 += 1;
        sums.2 += usize::from(*seconds > 10.0);
    }
    let mut areas: Vec<_> = areas.into_iter().collect();
    areas.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_summed_by_the_first_module_and_the_most_expensive_is_first() {
        let names = ["updater::a", "updater::b", "scripted_day::a"].map(str::to_owned);
        let tests = [(&names[0], 2.0), (&names[1], 11.0), (&names[2], 30.0)];
        assert_eq!(by_area(&tests), [("scripted_day", (30.0, 1, 1)), ("updater", (13.0, 2, 1))]);
    }
}
