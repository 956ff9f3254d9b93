//! Autoscalers on recorded load: `cargo xtask replay DIR`.
//!
//! For each series below the folder (CSV: time, value), objects with watermarks around the median are scaled by the
//! code and by the formulas of the tests, and both must agree at each step.
#![expect(clippy::print_stdout, reason = "it prints its results")]

#[path = "../tests/support/random.rs"]
#[allow(dead_code, clippy::missing_panics_doc, reason = "the noise of the tests")]
pub mod random;
#[path = "../tests/watermark_decisions/replay/reference_model.rs"]
mod reference_model;
#[path = "../tests/watermark_decisions/replay/replay_series.rs"]
mod replay_series;
/// The module of the tests.
mod support {
    pub use super::random;
}

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use jiff::{civil::DateTime, tz::TimeZone};
use plimsoll_core::types::compat::Compat;

use self::{
    random::Random,
    reference_model::ReferenceModel,
    replay_series::{ReplaySummary, Start, replay_series},
};

/// Autoscalers on recorded load.
#[derive(Debug, Parser)]
struct Arguments {
    /// A folder of CSV series
    folder: PathBuf,
    /// Objects per series
    #[arg(long, default_value_t = 100)]
    objects: u64,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let files = match series_below(&arguments.folder) {
        Ok(files) if !files.is_empty() => files,
        Ok(_) => {
            println!("{}: no .csv file found", arguments.folder.display());
            return ExitCode::FAILURE;
        }
        Err(why) => {
            println!("{}: {why}", arguments.folder.display());
            return ExitCode::FAILURE;
        }
    };
    let seed = random::seed(7);
    println!("{}={seed}", random::SEED);
    println!("| series | steps | changes | steps held back | differences |\n|---|---|---|---|---|");
    let mut all_same = true;
    for file in files {
        let name = file.strip_prefix(&arguments.folder).unwrap_or(&file).display().to_string();
        let series = match read(&file) {
            Ok(series) => series,
            Err(why) => {
                println!("{name}: {why}");
                all_same = false;
                continue;
            }
        };
        let mut total = ReplaySummary::default();
        let mut differences = Vec::new();
        for object in 0..arguments.objects {
            for (compat, exact) in [(Compat::Upstream, false), (Compat::Plimsoll, true)] {
                let mut noise = Random::derive(seed, &[object]);
                let mut plain = ReferenceModel::draw(&mut noise, exact);
                let replicas = noise.between(1, 40) as i64;
                // Watermarks of a workload with this many replicas at the median of the series.
                let middle = median(&series).max(1);
                let share = if plain.average { middle / replicas } else { middle };
                plain.low = (share * noise.between(40, 100) as i64 / 100).max(1);
                plain.high = plain.low + share * noise.between(0, 60) as i64 / 100;
                let start = Start { compat, replicas, last: None };
                match replay_series(&plain, &series, start) {
                    Ok(followed) => {
                        total.steps += followed.steps;
                        total.changes += followed.changes;
                        total.restricted += followed.restricted;
                    }
                    Err(why) => differences.push(format!("object {object}: {why}")),
                }
            }
        }
        let ReplaySummary { steps, changes, restricted } = total;
        println!("| {name} | {steps} | {changes} | {restricted} | {} |", differences.len());
        if let Some(first) = differences.first() {
            println!("{first}");
            all_same = false;
        }
    }
    if all_same { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn series_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "csv") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Times in seconds and values in millis.
fn read(file: &Path) -> Result<Vec<(i64, i64)>, String> {
    let text = fs::read_to_string(file).map_err(|why| why.to_string())?;
    let mut series = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let bad = || format!("line {}: `{line}` is not a time and a value", number + 1);
        let (time, value) = line.split_once(',').ok_or_else(bad)?;
        let second = match time.parse::<i64>() {
            Ok(second) => second,
            Err(_) => time
                .parse::<DateTime>()
                .and_then(|time| time.to_zoned(TimeZone::UTC))
                .map_err(|_| bad())?
                .timestamp()
                .as_second(),
        };
        let value: f64 = value.parse().map_err(|_| bad())?;
        series.push((second, (value * 1_000.0) as i64));
    }
    series.sort_by_key(|(second, _)| *second);
    Ok(series)
}

fn median(series: &[(i64, i64)]) -> i64 {
    let mut values: Vec<i64> = series.iter().map(|(_, value)| *value).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
