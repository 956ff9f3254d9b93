//! What the program talks to: a terminal or a pipe, how wide, in which characters and colours.

use std::{ffi::OsString, io::IsTerminal as _};

use crate::report::demo::{sparkline::Glyphs, text::Style};

/// Columns where nobody says how many there are.
const DEFAULT_WIDTH: usize = 80;
/// Text is laid out no narrower, and no wider, than this.
const WIDTHS: std::ops::RangeInclusive<usize> = 80..=132;

/// Standard output and standard error, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Whether a person reads standard output directly.
    pub stdout_is_tty: bool,
    /// Whether a person watches standard error, on something that can move its cursor.
    pub stderr_is_tty: bool,
    /// Columns that standard error has.
    pub columns: usize,
    /// How text may look.
    pub style: Style,
}

impl Terminal {
    /// Looks around. `colour_refused` is `--no-color`.
    pub fn detect(colour_refused: bool) -> Self {
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let beside = terminal_size::terminal_size_of(std::io::stderr());
        Self::of(
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
            [width, beside.map(|(width, _)| usize::from(width.0))],
            colour_refused,
            |name| std::env::var_os(name),
        )
    }

    fn of(
        stdout: bool,
        stderr: bool,
        [width, beside]: [Option<usize>; 2],
        colour_refused: bool,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        let unicode = !dumb && (locale.contains("utf-8") || locale.contains("utf8"));
        // Cargo says so to what it runs; then `plimsoll` is not what one types.
        let by_cargo = set("CARGO_MANIFEST_DIR").is_some();
        Self {
            stdout_is_tty: stdout,
            stderr_is_tty: stderr && !dumb,
            // A terminal that does not know its width says 0.
            columns: beside.filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH),
            style: Style {
                width: if stdout { width } else { None }
                    .unwrap_or(DEFAULT_WIDTH)
                    .clamp(*WIDTHS.start(), *WIDTHS.end()),
                colour: stdout && !dumb && !colour_refused && set("NO_COLOR").is_none(),
                glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
                command: if by_cargo { "cargo run --release --" } else { "plimsoll" }.to_owned(),
            },
        }
    }
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
    fn a_utf_8_terminal_gets_colour_blocks_and_its_own_width() {
        let found = terminal(true, false, &[("LANG", "en_GB.UTF-8"), ("TERM", "xterm")]);
        assert!(found.stdout_is_tty && found.stderr_is_tty && found.style.colour);
        assert_eq!((found.style.width, found.style.glyphs), (120, Glyphs::Unicode));
    }

    #[test]
    fn a_pipe_gets_eighty_columns_and_no_colour() {
        let found = terminal(false, false, &[("LANG", "C.utf8"), ("TERM", "xterm")]);
        assert!(!found.stderr_is_tty && !found.style.colour);
        assert_eq!((found.style.width, found.style.glyphs), (80, Glyphs::Unicode));
    }

    #[test]
    fn colour_is_off_by_flag_by_no_color_and_on_a_dumb_terminal() {
        assert!(!terminal(true, true, &[]).style.colour);
        assert!(!terminal(true, false, &[("NO_COLOR", "1")]).style.colour);
        assert!(terminal(true, false, &[("NO_COLOR", "")]).style.colour, "empty means unset");
        let dumb = terminal(true, false, &[("TERM", "dumb"), ("LANG", "C.UTF-8")]);
        assert!(!dumb.style.colour && !dumb.stderr_is_tty);
        assert_eq!(dumb.style.glyphs, Glyphs::Ascii);
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let found = terminal(true, false, &[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]);
        assert_eq!(found.style.glyphs, Glyphs::Ascii);
        assert_eq!(terminal(true, false, &[]).style.glyphs, Glyphs::Ascii);
    }
}
