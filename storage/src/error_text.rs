//! Texts of other programs and libraries as part of an error: one line, and not a whole HTML page.

use std::error::Error;

/// A text on one line without control characters, truncated to 300 characters.
pub fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if let Some((end, _)) = line.char_indices().nth(MAX_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// An error with its causes: the outer errors of a failed connection only say that a request failed.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
