//! Text output for the terminal: colours, character set and line wrapping.

use std::{
    fmt::{Display, Write as _},
    ops::Deref,
    time::Duration,
};

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
/// Text beside something has at least this width, even if lines get longer than the terminal.
const MIN_TEXT_WIDTH: usize = 20;
const LABEL_WIDTH: usize = 11;

impl Style {
    /// Returns the text in a colour, or unchanged if colours are off.
    pub fn paint(&self, code: &str, text: &str) -> String {
        let visible = self.colour && code != PLAIN && !text.trim().is_empty();
        if visible { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Wraps text to lines that fit next to something that takes `reserved` columns. Control characters are escaped, because
    /// much of the text is user input that could otherwise move the cursor or worse.
    pub fn wrap(&self, text: &str, reserved: usize) -> Vec<String> {
        let words: Vec<String> = text.split_whitespace().map(escape_to_one_line).collect();
        let width = self.width.min(MAX_LINE_WIDTH).saturating_sub(reserved);
        wrap(&words.join(" "), width.max(MIN_TEXT_WIDTH))
    }

    /// Returns the variant that the character set supports.
    pub fn choose_glyphs<'a>(&self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.glyphs == Glyphs::Unicode { unicode } else { ascii }
    }
}

/// Text output, line by line.
pub struct Page<'a> {
    style: &'a Style,
    text: String,
}

impl Deref for Page<'_> {
    type Target = Style;

    fn deref(&self) -> &Style {
        self.style
    }
}

impl<'a> Page<'a> {
    pub fn new(style: &'a Style) -> Self {
        Self { style, text: String::new() }
    }

    pub fn finish(self) -> String {
        self.text
    }

    pub fn line(&mut self, line: impl Display) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Writes a blank line and a title, followed by a note.
    pub fn heading(&mut self, title: &str, note: &str) {
        let note =
            if note.is_empty() { String::new() } else { self.paint(DIM, &format!("  {note}")) };
        self.line(format_args!("\n{}{note}", self.paint(BOLD, title)));
    }

    /// Writes wrapped text in a colour, indented.
    pub fn block(&mut self, indent: usize, code: &str, text: &str) {
        for line in self.wrap(text, indent) {
            self.line(format_args!("{:indent$}{}", "", self.paint(code, &line)));
        }
    }

    /// Writes a mark of `width` columns, followed by text that is wrapped and indented.
    pub fn marked(&mut self, mark: &str, width: usize, text: &str) {
        for (index, line) in self.wrap(text, width + 3).iter().enumerate() {
            if index == 0 {
                self.line(format_args!("  {mark} {line}"));
            } else {
                self.line(format_args!("  {:width$} {line}", ""));
            }
        }
    }

    /// Writes a label, followed by text that is wrapped and indented.
    pub fn paragraph(&mut self, label: &str, text: &str) {
        let label = self.paint(DIM, &format!("{label:<LABEL_WIDTH$}"));
        self.marked(&format!("  {label}"), LABEL_WIDTH + 2, text);
    }
}

/// Escapes control characters, so that the text is a single line and cannot control a terminal.
pub fn escape_to_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
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

/// Formats a message as a sentence with a capital letter and a full stop.
pub fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
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
pub(crate) mod tests {
    use super::*;

    /// Checks that output is pure ASCII and that colour changes nothing else, and returns it without colour.
    pub(crate) fn plain_output(render: impl Fn(&Style) -> String) -> String {
        let style = |colour| Style {
            width: 80,
            colour,
            glyphs: Glyphs::Ascii,
            command: "plimsoll".to_owned(),
        };
        let (plain, painted) = (render(&style(false)), render(&style(true)));
        assert!(plain.is_ascii() && !plain.contains('\x1b'), "{plain}");
        assert_ne!(painted, plain);
        let (first, rest) = painted.split_once('\x1b').expect("a colour");
        let rest = rest.split('\x1b').map(|part| part.split_once('m').map_or("", |rest| rest.1));
        assert_eq!(first.to_owned() + &rest.collect::<String>(), plain);
        plain
    }

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
