//! Skips a JSON value of any size without holding it in memory.

use super::cursor::{Cursor, Parse, ParseError};

/// Maximum nesting depth; one bit per open bracket.
const DEEPEST: u32 = u128::BITS;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueSkipper {
    depth: u32,
    /// Which open brackets are braces; the innermost is the lowest bit.
    braces: u128,
    inside: SkipContext,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SkipContext {
    #[default]
    Nothing,
    Text,
    Escape,
    /// A number or a keyword that is the whole value.
    Word,
}

impl ValueSkipper {
    /// Skips to the end of the value. Consumes all bytes seen, even if the value is incomplete.
    pub(super) fn skip_value(&mut self, cursor: &mut Cursor<'_>) -> Parse<()> {
        let rest = cursor.remaining();
        for (at, &byte) in rest.iter().enumerate() {
            let end = self.step(byte).inspect_err(|_| cursor.advance(at))?;
            if let Some(includes_byte) = end {
                cursor.advance(at + usize::from(includes_byte));
                cursor.mark_consumed();
                return Ok(());
            }
        }
        cursor.advance(rest.len());
        cursor.mark_consumed();
        Err(ParseError::NeedMoreBytes)
    }

    /// Returns `Some` if the value ends here, with whether this byte is part of it.
    #[inline]
    fn step(&mut self, byte: u8) -> Parse<Option<bool>> {
        match (self.inside, byte) {
            (SkipContext::Text, b'"') => {
                self.inside = SkipContext::Nothing;
                return Ok((self.depth == 0).then_some(true));
            }
            (SkipContext::Text, b'\\') => self.inside = SkipContext::Escape,
            (SkipContext::Text | SkipContext::Escape, _) | (SkipContext::Nothing, b'"') => {
                self.inside = SkipContext::Text;
            }
            (SkipContext::Word, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') => {
                return Ok(Some(false));
            }
            (SkipContext::Nothing, b'{' | b'[') => {
                if self.depth == DEEPEST {
                    return Err(ParseError::Expected("fewer brackets"));
                }
                self.depth += 1;
                self.braces = self.braces << 1 | u128::from(byte == b'{');
            }
            (SkipContext::Nothing, b'}' | b']') if self.depth > 0 => {
                if (self.braces & 1 == 1) != (byte == b'}') {
                    return Err(ParseError::Expected("the matching bracket"));
                }
                self.depth -= 1;
                self.braces >>= 1;
                return Ok((self.depth == 0).then_some(true));
            }
            (SkipContext::Nothing, b' ' | b'\n' | b'\r' | b'\t') => {}
            (_, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => {
                if self.depth == 0 {
                    self.inside = SkipContext::Word;
                }
            }
            (SkipContext::Nothing, b',' | b':') if self.depth > 0 => {}
            _ => return Err(ParseError::Expected("a value")),
        }
        Ok(None)
    }
}
