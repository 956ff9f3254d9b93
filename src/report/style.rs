//! Text output for the terminal: colours, character set and line wrapping.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

/// The character set of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Unicode blocks, arrows and lines.
    Unicode,
    /// 7-bit ASCII only.
    Ascii,
}

/// The style of text output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// Width in columns.
    pub width: usize,
    /// Whether to use ANSI colours.
    pub colour: bool,
    /// The character set.
    pub glyphs: Glyphs,
    /// The command that starts the program, for hints.
    pub command: String,
}

/// No colour.
pub const PLAIN: &str = "";
/// ANSI code for titles and names.
pub const BOLD: &str = "1";
/// ANSI code for secondary text.
pub const DIM: &str = "2";
/// ANSI code for success.
pub const GREEN: &str = "32";
/// ANSI code for warnings.
pub const YELLOW: &str = "33";
/// ANSI code for errors.
pub const RED: &str = "31";

/// The maximum line width, even on wider terminals: longer lines are hard to read.
const MAX_LINE_WIDTH: usize = 100;
/// The width of labels.
const LABEL_WIDTH: usize = 11;

impl Style {
    /// Returns the text in a colour, or unchanged if colours are off.
    pub fn paint(&self, code: &str, text: &str) -> String {
        let visible = self.colour && code != PLAIN && !text.trim().is_empty();
        if visible { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes a blank line and a title, followed by a note.
    pub fn heading(&self, out: &mut String, title: &str, note: &str) {
        let note =
            if note.is_empty() { String::new() } else { self.paint(DIM, &format!("  {note}")) };
        push_line(out, format_args!("\n{}{note}", self.paint(BOLD, title)));
    }

    /// Wraps text to lines that fit next to something that takes `reserved` columns. Control characters are escaped, because
    /// much of the text is user input that could otherwise move the cursor or worse.
    pub fn wrap(&self, text: &str, reserved: usize) -> Vec<String> {
        wrap(
            &escape_control_characters(text),
            self.width.min(MAX_LINE_WIDTH).saturating_sub(reserved),
        )
    }

    /// Writes wrapped text in a colour, indented.
    pub fn block(&self, out: &mut String, indent: usize, code: &str, text: &str) {
        for line in self.wrap(text, indent) {
            push_line(out, format_args!("{:indent$}{}", "", self.paint(code, &line)));
        }
    }

    /// Writes a mark of `width` columns, followed by text that is wrapped and indented.
    pub fn marked(&self, out: &mut String, mark: &str, width: usize, text: &str) {
        for (index, line) in self.wrap(text, width + 3).iter().enumerate() {
            if index == 0 {
                push_line(out, format_args!("  {mark} {line}"));
            } else {
                push_line(out, format_args!("  {:width$} {line}", ""));
            }
        }
    }

    /// Writes a label, followed by text that is wrapped and indented.
    pub fn paragraph(&self, out: &mut String, label: &str, text: &str) {
        let label = self.paint(DIM, &format!("{label:<LABEL_WIDTH$}"));
        self.marked(out, &format!("  {label}"), LABEL_WIDTH + 2, text);
    }

    /// Returns the variant that the character set supports.
    pub fn choose_glyphs<'a>(&self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.glyphs == Glyphs::Unicode { unicode } else { ascii }
    }
}

/// Escapes all control characters except white space.
fn escape_control_characters(text: &str) -> Cow<'_, str> {
    let controls = |character: char| character.is_control() && !character.is_whitespace();
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if controls(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Appends a line.
pub fn push_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{line}");
}

/// Wraps text to lines of at most `width` characters. Words are never split, so a long word may exceed it.
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

/// Formats a duration in its two largest units, such as `1 h 1 min`.
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
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert!(wrap("  ", 3).is_empty());
    }

    #[test]
    fn durations_are_printed_with_few_digits() {
        for (seconds, expected) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (8 * 86_400 + 60, "8 d")]
        {
            assert_eq!(format_span(Duration::from_secs(seconds)), expected);
        }
    }
}
