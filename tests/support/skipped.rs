//! Reports that a test could not run: `cargo xtask test` counts and repeats these reports, and in CI they are
//! failures.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Folder for the reasons, one file per test; set by `cargo xtask test`.
pub const FOLDER: &str = "PLIMSOLL_NOT_RUN";
/// With `--test-threads=1` all tests run on the thread with this name, which does not identify the test.
const NO_NAME: &str = "main";

/// Reports that the current test is skipped, and why.
pub fn report_skipped(reason: impl Display) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != NO_NAME);
    let test = name.unwrap_or("a test");
    // Bypasses the capture of test output: without `cargo xtask test` this line is the only report.
    let _ = writeln!(std::io::stderr(), "not run: {test}: {reason:#}");
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = name.map_or_else(
            || format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            |name| name.replace("::", "."),
        );
        fs::write(Path::new(&folder).join(file), format!("{test}: {reason:#}\n"))
            .expect("the folder for reasons is writable");
    }
}
