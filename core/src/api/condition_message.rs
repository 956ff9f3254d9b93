//! Messages of conditions and events, which are stored in etcd and sent to every watcher of an object.

use std::borrow::Cow;

/// The longest message, in bytes. User input that is quoted may have up to 256 KiB.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// Truncates a text to `max_bytes`, at a character boundary, and appends its original length.
pub fn truncate(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let note = format!("… ({} bytes)", text.len());
    let end = text.floor_char_boundary(max_bytes.saturating_sub(note.len()));
    Cow::Owned(format!("{}{note}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_at_a_character_with_its_length() {
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
