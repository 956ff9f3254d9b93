//! How the program ends: the one list of exit codes.

use std::process::ExitCode;

/// An outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is fine.
    Fine = 0,
    /// There are findings, or something the user gave cannot be worked with.
    Findings = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The program is wrong.
    Internal = 3,
    /// Its terminal went away (128 + SIGHUP, as shells have it).
    HungUp = 129,
    /// The user stopped it (128 + SIGINT).
    Interrupted = 130,
    /// It was told to end (128 + SIGTERM).
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
