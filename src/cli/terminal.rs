//! Detects the terminal: width, character set and colours.

use std::{ffi::OsString, io::IsTerminal as _};

use super::invocation::Invocation;
use crate::report::style::{Glyphs, Style};

const DEFAULT_WIDTH: usize = 80;
const DEFAULT_ROWS: usize = 24;
/// Narrower terminals wrap lines themselves, and longer lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=132;

/// The properties of standard output and standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub stdout_is_tty: bool,
    /// Whether standard output is a terminal that can be cleared.
    pub stdout_can_be_redrawn: bool,
    /// Whether standard error is a terminal that can move the cursor.
    pub stderr_is_tty: bool,
    pub columns: usize,
    pub style: Style,
}

impl Terminal {
    /// Detects the terminal. `colour_refused` is `--no-color`.
    pub fn detect(colour_refused: bool) -> Self {
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let stderr_width = terminal_size::terminal_size_of(std::io::stderr());
        Self::of(
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
            [width, stderr_width.map(|(width, _)| usize::from(width.0))],
            colour_refused,
            |name| std::env::var_os(name),
        )
    }

    fn of(
        stdout: bool,
        stderr: bool,
        [width, stderr_width]: [Option<usize>; 2],
        colour_refused: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        let unicode = !dumb && (locale.contains("utf-8") || locale.contains("utf8"));
        // Under `cargo run`, hints should show the cargo command.
        let by_cargo = set("CARGO_MANIFEST_DIR").is_some();
        Self {
            stdout_is_tty: stdout,
            stdout_can_be_redrawn: stdout && !dumb,
            stderr_is_tty: stderr && !dumb,
            // A terminal of unknown width reports 0.
            columns: stderr_width.filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH),
            style: Style {
                width: style_width(if stdout { width } else { None }),
                colour: stdout && !dumb && !colour_refused && set("NO_COLOR").is_none(),
                glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
                command: if by_cargo {
                    "cargo run --release --"
                } else {
                    Invocation::current().command()
                }
                .to_owned(),
            },
        }
    }

    /// The style and the number of rows for the current size of the terminal, if standard output can be redrawn.
    pub fn screen(&self) -> Option<(Style, usize)> {
        if !self.stdout_can_be_redrawn {
            return None;
        }
        let size = terminal_size::terminal_size();
        let columns = size.map(|(width, _)| usize::from(width.0));
        let rows = size.map(|(_, height)| usize::from(height.0)).filter(|rows| *rows > 0);
        let style = Style { width: style_width(columns), ..self.style.clone() };
        Some((style, rows.unwrap_or(DEFAULT_ROWS)))
    }
}

fn style_width(columns: Option<usize>) -> usize {
    // A terminal of unknown width reports 0.
    let columns = columns.filter(|columns| *columns > 0);
    columns.unwrap_or(DEFAULT_WIDTH).clamp(*WIDTHS.start(), *WIDTHS.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(stdout: bool, refused: bool, variables: &[(&str, &str)]) -> Terminal {
        Terminal::of(stdout, stdout, [Some(120); 2], refused, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn a_utf_8_terminal_gets_color_unicode_and_its_own_width() {
        let found = terminal(true, false, &[("LANG", "en_GB.UTF-8"), ("TERM", "xterm")]);
        assert!(found.stdout_is_tty && found.stderr_is_tty && found.style.colour);
        assert!(found.stdout_can_be_redrawn);
        assert_eq!((found.style.width, found.style.glyphs), (120, Glyphs::Unicode));
    }

    #[test]
    fn the_width_of_a_terminal_is_limited_to_what_can_be_read() {
        for (columns, width) in [
            (None, 80),
            (Some(0), 80),
            (Some(10), 40),
            (Some(40), 40),
            (Some(79), 79),
            (Some(500), 132),
        ] {
            assert_eq!(style_width(columns), width, "{columns:?}");
        }
    }

    #[test]
    fn a_pipe_gets_80_columns_and_no_color() {
        let found = terminal(false, false, &[("LANG", "C.utf8"), ("TERM", "xterm")]);
        assert!(!found.stderr_is_tty && !found.style.colour && found.screen().is_none());
        assert_eq!((found.style.width, found.style.glyphs), (80, Glyphs::Unicode));
    }

    #[test]
    fn color_is_disabled_by_flag_no_color_or_a_dumb_terminal() {
        assert!(!terminal(true, true, &[]).style.colour);
        assert!(!terminal(true, false, &[("NO_COLOR", "1")]).style.colour);
        assert!(terminal(true, false, &[("NO_COLOR", "")]).style.colour, "empty means unset");
        let dumb = terminal(true, false, &[("TERM", "dumb"), ("LANG", "C.UTF-8")]);
        assert!(!dumb.style.colour && !dumb.stderr_is_tty && !dumb.stdout_can_be_redrawn);
        assert_eq!(dumb.style.glyphs, Glyphs::Ascii);
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let found = terminal(true, false, &[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]);
        assert_eq!(found.style.glyphs, Glyphs::Ascii);
        assert_eq!(terminal(true, false, &[]).style.glyphs, Glyphs::Ascii);
    }
}
