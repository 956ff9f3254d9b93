//! Set-up, tests and benchmarks of the project: reads the command line and turns the outcome into an exit code.

mod outcome;
mod run;
mod scratch;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{cache, parts, say};

/// What has figures to compare; cargo has the soak and the replay among its benchmarks too.
const BENCHES: [&str; 7] =
    ["admission", "answers", "history", "model", "scale", "updater", "watermark"];

/// Set-up, tests and benchmarks of Plimsoll.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up what is missing, run every test and print a count
    Test {
        /// Arguments for `cargo test`: a part of a test's name, or `-p PACKAGE`, or what follows `--`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build and fetch the real parts that tests run against, without running any
    Setup,
    /// Run the benchmarks, or the one of that name
    Bench {
        /// Name of a file in benches/
        name: Option<String>,
        /// Arguments of that benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the recommender under churn, and see that it grows no more and forgets what is gone
    Soak {
        /// Arguments of benches/soak.rs, such as `--minutes 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Have autoscalers follow recorded load, by the code and by the formulas that the tests have
    Replay {
        /// A folder of series, and arguments of benches/replay.rs, such as `--objects 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Remove all built and fetched parts from the user's cache folder
    Clean,
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say::say(format_args!("error: {error:#}"));
            ExitCode::from(1)
        }
    }
}

/// Whether all went well.
fn perform(task: Task) -> Result<bool> {
    match task {
        Task::Test { arguments } => run::tests(&arguments),
        Task::Setup => Ok(set_up().iter().all(|(_, outcome)| outcome.is_none())),
        Task::Bench { name, arguments } => {
            let all = BENCHES.map(str::to_owned).to_vec();
            bench(&name.map_or(all, |name| vec![name]), &arguments)
        }
        Task::Soak { arguments } => bench(&["soak".to_owned()], &arguments),
        Task::Replay { arguments } => bench(&["replay".to_owned()], &arguments),
        Task::Clean => {
            let megabytes = cache::clean()? / 1_000_000;
            say::say(format_args!("{megabytes} MB freed in {}", cache::folder()?.display()));
            Ok(true)
        }
    }
}

/// Runs benchmarks in release builds.
fn bench(names: &[String], arguments: &[String]) -> Result<bool> {
    let mut cargo = Command::new(run::cargo());
    // By name: `--benches` would run the unit tests of every library too.
    cargo.args(["bench", "--workspace"]);
    cargo.args(names.iter().flat_map(|name| ["--bench", name.as_str()]));
    cargo.arg("--").args(arguments);
    Ok(cargo.status()?.success())
}

/// Makes every part ready, and says of those that could not be had why.
fn set_up() -> Vec<(&'static str, Option<String>)> {
    say::say(format_args!("parts are kept in {}", cache::folder().unwrap_or_default().display()));
    let release = |release| parts::prometheus(release).map(|_| ());
    let outcomes = [
        ("control plane", parts::control_plane().map(|_| ())),
        ("upstream's autoscaler", parts::autoscaler().map(|_| ())),
        ("upstream's CRDs", parts::autoscaler_crds().map(|_| ())),
        ("Prometheus 3", release(parts::Release::Three)),
        ("Prometheus 2", release(parts::Release::Two)),
    ];
    outcomes
        .into_iter()
        .map(|(name, outcome)| {
            let reason = outcome.err().map(|error| format!("{error:#}"));
            if let Some(reason) = &reason {
                say::say(format_args!("NOT SET UP: {name}: {reason}"));
            }
            (name, reason)
        })
        .collect()
}
