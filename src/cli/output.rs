//! Where words go: results to standard output, problems to standard error in one line. A reader that went
//! away (`| head -1`) is no problem.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use super::Exit;

/// Form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Why a command ends before its end.
#[derive(Debug)]
pub struct CliError {
    exit: Exit,
    message: String,
}

impl CliError {
    /// A problem to be reported.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// No problem at all: there is just nothing left to do.
    pub fn silent() -> Self {
        Self::new(Exit::Fine, "")
    }

    /// What it says.
    pub fn into_message(self) -> String {
        self.message
    }

    /// Says it on standard error, and how to exit.
    pub fn report(self) -> Exit {
        if !self.message.is_empty() {
            // When standard error is gone too, nobody is left to be told.
            let _ = writeln!(io::stderr(), "plimsoll: {}", self.message);
        }
        self.exit
    }
}

/// Text in one line and without anything that moves a cursor: whatever controls is written as its escape.
pub fn escape_to_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// A result for programs.
pub fn json(report: &impl Serialize) -> Result<String, CliError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| CliError::new(Exit::Internal, format!("report: {error}")))?;
    Ok(json + "\n")
}

/// Writes a result, at once.
pub fn print_result(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::silent(),
        _ => CliError::new(Exit::Findings, format!("standard output: {error}")),
    })
}

/// Tells how things go; never part of a result.
pub fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
