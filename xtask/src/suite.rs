//! A run of the test suite: build, phases, repetition of timeouts, and the report.
//!
//! ```text
//!   build ──▶ list ──▶ plan ──▶ pure ──▶ cluster (lanes beside each other) ──▶ alone ──▶ again, alone ──▶ report
//! ```

mod areas;
mod config;
mod lane;
mod machine_noise;
mod report;
mod run_plan;
mod run_times;
mod suite_outcome;
mod test_binary;
mod test_event;

use std::env;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use xtask::console::{progress, seconds};

use self::areas::Selection;
use self::config::{Phase, Suite};
use self::lane::{Environment, FinishedTest, Lane};
use self::machine_noise::{Noise, System};
use self::report::{Report, ReportPart};
use self::run_plan::Plan;
use self::suite_outcome::SuiteOutcome;
use self::test_binary::Binary;
use self::test_event::Test;
use crate::run_folder::RunFolder;

pub use self::areas::{area, quick};
pub use self::report::TestbedUsage;
pub use self::run_times::print as times;

/// Seed of proptest.
pub const PROPTEST_SEED: &str = "PROPTEST_RNG_SEED";
/// Seed of differentials and other generated scenarios.
pub const SEED: &str = "PLIMSOLL_SEED";
/// Passes the tier to the tests.
const TIER: &str = "PLIMSOLL_TIER";
/// Makes live tests write recordings.
const RECORD: &str = "PLIMSOLL_RECORD";

/// In CI every change is tested with the same cases; elsewhere each run generates new ones.
const SEED_IN_CI: &str = "20261122";

/// Which tests run, and with what sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// What every change has to pass.
    Gate,
    /// All tests, at full size.
    Deep,
    /// Only the live tests that record upstream's behavior.
    Record,
}

/// Options of a run.
#[derive(Debug)]
pub struct Options {
    /// The tier.
    pub tier: Tier,
    /// Restricts the run to the tests of some areas.
    pub selection: Selection,
    /// Only tests whose name contains one of these, or starts with it after a `^`; all if empty.
    pub filters: Vec<String>,
    /// Seed of all random inputs.
    pub seed: Option<u64>,
    /// Keep the cores busy, and pause control plane processes at random.
    pub noise: bool,
    /// Run cluster tests even after a pure test failed.
    pub keep_going: bool,
    /// How often each selected test runs.
    pub times: usize,
    /// Build and download all test programs before the first test.
    pub set_up: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tier: Tier::Gate,
            selection: Selection::default(),
            filters: Vec::new(),
            seed: None,
            noise: false,
            keep_going: false,
            times: 1,
            set_up: true,
        }
    }
}

// === impl Tier ===

impl Tier {
    /// Whether a test with this name belongs to the tier.
    fn includes(self, name: &str) -> bool {
        let is_deep = name.split("::").any(|module| module == "deep");
        match self {
            Self::Gate => !is_deep,
            Self::Deep => true,
            Self::Record => is_deep,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Deep => "deep",
            Self::Record => "record",
        }
    }

    /// How long a test may run before it is stopped: longer than the timeout of any wait.
    fn watchdog(self) -> Duration {
        match self {
            Self::Gate => Duration::from_mins(15),
            Self::Deep | Self::Record => Duration::from_hours(1),
        }
    }
}

/// Whether this is a CI run.
pub fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Runs tests and prints the report; returns whether the run succeeded.
pub fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let mut report = Report::default();
    let parts = if options.set_up { crate::set_up() } else { Vec::new() };
    report.missing = parts.into_iter().filter_map(|(name, why)| Some((name, why?))).collect();
    report.parts.push(ReportPart::of("set-up", started.elapsed()));

    let suite = Suite::load()?;
    let building = Instant::now();
    let binaries = test_binary::build()?;
    report.parts.push(ReportPart::of("build", building.elapsed()));

    let tests = select(&binaries, options)?;
    ensure!(!tests.is_empty(), "no test of this tier matches {:?}", options.filters);
    let known = run_times::last_durations();
    let plan = Plan::of(&suite, &tests, &known, cores());

    let scratch = RunFolder::new()?;
    let environment = environment(options, &scratch);
    let noise = options.noise.then(|| Noise::start(scratch.files()));
    let mut finished = Vec::new();
    let mut started_tests = Vec::new();
    for phase in [Phase::Pure, Phase::Cluster, Phase::Alone] {
        let lanes = plan.lanes(phase);
        if lanes.is_empty() {
            continue;
        }
        if phase != Phase::Pure
            && !options.keep_going
            && finished.iter().any(FinishedTest::is_failure)
        {
            let remaining: usize = lanes.iter().map(|lane| lane.tests.len()).sum();
            report.not_started += remaining;
            continue;
        }
        started_tests.extend(lanes.iter().flat_map(|lane| lane.tests.iter().cloned()));
        let begun = (Instant::now(), System::now());
        for _ in 0..options.times {
            finished.extend(run_phase(phase, lanes, &binaries, &environment, options.tier));
        }
        let busy = System::now().busy_since(&begun.1);
        report.parts.push(ReportPart { busy, ..ReportPart::of(phase.name(), begun.0.elapsed()) });
    }
    drop(noise);

    let mut verdict = SuiteOutcome::of(&started_tests, finished, Suite::flaky()?);
    if options.times > 1 {
        verdict = verdict.without_repetition();
    }
    let again = verdict.to_repeat();
    if !again.is_empty() {
        let begun = Instant::now();
        progress(format_args!("{} tests timed out: each runs once more, alone", again.len()));
        let lanes: Vec<_> = again.into_iter().map(Lane::alone).collect();
        let repeated = run_phase(Phase::Alone, &lanes, &binaries, &environment, options.tier);
        verdict.repeated(&repeated);
        report.parts.push(ReportPart::of("again", begun.elapsed()));
    }
    report.leftovers = scratch.leftovers();
    report.skipped = scratch.skip_reasons()?;
    report.events = scratch.events();
    report.total = started.elapsed();
    drop(scratch);
    run_times::keep(options, &report, &verdict)?;
    Ok(report.print(&verdict))
}

