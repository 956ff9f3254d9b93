//! Setup, tests and benchmarks of the project: parses the command line and returns an exit code.

mod deep_tier;
mod image;
mod release;
mod run_folder;
mod suite;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use xtask::pictures::{self, Prometheus};
use xtask::{boards, cache, console, hpa, krew, test_programs};

use crate::suite::Options;

/// Benchmarks that print results; the soak and the replay are cargo benchmarks too, but have their own commands.
const BENCHES: [&str; 14] = [
    "admission",
    "answers",
    "backtest",
    "backtest_server",
    "demo",
    "history",
    "horizontal",
    "model",
    "recommend",
    "scale",
    "together",
    "ui",
    "updater",
    "watermark",
];

/// Setup, tests and benchmarks of Plimsoll.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up missing test programs, run all tests of the gate and print a summary
    Test {
        /// Substrings of test names, or prefixes after a `^` [default: all]
        filters: Vec<String>,
        /// Keep the cores busy, and pause processes of the testbed at random
        #[arg(long)]
        noise: bool,
        /// Run the cluster tests even if a pure test has failed
        #[arg(long)]
        keep_going: bool,
    },
    /// Run every test at its full size, with upstream's programs live, and build the images
    Deep {
        /// A substring of test names, or `image`, or `docs` [default: all]
        part: Option<String>,
        /// Seed of all random inputs [default: random]
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the live tests that record upstream's behavior for the gate
    Record {
        /// A recording, such as `recommender`, `updater`, `webhook` or `day` [default: all]
        part: Option<String>,
    },
    /// Lint the crates, and run the unit and pure tests of the areas, that a change touches
    Quick {
        /// Areas of tests/suite.toml [default: those that differ from the main branch]
        areas: Vec<String>,
    },
    /// Run all tests of an area, including those on a cluster
    Area {
        /// Name of an area in tests/suite.toml
        name: String,
    },
    /// Run a test repeatedly, to find out whether it is flaky
    Flaky {
        /// A substring of its name
        name: String,
        /// Number of runs
        #[arg(long, default_value_t = 20)]
        times: usize,
        /// Keep the cores busy, and pause processes of the testbed at random
        #[arg(long)]
        noise: bool,
    },
    /// Print the slowest tests, the time of each area, and the durations of the last runs
    Times,
    /// Build and download the programs that tests run against, without running any test
    Setup,
    /// Run all benchmarks, or one
    Bench {
        /// Name of a file in benches/
        name: Option<String>,
        /// Arguments of the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the recommender under churn; fail if its memory keeps growing or it keeps series of deleted objects
    Soak {
        /// Arguments of benches/soak.rs, such as `--minutes 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Scale recorded load with the code and with the formulas of the tests, and compare them
    Replay {
        /// A folder of time series, and arguments of benches/replay.rs, such as `--objects 20`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Build the program of the images with the command in deploy/Dockerfile, and start it in an empty root
    Image {
        /// Build it twice and compare the results
        #[arg(long)]
        twice: bool,
    },
    /// Generate the dashboards in grafana/ from xtask/src/boards
    Boards,
    /// Draw the dashboards in grafana/ with the data of a Prometheus
    Pictures {
        /// Address of the Prometheus, such as http://localhost:9090
        #[arg(long, value_name = "URL")]
        prometheus: String,
        /// End of the time range: 2026-11-22T12:00:00Z, or seconds since the Unix epoch [default: now]
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Length of the time range, such as 6h [default: that of each board]
        #[arg(long, value_name = "LENGTH")]
        range: Option<String>,
        /// Value of a variable, such as namespace=shop (repeatable)
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        set: Vec<(String, String)>,
        /// Fail if a query of a panel returns no data
        #[arg(long)]
        complete: bool,
        /// Output folder
        #[arg(long, value_name = "FOLDER", default_value = pictures::FOLDER)]
        out: PathBuf,
        /// File names of the boards [default: all]
        boards: Vec<String>,
    },
    /// Write a man page for each command of the program
    Man {
        /// Output folder
        #[arg(long, value_name = "DIR", default_value = "target/man")]
        out: PathBuf,
    },
    /// Fill in deploy/krew/plimsoll.yaml for a release, check it, and print it
    Krew {
        /// Version, such as v0.1.0
        #[arg(long, value_name = "V")]
        version: String,
        /// Folder from which the archives can be downloaded
        #[arg(long, value_name = "URL")]
        url: String,
        /// Page of the project [default: that of the URL up to /releases/]
        #[arg(long, value_name = "URL")]
        homepage: Option<String>,
        /// An archive of each platform, such as plimsoll-linux-amd64.tar.gz, with plimsoll and LICENSE (repeatable)
        #[arg(long, value_name = "FILE", required = true)]
        archive: Vec<PathBuf>,
    },
    /// Make the files of a release: static programs in archives, the chart, checksums, bills of materials, a provenance
    /// statement and the manifest of the kubectl plugin
    Release {
        /// Output folder
        #[arg(long, value_name = "DIR", default_value = "target/release-files")]
        out: PathBuf,
        /// Folder from which the files can be downloaded
        #[arg(long, value_name = "URL")]
        url: String,
        /// Page of the project [default: that of the URL up to /releases/]
        #[arg(long, value_name = "URL")]
        homepage: Option<String>,
        /// Repository of the image, such as ghcr.io/OWNER/plimsoll, for the chart [default: users have to set it]
        #[arg(long, value_name = "NAME")]
        image: Option<String>,
        /// Make it twice and compare the results
        #[arg(long)]
        twice: bool,
    },
    /// Run HorizontalPodAutoscaler scenarios, one JSON per line, through our decisions with --compat=upstream, and
    /// print passes in the format of tests/cluster/hpa-oracle
    HpaReplay {
        /// A file of scenarios
        file: PathBuf,
    },
    /// Generate HorizontalPodAutoscaler scenarios, run them through upstream's controller and through ours, and print
    /// each field that differs
    HpaCompare {
        /// Number of scenarios
        #[arg(long, default_value_t = 3000)]
        count: usize,
        /// Seed of the scenarios
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only print the scenarios
        #[arg(long)]
        print: bool,
    },
    /// Record the behavior of upstream's HorizontalPodAutoscaler controller for the gate
    HpaRecord,
    /// Remove the test programs from the user's cache folder
    Clean,
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            console::progress(format_args!("error: {error:#}"));
            ExitCode::from(1)
        }
    }
}

/// Runs a task; returns whether it succeeded.
fn perform(task: Task) -> Result<bool> {
    match task {
        Task::Test { filters, noise, keep_going } => {
            suite::run(&Options { filters, noise, keep_going, ..Options::default() })
        }
        Task::Deep { part, seed } => deep_tier::deep(part.as_deref(), seed),
        Task::Record { part } => deep_tier::record(part.as_deref()),
        Task::Quick { areas } => suite::quick(&areas),
        Task::Area { name } => suite::area(&name),
        Task::Flaky { name, times, noise } => suite::flaky(&name, times, noise),
        Task::Times => {
            suite::times();
            Ok(true)
        }
        Task::Setup => Ok(set_up().iter().all(|(_, outcome)| outcome.is_none())),
        Task::Bench { name, arguments } => {
            let all = BENCHES.map(str::to_owned).to_vec();
            bench(&name.map_or(all, |name| vec![name]), &arguments)
        }
        Task::Soak { arguments } => bench(&["soak".to_owned()], &arguments),
        Task::Replay { arguments } => bench(&["replay".to_owned()], &arguments),
        Task::Image { twice } => image::image(twice),
        Task::Boards => {
            let changed = boards::write(&workspace::root())?;
            let unchanged = boards::all().len() - changed.len();
            for path in &changed {
                console::progress(format_args!("written: {path}"));
            }
            console::progress(format_args!("{unchanged} unchanged"));
            Ok(true)
        }
        Task::Pictures { prometheus, at, range, set, complete, out, boards } => {
            let options = pictures::Options { at, range, set };
            let drawn = draw(&prometheus, &options, &out, &boards)?;
            Ok(drawn || !complete)
        }
        Task::Man { out } => man(&out),
        Task::Release { out, url, homepage, image, twice } => {
            let homepage = homepage.unwrap_or_else(|| project_page(&url));
            release::release(&release::Release { out, url, homepage, image }, twice)
        }
        Task::Krew { version, url, homepage, archive } => {
            let homepage = homepage.unwrap_or_else(|| project_page(&url));
            let release = krew::Release { version, homepage, url, archives: archive };
            console::print_result(krew::manifest(&workspace::root(), &release)?.trim_end());
            Ok(true)
        }
        Task::HpaReplay { file } => {
            let text =
                std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                for pass in hpa::upstream_recording::ours(&serde_json::from_str(line)?)? {
                    console::print_result(pass);
                }
            }
            Ok(true)
        }
        Task::HpaCompare { count, seed, print } => {
            if print {
                let scenarios = hpa::upstream_recording::scenarios(seed, count)?;
                console::print_result(hpa::upstream_recording::lines(&scenarios)?.trim_end());
                return Ok(true);
            }
            let (found, passes) = hpa::upstream_recording::differences(seed, count)?;
            for line in hpa::upstream_recording::summary(&found) {
                console::print_result(line);
            }
            let differ = found.len();
            console::print_result(format_args!(
                "{count} scenarios of seed {seed}, {passes} passes, {differ} fields differ"
            ));
            Ok(found.is_empty())
        }
        Task::HpaRecord => {
            let path = hpa::upstream_recording::record(&workspace::root())?;
            console::progress(format_args!("written: {}", path.display()));
            Ok(true)
        }
        Task::Clean => {
            let megabytes = cache::clean()? / 1_000_000;
            console::progress(format_args!(
                "{megabytes} MB freed in {}",
                cache::folder()?.display()
            ));
            Ok(true)
        }
    }
}

