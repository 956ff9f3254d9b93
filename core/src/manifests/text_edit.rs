//! Replacements of bytes in a text.

use std::ops::Range;

/// A replacement of a range of bytes; the range is empty for an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEdit {
    pub range: Range<usize>,
    pub text: String,
}

impl TextEdit {
    pub fn insert(at: usize, text: String) -> Self {
        Self { range: at..at, text }
    }

    pub fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }
}

/// Applies edits of one text; `None` if two of them overlap.
pub(super) fn apply(text: &str, mut edits: Vec<TextEdit>) -> Option<String> {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut result = String::with_capacity(text.len() + 64 * edits.len());
    let mut done = 0;
    for edit in edits {
        result.push_str(text.get(done..edit.range.start)?);
        result.push_str(&edit.text);
        done = edit.range.end;
    }
    result.push_str(text.get(done..)?);
    Some(result)
}

/// Where the line of a position starts.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line of a position ends: before its line feed, and before the carriage return of that.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
    if end > at && text.as_bytes()[end - 1] == b'\r' && end < text.len() { end - 1 } else { end }
}

/// The line break of the line of a position; that of the first line of the text if it has none.
pub(super) fn newline(text: &str, at: usize) -> &'static str {
    let end = line_end(text, at);
    let ending = if end == text.len() { &text[line_end(text, 0)..] } else { &text[end..] };
    if ending.starts_with("\r\n") { "\r\n" } else { "\n" }
}

/// Whether there are only blanks, or a comment after blanks, up to the end of the line.
pub(super) fn ends_line(text: &str, at: usize) -> bool {
    let rest = &text[at..line_end(text, at)];
    let content = rest.trim_start_matches([' ', '\t']);
    content.is_empty() || (content.starts_with('#') && content.len() < rest.len())
}

/// The indentation of a position with only spaces before it in its line. A dash, which starts an item of a
/// sequence, counts as a space.
pub(super) fn indentation(text: &str, at: usize) -> Option<usize> {
    let before = &text[line_start(text, at)..at];
    before.bytes().all(|byte| byte == b' ' || byte == b'-').then_some(before.len())
}

/// Whether only spaces are before a position in its line.
pub(super) fn starts_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].bytes().all(|byte| byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_in_the_order_of_the_text() {
        let edits = vec![
            TextEdit { range: 4..5, text: "E".into() },
            TextEdit::insert(2, "+".into()),
            TextEdit::remove(2..3),
        ];
        assert_eq!(apply("abcdef", edits).as_deref(), Some("ab+dEf"));
        let overlapping = vec![TextEdit::remove(1..3), TextEdit::remove(2..4)];
        assert_eq!(apply("abcdef", overlapping), None);
        assert_eq!(apply("é", vec![TextEdit::remove(1..2)]), None);
    }

    #[test]
    fn lines_are_found_with_either_line_break() {
        let text = "a: 1\r\n  - b: 2 # c\r\nend";
        assert_eq!(line_end(text, 0), 4);
        assert_eq!(line_end(text, 4), 4);
        assert_eq!(line_start(text, 12), 6);
        assert_eq!(newline(text, 0), "\r\n");
        assert_eq!(newline(text, text.len()), "\r\n");
        assert_eq!(newline("a", 1), "\n");
        assert_eq!(indentation(text, 10), Some(4));
        assert!(ends_line(text, 14) && !ends_line(text, 13));
        assert!(!starts_line(text, 10));
        assert!(!ends_line("a#b", 1));
        assert_eq!(line_end("x\r", 0), 2);
    }
}
