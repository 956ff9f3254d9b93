//! Runs the command line and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    plimsoll::cli::run(std::env::args_os()).into()
}
