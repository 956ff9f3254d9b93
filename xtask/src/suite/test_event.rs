//! Events that a test binary prints with `--format json`: one line per test that starts or ends.

use std::time::Duration;

use serde_json::Value;

/// A test: its binary and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test {
    /// Index of its binary in the run.
    pub binary: usize,
    /// Its module path in the binary.
    pub name: String,
    /// Its name in reports and filters: that of a unit test starts with its crate.
    pub full: String,
}

/// An event.
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
    /// Duration.
    pub duration: Duration,
    /// The failure, if it failed.
    pub failure: Option<TestFailure>,
}

/// A failure of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFailure {
    /// Whether the failure is final.
    pub kind: FailureKind,
    /// Output of the test.
    pub output: String,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// An assertion failed. Final.
    Assertion,
    /// A condition did not become true in time: either a bug, or the machine stalled.
    Timeout,
}

/// Prefix of the panic message of a wait that timed out.
const TIMEOUT_PREFIX: &str = "not within ";

// === impl Event ===

impl Event {
    /// Parses a line; `None` if it is not a test event.
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

// === impl TestFailure ===

impl TestFailure {
    /// Classifies by the panic messages: any panic that is not a timed-out wait makes the failure final.
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

    /// The message of the first panic, or the first line.
    pub fn first_words(&self) -> String {
        let panic = self.output.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1);
        panic.or(self.output.lines().next()).unwrap_or_default().to_owned()
    }

    /// The failure of a test that never ended.
    pub fn timed_out(after: Duration, output: &str) -> Self {
        let output = format!("{TIMEOUT_PREFIX}{after:?}: the test ends\n{output}");
        Self { kind: FailureKind::Timeout, output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_events_are_parsed() {
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
    fn only_an_endless_wait_is_a_timeout() {
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
