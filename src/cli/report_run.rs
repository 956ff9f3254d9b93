//! What `plimsoll recommend` and `plimsoll backtest` share: reading until a signal, progress, files, and the exit code.

use std::{
    fmt::Display,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use plimsoll_core::rightsizing::survey::Unread;

use super::{
    Exit,
    one_shot::{block_on, first_signal},
    output::{self, CliError, escape_to_one_line},
    parsed_flags::ParsedFlags,
    progress::Progress,
    prometheus_auth::exposed_secret_warnings,
    terminal::Terminal,
};
use crate::report::{recommend::run::RecommendProgress, style::Style};

/// The largest file of thresholds or prices.
pub const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// Opens a file of a limited size.
pub fn open(path: &Path, max_bytes: u64) -> Result<fs::File, CliError> {
    let failed = |why: String| CliError::failed(format!("{}: {why}", path.display()));
    let file = fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let size = file.metadata().map_err(|error| failed(error.to_string()))?.len();
    if size > max_bytes {
        return Err(failed(format!("it has {size} bytes, and at most {max_bytes} are read")));
    }
    Ok(file)
}

/// Reads a text file of a limited size.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String, CliError> {
    let text = io::read_to_string(open(path, max_bytes)?);
    text.map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
}

/// Writes a file, and creates the folder that it is in.
pub fn write_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
) -> Result<(), CliError> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let written = parent.map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut file = io::BufWriter::new(fs::File::create(path)?);
        write(&mut file)?;
        file.flush()
    });
    written.map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
}

/// The style for standard output, or for a file, which has no colours.
pub fn style_for(terminal: &Terminal, path: Option<&PathBuf>) -> Style {
    Style { colour: terminal.style.colour && path.is_none(), ..terminal.style.clone() }
}

pub fn parse<T: FromStr<Err: Display>>(text: &str, flag: &str) -> Result<T, CliError> {
    text.parse().map_err(|error| CliError::usage(format!("--{flag}={text}: {error}")))
}

pub fn parse_all<T: FromStr<Err: Display>>(
    texts: &[String],
    flag: &str,
) -> Result<Vec<T>, CliError> {
    texts.iter().map(|text| parse(text, flag)).collect()
}

/// Checks that at most one of these forms or flags prints to standard output.
pub fn ensure_one_on_stdout(forms: &[String]) -> Result<(), CliError> {
    if forms.len() > 1 {
        return Err(CliError::usage(format!(
            "{} all print to standard output: add =FILE to all but one of the forms",
            forms.join(", ")
        )));
    }
    Ok(())
}

pub fn print_secret_warnings(typed: &ParsedFlags) {
    for warning in exposed_secret_warnings(typed) {
        output::print_note(&format!("plimsoll: {warning}"));
    }
}

pub fn print_unread(unread: &[Unread]) {
    for Unread { what, why } in unread {
        output::print_note(&escape_to_one_line(&format!("plimsoll: could not read {what}: {why}")));
    }
}

/// Runs a future until it ends or a signal arrives. Signals that arrive later do not interrupt the output.
pub fn interruptible<T, E>(
    work: impl Future<Output = Result<T, E>>,
    failed: impl FnOnce(E) -> CliError,
) -> Result<T, CliError> {
    block_on(async {
        let stop =
            first_signal().map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
        tokio::select! {
            result = work => result.map_err(failed),
            exit = stop => Err(CliError::new(exit, "interrupted; nothing was printed")),
        }
    })
}

/// The exit code: incomplete goes first, because a pipeline must not take "nothing found" from half a cluster.
pub const fn exit_code(is_incomplete: bool, has_findings: bool) -> Exit {
    match (is_incomplete, has_findings) {
        (true, _) => Exit::Incomplete,
        (false, true) => Exit::Findings,
        (false, false) => Exit::Fine,
    }
}

/// Shows progress on standard error, only on a terminal.
pub struct TerminalProgress {
    progress: Progress,
    /// What is done with histories.
    label: &'static str,
}

impl TerminalProgress {
    pub fn new(terminal: &Terminal, label: &'static str) -> Self {
        let Terminal { stderr_is_tty, columns, style, .. } = terminal;
        Self { progress: Progress::new(*stderr_is_tty, *columns, style.glyphs), label }
    }
}

impl RecommendProgress for TerminalProgress {
    fn stage(&mut self, text: &str) {
        self.progress.show_text(text);
    }

    fn histories(&mut self, done: usize, total: usize) {
        self.progress.show_share(self.label, done, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_goes_before_findings() {
        for (is_incomplete, has_findings, code) in
            [(false, false, 0), (false, true, 1), (true, false, 4), (true, true, 4)]
        {
            assert_eq!(exit_code(is_incomplete, has_findings) as u8, code);
        }
    }
}
