//! Owns the list of what a run spends on beds, one line per event; `cargo xtask times` sums it up.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// Names the file to which events are appended; nothing is noted without it.
const FILE: &str = "PLIMSOLL_EVENTS";

/// Notes an event: what it is, its details and the seconds it took, with tabs between them.
pub fn record(what: &str, details: &[&str], took: Duration) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let seconds = format!("{:.1}", took.as_secs_f64());
    let words: Vec<_> = std::iter::once(what).chain(details.iter().copied()).collect();
    let line = format!("{}\t{seconds}\n", words.join("\t"));
    let mut file =
        OpenOptions::new().append(true).create(true).open(path).expect("the file is writable");
    // At once, because several processes write to it.
    file.write_all(line.as_bytes()).expect("the file is writable");
}
