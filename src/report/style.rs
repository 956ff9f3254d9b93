//! How text for people may look, and the few things that depend on it: colour, characters, line breaks.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

/// Which characters may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Blocks, arrows and lines of Unicode.
    Unicode,
    /// Seven bits only.
    Ascii,
}

/// How text may look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// Whether colours are understood and wanted.
    pub colour: bool,
    /// Which characters are.
    pub glyphs: Glyphs,
    /// What one types to start the program.
    pub command: String,
}

/// What stands out.
pub const BOLD: &str = "1";
/// What stands back.
pub const DIM: &str = "2";
/// What is well.
pub const GREEN: &str = "32";
/// What should be looked at.
pub const YELLOW: &str = "33";
/// What is wrong.
pub const RED: &str = "31";

/// Longer lines are hard to read, however wide a terminal is.
const MAX_LINE_WIDTH: usize = 100;
/// Where the text beside a label begins.
const INDENT: usize = 16;

impl Style {
    /// Text in a colour, where colours are wanted.
    pub fn paint(&self, code: &str, text: &str) -> String {
        let visible = self.colour && !text.trim().is_empty();
        if visible { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A blank line and a title, with something said beside it.
    pub fn heading(&self, out: &mut String, title: &str, note: &str) {
        let note =
            if note.is_empty() { String::new() } else { self.paint(DIM, &format!("  {note}")) };
        push_line(out, format_args!("\n{}{note}", self.paint(BOLD, title)));
    }

    /// Text in lines that fit and read well, beside something that takes so many columns. Much of it is written by users:
    /// what would move a cursor, or do worse to a terminal, is shown as its escape.
    pub fn wrap(&self, text: &str, beside: usize) -> Vec<String> {
        wrap(
            &escape_control_characters(text),
            self.width.min(MAX_LINE_WIDTH).saturating_sub(beside),
        )
    }

    /// A label, and a text beside it in as many lines as it takes.
    pub fn paragraph(&self, out: &mut String, label: &str, text: &str) {
        for (index, line) in self.wrap(text, INDENT).iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let label = self.paint(DIM, &format!("{label:<width$}", width = INDENT - 5));
            push_line(out, format_args!("    {label} {line}"));
        }
    }

    /// Whichever of the two can be shown.
    pub fn choose_glyphs<'a>(&self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.glyphs == Glyphs::Unicode { unicode } else { ascii }
    }
}

/// Text without anything that controls a terminal, but for white space.
fn escape_control_characters(text: &str) -> Cow<'_, str> {
    let controls = |letter: char| letter.is_control() && !letter.is_whitespace();
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if controls(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Adds a line.
pub fn push_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// Words laid out in lines of at most `width` characters, as far as words allow.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
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

/// A span of time in its two largest units.
pub fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let Some(first) = units.iter().position(|(unit, _)| seconds >= *unit) else {
        return "0 s".to_owned();
    };
    let (unit, name) = units[first];
    let mut text = vec![format!("{} {name}", seconds / unit)];
    if let Some((below, name)) = units.get(first + 1) {
        let rest = seconds % unit / below;
        if rest > 0 {
            text.push(format!(" {rest} {name}"));
        }
    }
    text.concat()
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

    #[test]
    fn spans_are_told_in_few_digits() {
        for (seconds, told) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (8 * 86_400 + 60, "8 d")]
        {
            assert_eq!(format_span(Duration::from_secs(seconds)), told);
        }
    }
}
