//! Owns a lane: tests of one binary that run in one process, and what becomes of those that crash it or have no end.

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

/// Makes libtest take unstable options: asked of the compiled binary when it runs, not of the compiler.
const BOOTSTRAP: &str = "RUSTC_BOOTSTRAP";
/// How often running tests are compared with their time limit.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of each log of a bed that are printed for a test without an end.
const LOG_LINES: usize = 8;

/// Tests of one binary that run in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its name in messages.
    pub name: String,
    /// Index of the binary.
    pub binary: usize,
    /// Tests at once.
    pub threads: usize,
    /// What runs.
    pub tests: Vec<Test>,
}

/// What all test processes have in their environment.
#[derive(Debug)]
pub struct Environment {
    /// Names and values.
    pub variables: Vec<(String, String)>,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedTest {
    /// Which one.
    pub test: Test,
    /// How.
    pub end: TestEnd,
}

/// What a process left undone.
#[derive(Debug, Default)]
struct LaneRun {
    done: BTreeSet<String>,
    /// Started and not ended when the process went.
    interrupted: BTreeSet<String>,
    /// Of those, the ones that had no end.
    stuck: BTreeMap<String, String>,
    status: Option<ExitStatus>,
}

// === impl Finished ===

impl FinishedTest {
    /// Whether it failed in a way that no second run can mend.
    pub fn is_failure(&self) -> bool {
        self.end.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Assertion)
    }
}

// === impl Lane ===

impl Lane {
    /// A lane for one test.
    pub fn alone(test: Test) -> Self {
        // With one thread libtest runs tests on its main thread, which does not have the name of the test.
        Self { name: test.full.clone(), binary: test.binary, threads: 2, tests: vec![test] }
    }

    /// Runs all of its tests, in as many processes as it takes, and sends how each ended.
    pub fn run(
        &self,
        binary: &Binary,
        environment: &Environment,
        watchdog: Duration,
        sender: &Sender<FinishedTest>,
    ) {
        let mut left: BTreeMap<&str, &Test> =
            self.tests.iter().map(|test| (test.name.as_str(), test)).collect();
        let send = |test: &Test, ending: TestEnd| {
            // The receiver lives as long as the phase.
            let _ = sender.send(FinishedTest { test: test.clone(), end: ending });
        };
        while !left.is_empty() {
            let names: Vec<&str> = left.keys().copied().collect();
            let ended = |name: &str, ending: TestEnd| {
                if let Some(test) = left.get(name) {
                    send(test, ending);
                }
            };
            let round = match self.process(binary, &names, environment, watchdog, ended) {
                Ok(round) => round,
                Err(error) => {
                    for test in left.values() {
                        send(test, failed(FailureKind::Assertion, format!("{error:#}")));
                    }
                    return;
                }
            };
            left.retain(|name, _| !round.done.contains(*name));
            for (name, output) in round.stuck {
                if let Some(test) = left.remove(name.as_str()) {
                    let failure = Some(TestFailure::timed_out(watchdog, &output));
                    send(test, TestEnd { duration: watchdog, failure });
                }
            }
            let Some(status) = round.status else { continue };
            // The process ended by itself: what ran last is to blame, or what never started.
            let blamed: Vec<String> = if round.interrupted.is_empty() {
                left.keys().map(ToString::to_string).collect()
            } else {
                round.interrupted.into_iter().collect()
            };
            for name in blamed {
                if let Some(test) = left.remove(name.as_str()) {
                    send(
                        test,
                        failed(FailureKind::Assertion, format!("the test process ended: {status}")),
                    );
                }
            }
        }
    }

    /// Runs these tests in one process, until it ends or one of them is stuck.
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
        // It has ended with its pipe.
        let _ = reader.join();
        Ok(round)
    }
}

fn failed(class: FailureKind, output: String) -> TestEnd {
    TestEnd { duration: Duration::ZERO, failure: Some(TestFailure { kind: class, output }) }
}

/// The ends of the logs of all beds that a process has.
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
