//! Progress and results on the console.

use std::fmt::Display;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Prints one line on stderr: stdout belongs to results.
pub fn progress(line: impl Display) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints one line on stdout.
pub fn print_result(line: impl Display) {
    // A reader that closed stdout (`| head`) needs no more.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Prints what is being done, does it, and prints how long it took.
pub fn timed<T>(activity: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    progress(format_args!("{activity} ..."));
    let start = Instant::now();
    let outcome = work();
    let verdict = if outcome.is_ok() { "done" } else { "failed" };
    progress(format_args!("{activity}: {verdict} after {}", seconds(start.elapsed())));
    outcome
}

/// A duration for a report: `0.4 s`, `12 s`, `4 min 10 s`.
pub fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..100 => format!("{whole} s"),
        _ => format!("{} min {} s", whole / 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_suitable_units() {
        assert_eq!(seconds(Duration::from_millis(430)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(250)), "4 min 10 s");
    }
}
