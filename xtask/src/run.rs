//! Owns one run of all tests: what is set up before, what is looked at after, and the report.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal as _, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use xtask::say::{say, seconds};

use crate::outcome::{Outcome, Stream};
use crate::scratch::Scratch;
use crate::set_up;

/// Tests at once, for each core: most of them wait most of the time, for intervals, leases and servers. How many control
/// planes there are at once has a limit of its own.
const TESTS_PER_CORE: usize = 2;

/// What property tests take their random numbers from.
const SEED: &str = "PROPTEST_RNG_SEED";

/// In CI a change is judged by the same cases as the one before it; everybody else tries new ones in every run.
const SEED_IN_CI: &str = "20261122";

/// What the test harness takes the number of tests at once from; `--test-threads` goes before it.
const THREADS: &str = "RUST_TEST_THREADS";

/// The folder of the workspace: cargo says where this crate is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// The cargo that runs us.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Sets up, runs all tests, reports; whether all is well.
pub fn tests(arguments: &[String]) -> Result<bool> {
    let start = Instant::now();
    let missing: Vec<_> = set_up().into_iter().filter(|(_, reason)| reason.is_some()).collect();
    let set_up_took = start.elapsed();

    let scratch = Scratch::new()?;
    let outcome = cargo_test(arguments, &scratch)?;
    let left = scratch.left_behind();
    let not_run = scratch.reasons()?;
    drop(scratch);

    say("");
    say(format_args!("{:>14}  set-up", seconds(set_up_took)));
    for (part, took) in outcome.parts() {
        say(format_args!("{:>14}  {part}", seconds(*took)));
    }
    say(format_args!("{:>14}  all", seconds(start.elapsed())));
    for (name, reason) in &missing {
        say(format_args!("NOT SET UP: {name}: {}", reason.as_deref().unwrap_or_default()));
    }
    for reason in &not_run {
        say(format_args!("NOT RUN: {reason}"));
    }
    for path in &left {
        say(format_args!("LEFT BEHIND: {path}"));
    }
    for name in outcome.failures() {
        say(format_args!("FAILED: {name}"));
    }
    let incomplete = is_ci() && !(not_run.is_empty() && missing.is_empty());
    if incomplete {
        say("in CI what could not run is a failure");
    }
    let (passed, failed, skipped) = outcome.count(not_run.len());
    if passed + failed == 0 {
        say("no test was run");
    }
    println(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
    Ok(outcome.succeeded() && passed > 0 && left.is_empty() && !incomplete)
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

fn cargo_test(arguments: &[String], scratch: &Scratch) -> Result<Outcome> {
    let mut command = Command::new(cargo());
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if std::env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, (TESTS_PER_CORE * cores).to_string());
    }
    if is_ci() && std::env::var_os(SEED).is_none() {
        say(format_args!("property tests take the cases of {SEED}={SEED_IN_CI}"));
        command.env(SEED, SEED_IN_CI);
    }
    if std::io::stderr().is_terminal() {
        command.args(["--color", "always"]);
    }
    let mut child = command
        .args(arguments)
        .env("TMPDIR", scratch.files())
        .env("PLIMSOLL_NOT_RUN", scratch.not_run())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cargo cannot be started")?;
    let (sender, lines) = channel();
    let readers = [
        pass_on(child.stdout.take().context("piped")?, Stream::Output, sender.clone()),
        pass_on(child.stderr.take().context("piped")?, Stream::Error, sender),
    ];
    let mut outcome = Outcome::default();
    for (stream, line) in lines {
        match stream {
            Stream::Output => println(&line),
            Stream::Error => say(&line),
        }
        outcome.read(stream, &line, Instant::now());
    }
    for reader in readers {
        // A reader ends with its pipe and has nothing to tell.
        let _ = reader.join();
    }
    outcome.finish(child.wait()?.success());
    Ok(outcome)
}

fn pass_on(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    lines: Sender<(Stream, String)>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if lines.send((stream, line)).is_err() {
                return;
            }
        }
    })
}

fn println(line: &str) {
    use std::io::Write as _;
    // A reader that went away (`| head`) is no reason to stop testing.
    let _ = writeln!(std::io::stdout(), "{line}");
}