/// Writes the man pages of the program.
#[cfg(feature = "man")]
fn man(out: &Path) -> Result<bool> {
    let pages = xtask::man::pages(plimsoll::cli::flags::command())?;
    let written = xtask::man::write(&pages, out)?.len();
    console::progress(format_args!("{written} man pages are in {}", out.display()));
    Ok(true)
}

/// Compiles this program again, with the command line of the program to describe.
#[cfg(not(feature = "man"))]
fn man(out: &Path) -> Result<bool> {
    let mut cargo = Command::new(workspace::cargo());
    cargo.args(["run", "--quiet", "--package", "xtask", "--features", "man", "--", "man", "--out"]);
    Ok(cargo.arg(out).status()?.success())
}

/// The page of a project, from the folder of a release.
fn project_page(url: &str) -> String {
    url.split("/releases/").next().unwrap_or_default().to_owned()
}

/// Draws boards and prints which panels had no data; returns whether all had some.
fn draw(url: &str, options: &pictures::Options, out: &Path, names: &[String]) -> Result<bool> {
    let prometheus = Prometheus::at(url)?;
    let mut complete = true;
    for (name, board) in pictures::boards(&workspace::root(), names)? {
        let picture = pictures::draw(&name, &board, &prometheus, options)?;
        let path = picture.write(out)?;
        console::progress(format_args!("drawn: {}", path.display()));
        for (panel, letter) in picture.empty() {
            complete = false;
            console::progress(format_args!("  NO DATA: {panel}, query {letter}"));
        }
    }
    Ok(complete)
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs benchmarks in release builds.
fn bench(names: &[String], arguments: &[String]) -> Result<bool> {
    let mut cargo = Command::new(workspace::cargo());
    // By name: `--benches` would run the unit tests of every library too.
    cargo.args(["bench", "--workspace"]);
    cargo.args(names.iter().flat_map(|name| ["--bench", name.as_str()]));
    cargo.arg("--").args(arguments);
    Ok(cargo.status()?.success())
}

/// Builds or downloads all test programs; returns the error of each that is not available.
fn set_up() -> Vec<(&'static str, Option<String>)> {
    console::progress(format_args!(
        "test programs are stored in {}",
        cache::folder().unwrap_or_default().display()
    ));
    let release = |release| test_programs::prometheus(release).map(|_| ());
    let outcomes = [
        ("control plane", test_programs::control_plane().map(|_| ())),
        ("upstream's autoscaler", test_programs::autoscaler().map(|_| ())),
        ("upstream's HPA controller", test_programs::hpa_oracle().map(|_| ())),
        ("upstream's CRDs", test_programs::autoscaler_crds().map(|_| ())),
        ("Prometheus 3", release(test_programs::PrometheusRelease::V3)),
        ("Prometheus 2", release(test_programs::PrometheusRelease::V2)),
        ("kustomize", test_programs::kustomize().map(|_| ())),
        ("Helm", test_programs::helm().map(|_| ())),
        ("krew", test_programs::krew().map(|_| ())),
        ("jsonnet", test_programs::jsonnet().map(|_| ())),
        ("the Prometheus operator's definitions", test_programs::operator_crds().map(|_| ())),
        (
            "the manifests of Datadog's watermark controller",
            test_programs::watermark_manifests().map(|_| ()),
        ),
    ];
    outcomes
        .into_iter()
        .map(|(name, outcome)| {
            let reason = outcome.err().map(|error| format!("{error:#}"));
            if let Some(reason) = &reason {
                console::progress(format_args!("NOT SET UP: {name}: {reason}"));
            }
            (name, reason)
        })
        .collect()
}
