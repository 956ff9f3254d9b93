//! Names and messages from clusters as text that cannot control what shows it.

use plimsoll_charts::svg::is_invisible;

use crate::report::style::{Glyphs, escape_to_one_line};

/// The longest text in characters. Labels of series may have any length.
const MAX_CHARACTERS: usize = 1000;
/// The longest name in Kubernetes.
const MAX_NAME: usize = 253;

/// Formats text as one line without control characters and without characters that reorder or hide text. Longer text is
/// cut.
pub(in crate::report) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MAX_CHARACTERS));
    for (index, c) in text.chars().enumerate() {
        if index == MAX_CHARACTERS {
            line.push_str("...");
            break;
        }
        if is_invisible(c) {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    escape_to_one_line(&line)
}

/// Formats text like [`one_line`], and escapes what the character set lacks.
pub(in crate::report) fn in_glyphs(text: &str, glyphs: Glyphs) -> String {
    let line = one_line(text);
    if glyphs == Glyphs::Unicode || line.is_ascii() {
        return line;
    }
    let mut ascii = String::with_capacity(line.len() * 2);
    for c in line.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            ascii.extend(c.escape_unicode());
        }
    }
    ascii
}

/// Whether a name can be an argument of a shell and of this program without quotes.
pub(in crate::report) fn is_plain_argument(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.len() <= MAX_NAME
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_line_and_visible() {
        for (text, expected) in [
            ("web", "web"),
            ("a\nb\x1b[31m", "a\\nb\\u{1b}[31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("größe", "größe"),
        ] {
            assert_eq!(one_line(text), expected);
        }
        assert_eq!(in_glyphs("größe", Glyphs::Ascii), "gr\\u{f6}\\u{df}e");
        assert_eq!(in_glyphs("größe", Glyphs::Unicode), "größe");
        assert_eq!(one_line(&"x".repeat(5000)).len(), MAX_CHARACTERS + 3);
    }

    #[test]
    fn only_plain_names_become_arguments() {
        assert!(is_plain_argument("checkout-2.v1_x"));
        for bad in ["", "-n", "a b", "$(id)", "a;b", "a/b", "größe"] {
            assert!(!is_plain_argument(bad), "{bad:?}");
        }
    }
}
