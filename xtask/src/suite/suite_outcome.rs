//! The outcome of a run: final failures, timeouts that are repeated, and flaky tests.

use std::collections::BTreeSet;

use super::lane::FinishedTest;
use super::test_event::{FailureKind, Test, TestFailure};

/// More flaky tests than this in one run indicate a defect of the suite, not of the machine.
const FLAKY_ALLOWED: usize = 2;

/// The outcome of all tests.
#[derive(Debug, Default)]
pub struct SuiteOutcome {
    /// Tests that passed, with their durations.
    pub passed: Vec<FinishedTest>,
    /// Tests that failed finally.
    pub failed: Vec<(Test, TestFailure)>,
    /// Tests that timed out and passed in the second run, with the condition that they waited for.
    pub flaky: Vec<(Test, String)>,
    pending: Vec<(Test, TestFailure)>,
    /// Names of tests that were flaky in earlier runs.
    known: BTreeSet<String>,
}

// === impl SuiteOutcome ===

impl SuiteOutcome {
    /// Sorts the finished tests. A planned test without a result has failed.
    pub fn of(planned: &[Test], finished: Vec<FinishedTest>, known: Vec<String>) -> Self {
        let mut verdict = Self { known: known.into_iter().collect(), ..Self::default() };
        let ended: BTreeSet<Test> = finished.iter().map(|one| one.test.clone()).collect();
        for test in planned.iter().filter(|test| !ended.contains(*test)) {
            let output = "the test did not run".to_owned();
            verdict
                .failed
                .push((test.clone(), TestFailure { kind: FailureKind::Assertion, output }));
        }
        for one in finished {
            match &one.end.failure {
                None => verdict.passed.push(one),
                Some(failure) if failure.kind == FailureKind::Assertion => {
                    verdict.failed.push((one.test.clone(), failure.clone()));
                }
                Some(failure) => verdict.pending.push((one.test.clone(), failure.clone())),
            }
        }
        verdict
    }

    /// Counts timeouts as failures.
    pub fn without_repetition(mut self) -> Self {
        self.failed.append(&mut self.pending);
        self
    }

    /// Tests to run once more, alone.
    pub fn to_repeat(&self) -> Vec<Test> {
        self.pending.iter().map(|(test, _)| test.clone()).collect()
    }

    /// Adds the results of the second run.
    pub fn repeated(&mut self, finished: &[FinishedTest]) {
        for (test, failure) in std::mem::take(&mut self.pending) {
            let again = finished.iter().find(|one| one.test == test);
            match again {
                Some(one) if one.end.failure.is_none() => {
                    self.flaky.push((test, failure.first_words()));
                    self.passed.push(one.clone());
                }
                Some(one) => {
                    self.failed.push((test, one.end.failure.clone().unwrap_or(failure)));
                }
                None => self.failed.push((test, failure)),
            }
        }
    }

    /// Why too many tests were flaky, if they were.
    pub fn flakiness_error(&self) -> Option<String> {
        if self.flaky.len() > FLAKY_ALLOWED {
            return Some(format!(
                "{} flaky tests in a run, {FLAKY_ALLOWED} are allowed",
                self.flaky.len()
            ));
        }
        let again = self.flaky.iter().find(|(test, _)| self.known.contains(&test.full));
        again.map(|(test, _)| format!("{} was flaky before: see tests/flaky.toml", test.full))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::test_event::TestEnd;
    use super::*;

    fn test(name: &str) -> Test {
        Test { binary: 0, name: name.to_owned(), full: name.to_owned() }
    }

    fn ended(name: &str, class: Option<FailureKind>) -> FinishedTest {
        let output = "thread 'a' panicked at a.rs:1:1:\nnot within 180s: a pod is ready".to_owned();
        let failure = class.map(|class| TestFailure { kind: class, output });
        FinishedTest { test: test(name), end: TestEnd { duration: Duration::ZERO, failure } }
    }

    fn names<T>(all: &[(Test, T)]) -> Vec<&str> {
        all.iter().map(|(test, _)| test.name.as_str()).collect()
    }

    #[test]
    fn an_assertion_failure_is_final_and_a_timeout_is_retried_once() {
        let planned = ["a", "b", "c", "d", "e"].map(test);
        let finished = vec![
            ended("a", None),
            ended("b", Some(FailureKind::Assertion)),
            ended("c", Some(FailureKind::Timeout)),
            ended("d", Some(FailureKind::Timeout)),
        ];
        let mut verdict = SuiteOutcome::of(&planned, finished, Vec::new());
        assert_eq!(names(&verdict.failed), ["e", "b"], "a test that did not run counts as failed");
        assert_eq!(verdict.to_repeat(), ["c", "d"].map(test));
        verdict.repeated(&[ended("c", None), ended("d", Some(FailureKind::Timeout))]);
        assert_eq!(names(&verdict.flaky), ["c"]);
        assert_eq!(verdict.flaky[0].1, "not within 180s: a pod is ready");
        assert_eq!(names(&verdict.failed), ["e", "b", "d"]);
        assert_eq!(verdict.flakiness_error(), None);
    }

    #[test]
    fn more_than_two_flaky_tests_or_a_known_flaky_one_fail_the_run() {
        let run = |names: &[&str], known: &[&str]| {
            let planned: Vec<_> = names.iter().map(|name| test(name)).collect();
            let finished =
                names.iter().map(|name| ended(name, Some(FailureKind::Timeout))).collect();
            let known = known.iter().map(ToString::to_string).collect();
            let mut verdict = SuiteOutcome::of(&planned, finished, known);
            let again: Vec<_> = names.iter().map(|name| ended(name, None)).collect();
            verdict.repeated(&again);
            verdict.flakiness_error().is_some()
        };
        assert!(!run(&["a", "b"], &["c"]));
        assert!(run(&["a", "b", "c"], &[]));
        assert!(run(&["a"], &["a"]));
    }

    #[test]
    fn a_run_that_searches_flaky_tests_repeats_nothing() {
        let finished = vec![ended("a", None), ended("a", Some(FailureKind::Timeout))];
        let verdict = SuiteOutcome::of(&[test("a")], finished, Vec::new()).without_repetition();
        assert_eq!(names(&verdict.failed), ["a"]);
        assert!(verdict.to_repeat().is_empty());
    }
}
