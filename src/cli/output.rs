//! Output and exit codes: results go to standard output, errors to standard error in one line. A closed pipe (`| head -1`) is not an
//! error.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::ValueEnum;
use serde::Serialize;

use super::invocation::Invocation;
pub use crate::report::style::escape_to_one_line;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    Text,
    /// JSON
    Json,
}

/// The exit codes of the program.
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

#[derive(Debug)]
pub struct CliError {
    exit: Exit,
    message: String,
}

impl CliError {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// An error of something that the command uses, in one line.
    pub fn failed(error: impl Display) -> Self {
        Self::from(escape_to_one_line(&error.to_string()))
    }

    /// Ends the command successfully, without a message.
    pub fn silent() -> Self {
        Self::new(Exit::Fine, "")
    }

    pub fn into_message(self) -> String {
        self.message
    }

    /// Writes the message to standard error, and returns the exit code.
    pub fn report(self) -> Exit {
        if !self.message.is_empty() {
            print_warning(&self.message);
        }
        self.exit
    }
}

impl From<String> for CliError {
    fn from(message: String) -> Self {
        Self::new(Exit::Findings, message)
    }
}

impl From<&str> for CliError {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

pub fn json(report: &impl Serialize) -> Result<String, CliError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| CliError::new(Exit::Internal, format!("report: {error}")))?;
    Ok(json + "\n")
}

/// Writes a result to standard output and flushes it.
pub fn print_result(text: &str) -> Result<(), CliError> {
    write_result(|out| out.write_all(text.as_bytes()))
}

/// Writes a result to standard output without having all of it in memory, and flushes it.
pub fn write_result(
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::silent(),
        _ => CliError::new(Exit::Findings, format!("standard output: {error}")),
    })
}

/// Writes a message to standard error, after the command that was started.
pub fn print_warning(message: &str) {
    let invocation = Invocation::current();
    print_note(&format!("{}: {}", invocation.command(), invocation.rename(message)));
}

/// Writes a warning about something that has names of the cluster in it.
pub fn print_escaped_warning(message: &str) {
    print_warning(&escape_to_one_line(message));
}

/// Writes a line to standard error. If that is closed, the line is lost.
pub fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
