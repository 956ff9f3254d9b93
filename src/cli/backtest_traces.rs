//! `plimsoll backtest --trace`: reads trace files, compares rules on them, and prints the figures.

use std::{
    fs,
    path::{Path, PathBuf},
};

use plimsoll_core::{
    backtest::trace::{TracePoint, TraceRule, TraceSeries, compare},
    sim::read_series,
};

use super::{
    Exit, backtest::BacktestArgs, backtest_options::OutputPlan, backtest_run::print_or_write,
    output::CliError, report_run::style_for, terminal::Terminal,
};
use crate::report::backtest::traces::render;

/// The maximum of files: all are in memory.
const MAX_FILES: usize = 1_000;

/// Compares and prints.
pub fn run(
    arguments: &BacktestArgs,
    rules: &[TraceRule],
    plan: &OutputPlan,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let mut paths = Vec::new();
    for path in &arguments.trace {
        add_files(path, &mut paths)?;
    }
    let series: Vec<TraceSeries> =
        paths.iter().map(|path| series(path, arguments.trace_scale)).collect::<Result<_, _>>()?;
    let report = compare(&series, rules);
    if report.series.is_empty() {
        return Err(CliError::failed(
            "every series is shorter than 25 hours: the first day only feeds the rules",
        ));
    }
    for output in plan.targets() {
        let style = style_for(terminal, output.path.as_ref());
        let text = render(output.form, &report, &style)
            .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
        print_or_write(output, &text)?;
    }
    Ok(Exit::Fine)
}

/// Adds a file, or the CSV files of a folder and of those in it, by name.
fn add_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("{}: {error}", path.display()));
    if fs::metadata(path).map_err(failed)?.is_dir() {
        let before = files.len();
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        entries.sort();
        for entry in &entries {
            // A link could lead back to this folder.
            let kind = fs::symlink_metadata(entry).map_err(failed)?;
            if kind.is_dir() {
                add_files(entry, files)?;
            } else if entry.extension().is_some_and(|extension| extension == "csv") {
                files.push(entry.clone());
            }
        }
        if files.len() == before {
            return Err(CliError::failed(format!(
                "{}: no .csv files in this folder",
                path.display()
            )));
        }
    } else {
        files.push(path.to_owned());
    }
    if files.len() > MAX_FILES {
        return Err(CliError::failed(format!("more than {MAX_FILES} trace files: give fewer")));
    }
    Ok(())
}

/// Reads a series. Its name is that of the file.
fn series(path: &Path, scale: f64) -> Result<TraceSeries, CliError> {
    let points = read_series(path, scale).map_err(CliError::failed)?.into_iter();
    let points =
        points.map(|point| TracePoint { at: point.at.as_nanos() as f64 / 1e9, cores: point.value });
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(TraceSeries { name, points: points.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_csv_files_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.csv", "a.csv", "notes.txt"] {
            fs::write(folder.path().join(name), "1,0.5\n2,0.5\n").expect("a file");
        }
        fs::create_dir(folder.path().join("empty")).expect("a folder");
        let mut files = Vec::new();
        let error = add_files(folder.path(), &mut files).expect_err("an empty folder");
        assert!(error.into_message().contains("no .csv files"));
        fs::write(folder.path().join("empty/c.csv"), "1,0.5\n2,0.5\n").expect("a file");
        files.clear();
        add_files(folder.path(), &mut files).expect("files");
        let names: Vec<String> =
            files.iter().map(|path| series(path, 0.01).expect("a series").name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let broken = folder.path().join("broken.csv");
        fs::write(&broken, "1,0.5\n2,much\n").expect("a file");
        let error = series(&broken, 1.0).expect_err("invalid").into_message();
        assert!(error.contains("broken.csv:2"), "{error}");
        assert!(add_files(&folder.path().join("missing"), &mut files).is_err());
    }
}
