//! Starts the command line and turns its outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    plimsoll::cli::run(std::env::args_os()).into()
}
