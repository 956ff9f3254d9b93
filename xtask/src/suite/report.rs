//! The output of a run: a line per slow test, every failure in full, times, and the final count.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use xtask::console::{progress, seconds};

use super::config::Phase;
use super::lane::FinishedTest;
use super::suite_outcome::SuiteOutcome;

/// Number of slow tests in the report.
const SLOWEST: usize = 20;

/// A part of the run and its duration.
#[derive(Clone, Debug)]
pub struct ReportPart {
    /// Name of the part.
    pub name: String,
    /// Duration.
    pub took: Duration,
    /// CPU utilization in percent.
    pub busy: Option<u64>,
}

/// Everything in the report except the outcome of the tests.
#[derive(Debug, Default)]
pub struct Report {
    /// Parts of the run, in order.
    pub parts: Vec<ReportPart>,
    /// Test programs that are not available, and why.
    pub missing: Vec<(&'static str, String)>,
    /// Tests that reported that they could not run.
    pub skipped: Vec<String>,
    /// Files that tests left behind.
    pub leftovers: Vec<String>,
    /// Number of tests of later phases that did not run because a pure test failed.
    pub not_started: usize,
    /// Events of the testbed: started control planes and waits for a slot.
    pub events: TestbedUsage,
    /// Duration of the whole run.
    pub total: Duration,
}

/// Events of the testbed in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestbedUsage {
    /// Number of control planes that were started, by kind.
    pub beds: BTreeMap<String, usize>,
    /// Seconds that tests waited until control planes were ready.
    pub bed_seconds: f64,
    /// Seconds that tests waited for a slot to start one.
    pub slot_seconds: f64,
}

// === impl ReportPart ===

impl ReportPart {
    /// A part without a CPU measurement.
    pub fn of(name: &str, took: Duration) -> Self {
        Self { name: name.to_owned(), took, busy: None }
    }
}

// === impl TestbedUsage ===

impl TestbedUsage {
    /// Parses lines such as `bed<TAB>private<TAB>4.1` and `slot-wait<TAB>2.0`.
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

    /// Summary in one line.
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

/// Prints the end of a test. Pure tests are too many and too fast for a line each.
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
    /// Prints the report; returns whether the run succeeded.
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
        progress(format_args!("last successful run of the deep tier: {}", crate::deep_tier::age()));
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
                "{} tests did not run because a pure test failed; use --keep-going to run them",
                self.not_started
            ));
        }
        let incomplete = super::is_ci() && !(self.skipped.is_empty() && self.missing.is_empty());
        if incomplete {
            progress("in CI a skipped test is a failure");
        }
        let passed = verdict.passed.len().saturating_sub(self.skipped.len());
        let failed = verdict.failed.len();
        let skipped = self.skipped.len() + self.not_started;
        println(&format!("{passed} passed, {failed} failed, {skipped} skipped"));
        failed == 0 && passed > 0 && too_flaky.is_none() && self.leftovers.is_empty() && !incomplete
    }
}

/// Prints a result on stdout.
pub fn println(line: &str) {
    // A reader that closed the pipe (`| head`) is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_planes_and_waits_are_summed() {
        let text = "bed\tprivate\t4.5\nbed\tshared\t3.5\nslot-wait\t2.0\nbed\tprivate\t4.0\nbroken";
        let events = TestbedUsage::parse(text);
        assert_eq!(events.beds.get("private"), Some(&2));
        assert_eq!(
            events.line(),
            "3 control planes started (2 private, 1 shared), 12 s until they were ready, 2 s waited for slots"
        );
    }
}
