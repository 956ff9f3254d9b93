//! Owns what a run prints: a line a test where tests take long, every failure in full, times, and the count at the end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use xtask::console::{progress, seconds};

use super::config::Phase;
use super::lane::FinishedTest;
use super::suite_outcome::SuiteOutcome;

/// Slow tests that are listed after a run.
const SLOWEST: usize = 20;

/// A part of the run and its time.
#[derive(Clone, Debug)]
pub struct ReportPart {
    /// What was done.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// How busy the cores were, in percent.
    pub busy: Option<u64>,
}

/// All that is reported beside what tests came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Parts of the run, in order.
    pub parts: Vec<ReportPart>,
    /// Parts of the testbed that are missing, and why.
    pub missing: Vec<(&'static str, String)>,
    /// Tests that noted that they could not run.
    pub skipped: Vec<String>,
    /// Files that tests left.
    pub leftovers: Vec<String>,
    /// Tests of later phases, after a pure one failed.
    pub not_started: usize,
    /// What the testbed noted: control planes and waits for a slot.
    pub events: TestbedUsage,
    /// The whole run.
    pub total: Duration,
}

/// What the testbed did in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestbedUsage {
    /// Control planes that were started, by kind.
    pub beds: BTreeMap<String, usize>,
    /// Seconds that tests waited until they were ready.
    pub bed_seconds: f64,
    /// Seconds that tests waited for the right to start one.
    pub slot_seconds: f64,
}

// === impl Part ===

impl ReportPart {
    /// One without a measure of the cores.
    pub fn of(name: &str, took: Duration) -> Self {
        Self { name: name.to_owned(), took, busy: None }
    }
}

// === impl Events ===

impl TestbedUsage {
    /// Reads lines such as `bed<TAB>private<TAB>4.1` and `slot-wait<TAB>2.0`.
    pub fn parse(text: &str) -> Self {
        let mut events = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
            match words[..] {
                ["bed", kind, _] => {
                    *events.beds.entry(kind.to_owned()).or_default() += 1;
                    events.bed_seconds += number(2).unwrap_or_default();
                }
                ["slot-wait", _] => events.slot_seconds += number(1).unwrap_or_default(),
                _ => {}
            }
        }
        events
    }

    /// One line.
    pub fn line(&self) -> String {
        let count: usize = self.beds.values().sum();
        let kinds: Vec<_> =
            self.beds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        format!(
            "{count} control planes started ({}), {:.0} s until they were ready, {:.0} s waited for slots",
            kinds.join(", "),
            self.bed_seconds,
            self.slot_seconds
        )
    }
}

/// Prints the end of a test. Pure tests are too many and too quick for a line each.
pub fn line(finished: &FinishedTest, phase: Phase) {
    let took = finished.end.duration.as_secs_f64();
    match &finished.end.failure {
        None if phase == Phase::Pure => {}
        None => println(&format!("ok     {took:7.1} s  {}", finished.test.full)),
        Some(failure) => println(&format!(
            "FAILED {took:7.1} s  {}\n{}",
            finished.test.full,
            indented(&failure.output)
        )),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect::<Vec<_>>().concat()
}

// === impl Report ===

impl Report {
    /// Prints everything; whether all is well.
    pub fn print(&self, verdict: &SuiteOutcome) -> bool {
        progress("");
        let mut slowest: Vec<&FinishedTest> = verdict.passed.iter().collect();
        slowest.sort_by_key(|one| std::cmp::Reverse(one.end.duration));
        slowest.retain(|one| one.end.duration >= Duration::from_secs(5));
        for one in slowest.iter().take(SLOWEST) {
            progress(format_args!("{:>14}  {}", seconds(one.end.duration), one.test.full));
        }
        progress("");
        for part in &self.parts {
            let busy = part.busy.map_or(String::new(), |busy| format!(", cores {busy} % busy"));
            progress(format_args!("{:>14}  {}{busy}", seconds(part.took), part.name));
        }
        progress(format_args!("{:>14}  all; {}", seconds(self.total), self.events.line()));
        for (name, reason) in &self.missing {
            progress(format_args!("NOT SET UP: {name}: {reason}"));
        }
        for reason in &self.skipped {
            progress(format_args!("NOT RUN: {reason}"));
        }
        for path in &self.leftovers {
            progress(format_args!("LEFT BEHIND: {path}"));
        }
        progress(format_args!("the deep tier last ended well: {}", crate::deep_tier::age()));
        for (test, words) in &verdict.flaky {
            progress(format_args!("FLAKY: {}: {words}", test.full));
        }
        for (test, failure) in &verdict.failed {
            progress(format_args!("FAILED: {}: {}", test.full, failure.first_words()));
        }
        let too_flaky = verdict.flakiness_error();
        if let Some(reason) = &too_flaky {
            progress(reason);
        }
        if self.not_started > 0 {
            progress(format_args!(
                "{} tests were not started because a pure test failed; --keep-going starts them",
                self.not_started
            ));
        }
        let incomplete = super::is_ci() && !(self.skipped.is_empty() && self.missing.is_empty());
        if incomplete {
            progress("in CI what could not run is a failure");
        }
        let passed = verdict.passed.len().saturating_sub(self.skipped.len());
        let failed = verdict.failed.len();
        let skipped = self.skipped.len() + self.not_started;
        println(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
        failed == 0 && passed > 0 && too_flaky.is_none() && self.leftovers.is_empty() && !incomplete
    }
}

/// Results go to stdout.
pub fn println(line: &str) {
    // A reader that went away (`| head`) is no reason to stop testing.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_planes_and_waits_are_added_up() {
        let text = "bed\tprivate\t4.5\nbed\tshared\t3.5\nslot-wait\t2.0\nbed\tprivate\t4.0\nbroken";
        let events = TestbedUsage::parse(text);
        assert_eq!(events.beds.get("private"), Some(&2));
        assert_eq!(
            events.line(),
            "3 control planes started (2 private, 1 shared), 12 s until they were ready, 2 s waited for slots"
        );
    }
}
