//! Owns what the set-up tells people while they wait.

use std::fmt::Display;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Prints one line on stderr: stdout belongs to results.
pub fn progress(line: impl Display) {
    // Nobody reads a closed stderr; losing a progress line is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints one line on stdout.
pub fn print_result(line: impl Display) {
    // Whoever closes it has read enough.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Says what is going on, does it, and says how long it took.
pub fn timed<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    progress(format_args!("{what} ..."));
    let start = Instant::now();
    let outcome = work();
    let verdict = if outcome.is_ok() { "done" } else { "failed" };
    progress(format_args!("{what}: {verdict} after {}", seconds(start.elapsed())));
    outcome
}

/// A duration as people read it in a report: `0.4 s`, `12 s`, `4 min 10 s`.
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
    fn durations_read_well_at_every_size() {
        assert_eq!(seconds(Duration::from_millis(430)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(250)), "4 min 10 s");
    }
}
