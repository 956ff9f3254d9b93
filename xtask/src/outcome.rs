//! Owns what the output of `cargo test` says: counts, times of the parts, and the names of what failed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Where a line came from: cargo speaks on one stream, the tests on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The tests.
    Output,
    /// cargo.
    Error,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    passed: usize,
    failed: usize,
    ignored: usize,
    failures: Vec<String>,
    parts: Vec<(String, Duration)>,
    /// Announced by cargo, without a result so far. The streams race, so names and results are matched by order.
    announced: VecDeque<String>,
    results: VecDeque<Duration>,
    began: Option<Instant>,
    success: bool,
}

// === impl Outcome ===

impl Outcome {
    /// Takes one line.
    pub fn read(&mut self, stream: Stream, line: &str, now: Instant) {
        let line = plain(line);
        let began = *self.began.get_or_insert(now);
        match stream {
            Stream::Error => {
                if let Some(name) = part(&line) {
                    if self.parts.is_empty() {
                        self.parts.push(("build".to_owned(), now - began));
                    }
                    self.announced.push_back(name);
                }
            }
            Stream::Output => {
                if let Some(result) = line.strip_prefix("test result: ") {
                    self.add(result);
                } else if let Some(name) =
                    line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
                {
                    self.failures.push(name.to_owned());
                }
            }
        }
        while !self.announced.is_empty() && !self.results.is_empty() {
            let part = self.announced.pop_front().zip(self.results.pop_front());
            self.parts.extend(part);
        }
    }

    fn add(&mut self, result: &str) {
        let number = |word: &str| {
            result
                .split([';', '.'])
                .find_map(|piece| piece.trim().strip_suffix(word)?.trim().parse().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
        self.ignored += number("ignored");
        let took = result.rsplit_once("finished in ").and_then(|(_, time)| time.strip_suffix('s'));
        let took = took.and_then(|time| time.parse().ok()).unwrap_or(0.0);
        self.results.push_back(Duration::from_secs_f64(took));
    }

    /// Notes cargo's own verdict.
    pub fn finish(&mut self, success: bool) {
        self.success = success;
    }

    /// Whether cargo saw nothing wrong.
    pub fn succeeded(&self) -> bool {
        self.success && self.failed == 0
    }

    /// Passed, failed, skipped. Tests that were not run end like passed ones, and are none.
    pub fn count(&self, not_run: usize) -> (usize, usize, usize) {
        (self.passed.saturating_sub(not_run), self.failed, self.ignored + not_run)
    }

    /// The time of each part.
    pub fn parts(&self) -> &[(String, Duration)] {
        &self.parts
    }

    /// Names of the tests that failed.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }
}

/// `src/lib.rs` of `Running unittests src/lib.rs (target/...)`.
fn part(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("examples in the docs of {name}"));
    }
    let rest = line.strip_prefix("Running ")?;
    let (name, binary) = rest.rsplit_once(" (")?;
    let file = binary.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let package = file.rsplit_once('-').map_or(file, |(package, _)| package);
    Some(format!("{package}: {}", name.trim_start_matches("unittests ")))
}

/// The line without colours.
fn plain(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[(Stream, &str)]) -> Outcome {
        let mut outcome = Outcome::default();
        let now = Instant::now();
        for (stream, line) in lines {
            outcome.read(*stream, line, now);
        }
        outcome
    }

    #[test]
    fn counts_of_all_binaries_are_added_up() {
        let mut outcome = outcome(&[
            (Stream::Error, "     Running unittests src/lib.rs (target/debug/deps/plimsoll-0a1b)"),
            (Stream::Output, "test a::works ... ok"),
            (
                Stream::Output,
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.50s",
            ),
            (Stream::Error, "     Running tests/tests.rs (target/debug/deps/tests-77)"),
            (Stream::Output, "test b::breaks ... FAILED"),
            (
                Stream::Output,
                "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            ),
        ]);
        outcome.finish(false);
        assert_eq!(outcome.count(2), (13, 1, 3));
        assert_eq!(outcome.failures(), ["b::breaks"]);
        assert!(!outcome.succeeded());
        let names: Vec<_> = outcome.parts().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["build", "plimsoll: src/lib.rs", "tests: tests/tests.rs"]);
        assert_eq!(outcome.parts()[1].1, Duration::from_millis(1500));
    }

    #[test]
    fn colours_do_not_hide_a_failure() {
        let outcome = outcome(&[(Stream::Output, "test b ... \u{1b}[31mFAILED\u{1b}[0m")]);
        assert_eq!(outcome.failures(), ["b"]);
    }
}
