//! Owns how a test says that it could not run: `cargo xtask test` counts and repeats it, and in CI it is a failure.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Names the folder into which reasons go, one file a test; set by `cargo xtask test`.
const FOLDER: &str = "PLIMSOLL_NOT_RUN";

/// Notes that the current test is not run, and why.
pub fn not_run(reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Past the capture of test output: without `cargo xtask test` this line is all there is.
    let _ = writeln!(std::io::stderr(), "not run: {test}: {reason:#}");
    if let Some(folder) = std::env::var_os(FOLDER) {
        let file = Path::new(&folder).join(test.replace("::", "."));
        fs::write(file, format!("{test}: {reason:#}\n"))
            .expect("the folder for reasons is writable");
    }
}
