//! Records events of testbeds, one line each; `cargo xtask times` summarizes them.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

/// The file to which events are appended; unset disables recording.
const FILE: &str = "PLIMSOLL_EVENTS";

/// Records an event: name, details and duration in seconds, separated by tabs.
pub fn record(event: &str, details: &[&str], took: Duration) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let seconds = format!("{:.1}", took.as_secs_f64());
    let words: Vec<_> = std::iter::once(event).chain(details.iter().copied()).collect();
    let line = format!("{}\t{seconds}\n", words.join("\t"));
    let mut file =
        OpenOptions::new().append(true).create(true).open(path).expect("the file is writable");
    // With a single write, because several processes append to it.
    file.write_all(line.as_bytes()).expect("the file is writable");
}
