//! How text may look, and the few things that depend on it: colour, headings, line breaks.

use std::fmt::Write as _;

use super::spark::Glyphs;

/// How text may look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether colours are understood and wanted.
    pub colour: bool,
    /// Which characters are.
    pub glyphs: Glyphs,
    /// What one types to start the program.
    pub command: String,
}

pub(super) const BOLD: &str = "1";
pub(super) const DIM: &str = "2";
pub(super) const GREEN: &str = "32";
pub(super) const YELLOW: &str = "33";
pub(super) const RED: &str = "31";

impl Look {
    pub(super) fn paint(&self, code: &str, text: &str) -> String {
        let visible = self.colour && !text.trim().is_empty();
        if visible { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn heading(&self, out: &mut String, title: &str, note: &str) {
        let note =
            if note.is_empty() { String::new() } else { self.paint(DIM, &format!("  {note}")) };
        put(out, format_args!("\n{}{note}", self.paint(BOLD, title)));
    }

    pub(super) fn plain<'a>(&self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.glyphs == Glyphs::Unicode { unicode } else { ascii }
    }
}

pub(super) fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// Words laid out in lines of at most `width` characters, as far as words allow.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_never_cut() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert!(wrap("  ", 3).is_empty());
    }
}
