//! The labels of the current series, in a buffer that is reused for the next one.

use super::cursor::{Cursor, Parse, ParseError};

/// The labels of a series, borrowed from the decoder.
#[derive(Clone, Copy)]
pub struct Labels<'a>(&'a LabelBuffer);

/// The positions of a name, its value, and the end of the value.
#[derive(Clone, Copy, Debug)]
struct Span {
    name: usize,
    value: usize,
    end: usize,
}

impl<'a> Labels<'a> {
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Iterates over names and values, in the order of the server.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let LabelBuffer { text, spans } = self.0;
        spans.iter().map(move |span| (&text[span.name..span.value], &text[span.value..span.end]))
    }
}

#[derive(Debug, Default)]
pub(super) struct LabelBuffer {
    text: String,
    spans: Vec<Span>,
}

impl LabelBuffer {
    pub(super) fn labels(&self) -> Labels<'_> {
        Labels(self)
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Decodes an object with string values.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Parse<()> {
        self.clear();
        cursor.expect_byte(b'{', "the labels of a series")?;
        if cursor.take_if(b'}')? {
            return Ok(());
        }
        loop {
            let name = self.text.len();
            unescape(cursor.string("the name of a label")?, &mut self.text)?;
            cursor.expect_byte(b':', "a colon")?;
            let value = self.text.len();
            unescape(cursor.string("the value of a label")?, &mut self.text)?;
            self.spans.push(Span { name, value, end: self.text.len() });
            if cursor.take_if(b'}')? {
                return Ok(());
            }
            cursor.expect_byte(b',', "a comma or the end of the labels")?;
        }
    }
}

/// Appends the unescaped content of a JSON string. Invalid Unicode becomes the replacement character, as in Go: one bad
/// label must not fail a response.
pub(super) fn unescape(raw: &[u8], into: &mut String) -> Parse<()> {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        into.push_str(&String::from_utf8_lossy(&rest[..at]));
        let (&escape, after) =
            rest[at + 1..].split_first().ok_or(ParseError::Expected("an escape"))?;
        rest = after;
        into.push(match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (unit, after) = unit(rest)?;
                rest = after;
                let low = rest.strip_prefix(b"\\u").map(self::unit).transpose()?;
                match (unit, low) {
                    (0xD800..=0xDBFF, Some((low @ 0xDC00..=0xDFFF, after))) => {
                        rest = after;
                        let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                    }
                    _ => char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            _ => return Err(ParseError::Expected("a JSON escape")),
        });
    }
    into.push_str(&String::from_utf8_lossy(rest));
    Ok(())
}

/// Four hexadecimal digits.
fn unit(text: &[u8]) -> Parse<(u32, &[u8])> {
    let invalid = ParseError::Expected("four hexadecimal digits");
    let (digits, after) = text.split_at_checked(4).ok_or(invalid)?;
    let mut unit = 0;
    for &digit in digits {
        unit = unit << 4 | char::from(digit).to_digit(16).ok_or(invalid)?;
    }
    Ok((unit, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_unescaped() {
        for (raw, text) in [
            ("", ""),
            ("web-0", "web-0"),
            (r#"a\"b\\c\/d\n\t\r\b\f"#, "a\"b\\c/d\n\t\r\u{8}\u{c}"),
            (r"\u00fc\u20AC", "ü€"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\ude00", "\u{fffd}"),
            ("schön", "schön"),
        ] {
            let mut read = String::new();
            assert_eq!(unescape(raw.as_bytes(), &mut read), Ok(()), "{raw}");
            assert_eq!(read, text);
        }
        let mut read = String::new();
        assert_eq!(unescape(b"a\xffb", &mut read), Ok(()));
        assert_eq!(read, "a\u{fffd}b");
        for raw in [r"\x", r"\u12", r"\u12G4", "\\"] {
            assert!(unescape(raw.as_bytes(), &mut read).is_err(), "{raw}");
        }
    }
}
