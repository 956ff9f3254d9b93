//! Texts of conditions and events, which are stored in etcd and sent to all who watch an object.

use std::borrow::Cow;

/// Bytes of a message. What a user wrote may be a quarter of a mebibyte.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// Shortens a text to so many bytes, at a character, and says how long it was.
pub fn truncate(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let note = format!("… ({} bytes)", text.len());
    let end = text.floor_char_boundary(longest.saturating_sub(note.len()));
    Cow::Owned(format!("{}{note}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_and_says_how_long_it_was() {
        assert_eq!(truncate("short", 5), "short");
        assert_eq!(truncate(&"x".repeat(100), 20), "xxxxx… (100 bytes)");
        for longest in 0..100 {
            let text = "ä€𝄞".repeat(20);
            let short = truncate(&text, longest);
            assert!(short.len() <= longest.max("… (180 bytes)".len()), "{short}");
            assert!(short.ends_with("… (180 bytes)"), "{short}");
        }
    }
}
