//! The exit codes of the program.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Fine = 0,
    /// There are findings, or the input is not usable.
    Findings = 1,
    /// The command line is invalid.
    Usage = 2,
    /// A bug in this program.
    Internal = 3,
    /// Something could not be read, and the output names it.
    Incomplete = 4,
    /// The terminal was closed (128 + SIGHUP, as in shells).
    HungUp = 129,
    /// The user interrupted the program (128 + SIGINT).
    Interrupted = 130,
    /// The program was terminated (128 + SIGTERM).
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