/// All selected tests, by binary.
fn select(binaries: &[Binary], options: &Options) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for (number, binary) in binaries.iter().enumerate() {
        let listed = binary.list()?.into_iter().map(|name| {
            let full = binary.full_name(&name);
            Test { binary: number, name, full }
        });
        tests.extend(listed.filter(|test| {
            let is_wanted = options.filters.is_empty()
                || options.filters.iter().any(|filter| matches_filter(&test.full, filter));
            options.tier.includes(&test.name) && is_wanted && options.selection.includes(&test.full)
        }));
    }
    Ok(tests)
}

/// Whether a filter matches a name: as a substring, or as a prefix after a `^`.
fn matches_filter(name: &str, filter: &str) -> bool {
    match filter.strip_prefix('^') {
        Some(beginning) => name.starts_with(beginning),
        None => name.contains(filter),
    }
}

fn environment(options: &Options, scratch: &RunFolder) -> Environment {
    let mut variables = vec![
        (TIER.to_owned(), options.tier.name().to_owned()),
        ("TMPDIR".to_owned(), scratch.files().display().to_string()),
        ("PLIMSOLL_NOT_RUN".to_owned(), scratch.skipped_folder().display().to_string()),
        ("PLIMSOLL_EVENTS".to_owned(), scratch.events_file().display().to_string()),
    ];
    if options.tier == Tier::Record {
        variables.push((RECORD.to_owned(), "1".to_owned()));
    }
    let draw = |name: &str, value: String| {
        progress(format_args!("{name}={value}"));
        (name.to_owned(), value)
    };
    if let Some(seed) = options.seed {
        variables.push(draw(PROPTEST_SEED, seed.to_string()));
        variables.push(draw(SEED, seed.to_string()));
    } else if env::var_os(PROPTEST_SEED).is_none() {
        if is_ci() && options.tier == Tier::Gate {
            variables.push(draw(PROPTEST_SEED, SEED_IN_CI.to_owned()));
        } else if options.tier == Tier::Deep {
            let seed = std::process::id().wrapping_mul(2_654_435_761) % 1_000_000;
            variables.push(draw(PROPTEST_SEED, seed.to_string()));
            if env::var_os(SEED).is_none() {
                variables.push(draw(SEED, seed.to_string()));
            }
        }
    }
    Environment { variables }
}

/// Runs the lanes of a phase: concurrently, except in the last phase.
fn run_phase(
    phase: Phase,
    lanes: &[Lane],
    binaries: &[Binary],
    environment: &Environment,
    tier: Tier,
) -> Vec<FinishedTest> {
    let count: usize = lanes.iter().map(|lane| lane.tests.len()).sum();
    progress(format_args!("== {}: {count} tests", phase.name()));
    let (sender, receiver) = channel();
    let at_once = if phase == Phase::Cluster { lanes.len() } else { 1 };
    thread::scope(|scope| {
        let mut queue = lanes.iter();
        let mut running = Vec::new();
        let printer = scope.spawn(move || {
            let mut all = Vec::new();
            for finished in receiver {
                report::line(&finished, phase);
                all.push(finished);
            }
            all
        });
        loop {
            while running.len() < at_once
                && let Some(lane) = queue.next()
            {
                let sender = sender.clone();
                running.push(scope.spawn(move || {
                    lane.run(&binaries[lane.binary], environment, tier.watchdog(), &sender);
                }));
            }
            if running.is_empty() {
                break;
            }
            // A lane that panicked sends no results; its tests then count as missing.
            let _ = running.remove(0).join();
        }
        drop(sender);
        printer.join().unwrap_or_default()
    })
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Path of a file in tests/.
fn tests_path(name: &str) -> PathBuf {
    crate::workspace::root().join("tests").join(name)
}

/// Runs tests repeatedly; returns whether none failed.
pub fn flaky(name: &str, times: usize, noise: bool) -> Result<bool> {
    let started = Instant::now();
    let options = Options {
        filters: vec![name.to_owned()],
        times,
        noise,
        set_up: false,
        ..Options::default()
    };
    let is_well = run(&options)?;
    progress(format_args!("{times} runs in {}", seconds(started.elapsed())));
    Ok(is_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_in_a_deep_module_run_only_in_the_deep_tier() {
        assert!(
            Tier::Gate.includes("storage::file_damage::one")
                && Tier::Deep.includes("storage::file_damage::one")
        );
        assert!(
            !Tier::Gate.includes("scripted_day::deep::one")
                && Tier::Deep.includes("scripted_day::deep::one")
        );
        assert!(
            Tier::Record.includes("scripted_day::deep::one")
                && !Tier::Record.includes("scripted_day::one")
        );
        assert!(
            Tier::Gate.includes("sizing::a_deep_change_is_seen"),
            "a word of a test name is not a module"
        );
    }

    #[test]
    fn a_filter_matches_a_substring_or_a_prefix_of_a_name() {
        assert!(matches_filter("updater::differential::deep::one", "differential"));
        assert!(!matches_filter("updater::differential::deep::one", "^differential"));
        assert!(matches_filter("differential::deep::one", "^differential"));
    }
}
