//! A lane: tests of one binary that run in one process. Handles tests that crash the process or never end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::test_binary::Binary;
use super::test_event::{Event, FailureKind, Test, TestEnd, TestFailure};

/// Allows libtest's unstable options; read by the compiled test binary, not by the compiler.
const BOOTSTRAP: &str = "RUSTC_BOOTSTRAP";
/// How often running tests are checked against their time limit.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of each control plane log that are printed for a test that does not end.
const LOG_LINES: usize = 8;

/// Tests of one binary that run in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Name in messages.
    pub name: String,
    /// Index of the binary.
    pub binary: usize,
    /// Number of threads.
    pub threads: usize,
    /// Tests to run.
    pub tests: Vec<Test>,
}

/// Environment of all test processes.
#[derive(Debug)]
pub struct Environment {
    /// Names and values.
    pub variables: Vec<(String, String)>,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedTest {
    /// The test.
    pub test: Test,
    /// Duration and failure.
    pub end: TestEnd,
}

/// The state of a lane when its process ended or was killed.
#[derive(Debug, Default)]
struct LaneRun {
    done: BTreeSet<String>,
    /// Started, but not finished when the process ended.
    interrupted: BTreeSet<String>,
    /// Tests that exceeded the time limit, with logs.
    stuck: BTreeMap<String, String>,
    status: Option<ExitStatus>,
}

// === impl FinishedTest ===

impl FinishedTest {
    /// Whether it failed in a way that no second run can change.
    pub fn is_failure(&self) -> bool {
        self.end.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Assertion)
    }
}

// === impl Lane ===

impl Lane {
    /// A lane for one test.
    pub fn alone(test: Test) -> Self {
        // With one thread libtest runs tests on the main thread, which does not have the name of the test.
        Self { name: test.full.clone(), binary: test.binary, threads: 2, tests: vec![test] }
    }

    /// Runs all its tests, in as many processes as needed, and sends how each test ended.
    pub fn run(
        &self,
        binary: &Binary,
        environment: &Environment,
        watchdog: Duration,
        sender: &Sender<FinishedTest>,
    ) {
        let mut remaining: BTreeMap<&str, &Test> =
            self.tests.iter().map(|test| (test.name.as_str(), test)).collect();
        let send = |test: &Test, ending: TestEnd| {
            // The receiver lives as long as the phase.
            let _ = sender.send(FinishedTest { test: test.clone(), end: ending });
        };
        while !remaining.is_empty() {
            let names: Vec<&str> = remaining.keys().copied().collect();
            let ended = |name: &str, ending: TestEnd| {
                if let Some(test) = remaining.get(name) {
                    send(test, ending);
                }
            };
            let round = match self.process(binary, &names, environment, watchdog, ended) {
                Ok(round) => round,
                Err(error) => {
                    for test in remaining.values() {
                        send(test, failed(FailureKind::Assertion, format!("{error:#}")));
                    }
                    return;
                }
            };
            remaining.retain(|name, _| !round.done.contains(*name));
            for (name, output) in round.stuck {
                if let Some(test) = remaining.remove(name.as_str()) {
                    let failure = Some(TestFailure::timed_out(watchdog, &output));
                    send(test, TestEnd { duration: watchdog, failure });
                }
            }
            let Some(status) = round.status else { continue };
            // The process exited on its own: the tests that were running failed, or else those that never started.
            let blamed: Vec<String> = if round.interrupted.is_empty() {
                remaining.keys().map(ToString::to_string).collect()
            } else {
                round.interrupted.into_iter().collect()
            };
            for name in blamed {
                if let Some(test) = remaining.remove(name.as_str()) {
                    send(
                        test,
                        failed(FailureKind::Assertion, format!("the test process ended: {status}")),
                    );
                }
            }
        }
    }

    /// Runs these tests in one process, until it ends or a test exceeds the time limit.
    fn process(
        &self,
        binary: &Binary,
        names: &[&str],
        environment: &Environment,
        watchdog: Duration,
        mut ended: impl FnMut(&str, TestEnd),
    ) -> Result<LaneRun> {
        let mut child = Command::new(&binary.path)
            .current_dir(&binary.folder)
            .args(["-Z", "unstable-options", "--format", "json", "--report-time", "--exact"])
            .arg(format!("--test-threads={}", self.threads))
            .args(names)
            .env(BOOTSTRAP, "1")
            .envs(environment.variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| binary.path.display().to_string())?;
        let output = child.stdout.take().context("piped")?;
        let (lines, incoming) = channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut round = LaneRun::default();
        let mut running: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            match incoming.recv_timeout(POLL_INTERVAL) {
                Ok(line) => match Event::parse(&line) {
                    Some(Event::Started(name)) => {
                        running.insert(name, Instant::now());
                    }
                    Some(Event::Ended(name, ending)) => {
                        running.remove(&name);
                        ended(&name, ending);
                        round.done.insert(name);
                    }
                    None => {}
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let is_stuck = |since: &Instant| since.elapsed() > watchdog;
            if running.values().any(is_stuck) {
                let stuck = running.iter().filter(|(_, since)| is_stuck(since));
                let names: Vec<String> = stuck.map(|(name, _)| name.clone()).collect();
                let logs = logs_of(&child, environment);
                round.stuck = names.into_iter().map(|name| (name, logs.clone())).collect();
                let _ = child.kill();
                let _ = child.wait();
                return Ok(round);
            }
        }
        round.status = Some(child.wait()?);
        round.interrupted = running.into_keys().collect();
        // The reader ends when the pipe is closed.
        let _ = reader.join();
        Ok(round)
    }
}

fn failed(class: FailureKind, output: String) -> TestEnd {
    TestEnd { duration: Duration::ZERO, failure: Some(TestFailure { kind: class, output }) }
}

/// The tails of the logs of all testbeds of a process.
fn logs_of(child: &Child, environment: &Environment) -> String {
    let files = environment.variables.iter().find(|(name, _)| name == "TMPDIR");
    let Some((_, files)) = files else { return String::new() };
    let own = format!("-{}-", child.id());
    let beds = entries(&Path::new(files).join("plimsoll-beds"));
    let beds = beds.into_iter().filter(|bed| bed.to_string_lossy().contains(&own));
    let logs = beds
        .flat_map(|bed| entries(&bed))
        .filter(|path| path.extension().is_some_and(|e| e == "log"));
    let ends = logs.map(|path| format!("--- {}\n{}", path.display(), tail(&path)));
    ends.collect::<Vec<_>>().concat()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") + "\n"
}
