//! Owns what a test binary reports with `--format json`: one line a test that starts or ends.

use std::time::Duration;

use serde_json::Value;

/// A test: which binary has it, and its name there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test {
    /// Index among the binaries of the run.
    pub binary: usize,
    /// Its path of modules.
    pub name: String,
    /// The name in reports and filters: unit tests begin with their crate.
    pub full: String,
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A test has started.
    Started(String),
    /// A test has ended.
    Ended(String, TestEnd),
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TestEnd {
    /// How long it took.
    pub duration: Duration,
    /// How it failed, if it did.
    pub failure: Option<TestFailure>,
}

/// Why a test failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFailure {
    /// What may be concluded from it.
    pub kind: FailureKind,
    /// What it printed.
    pub output: String,
}

/// What a failure says about the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Something was wrong. Final.
    Assertion,
    /// Something was waited for that did not come: a wrong program, or a machine that stood still.
    Timeout,
}

/// How the panic of a wait begins that had no end.
const TIMEOUT_PREFIX: &str = "not within ";

// === impl Event ===

impl Event {
    /// What a line says; nothing if it is no event of a test.
    pub fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        if value["type"] != "test" {
            return None;
        }
        let name = value["name"].as_str()?.to_owned();
        let took = Duration::try_from_secs_f64(value["exec_time"].as_f64().unwrap_or(0.0));
        let took = took.unwrap_or_default();
        let failure = match value["event"].as_str()? {
            "started" => return Some(Self::Started(name)),
            "ok" | "ignored" => None,
            "failed" => Some(TestFailure::of(value["stdout"].as_str().unwrap_or_default())),
            _ => return None,
        };
        Some(Self::Ended(name, TestEnd { duration: took, failure }))
    }
}

// === impl Failure ===

impl TestFailure {
    /// Classed by its panics: one that is no wait makes it final.
    pub fn of(output: &str) -> Self {
        let mut lines = output.lines();
        let mut panics = Vec::new();
        while let Some(line) = lines.next() {
            if line.starts_with("thread '") && line.contains(" panicked at ") {
                panics.push(lines.next().unwrap_or_default());
            }
        }
        let is_wait =
            !panics.is_empty() && panics.iter().all(|panic| panic.starts_with(TIMEOUT_PREFIX));
        let class = if is_wait { FailureKind::Timeout } else { FailureKind::Assertion };
        Self { kind: class, output: output.to_owned() }
    }

    /// The message of its first panic, or its first line.
    pub fn first_words(&self) -> String {
        let panic = self.output.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1);
        panic.or(self.output.lines().next()).unwrap_or_default().to_owned()
    }

    /// A test that had no end.
    pub fn timed_out(after: Duration, output: &str) -> Self {
        let output = format!("{TIMEOUT_PREFIX}{after:?}: the test ends\n{output}");
        Self { kind: FailureKind::Timeout, output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libtest_are_read() {
        let started = r#"{ "type": "test", "event": "started", "name": "a::b" }"#;
        assert_eq!(Event::parse(started), Some(Event::Started("a::b".to_owned())));
        let ok = r#"{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 1.5 }"#;
        let took = Duration::from_millis(1500);
        assert_eq!(
            Event::parse(ok),
            Some(Event::Ended("a::b".to_owned(), TestEnd { duration: took, failure: None }))
        );
        assert_eq!(Event::parse(r#"{ "type": "suite", "event": "started" }"#), None);
        assert_eq!(Event::parse("what a child process printed"), None);
    }

    #[test]
    fn only_a_wait_without_an_end_is_a_failure_of_patience() {
        let panic =
            |message: &str| format!("thread 'a' (7) panicked at tests/a.rs:1:2:\n{message}\n");
        let class = |output: &str| TestFailure::of(output).kind;
        assert_eq!(class(&panic("not within 180s: a pod is ready")), FailureKind::Timeout);
        assert_eq!(class(&panic("assertion failed: a == b")), FailureKind::Assertion);
        let both = panic("not within 180s: a pod is ready") + &panic("index out of bounds");
        assert_eq!(class(&both), FailureKind::Assertion);
        assert_eq!(class("Error: not within reach"), FailureKind::Assertion);
        assert_eq!(TestFailure::timed_out(Duration::from_secs(1), "").kind, FailureKind::Timeout);
    }
}
