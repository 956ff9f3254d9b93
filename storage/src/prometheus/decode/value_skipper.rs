//! Passes over a value of JSON of any size without holding it.

use super::cursor::{Cursor, Parse, ParseError};

/// Deeper than any answer; one bit for each bracket that is open.
const DEEPEST: u32 = u128::BITS;

/// How far a value has been passed over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueSkipper {
    depth: u32,
    /// Whether the brackets that are open are braces; the innermost is the lowest bit.
    braces: u128,
    inside: SkipContext,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SkipContext {
    #[default]
    Nothing,
    Text,
    Escape,
    /// A number or a word that is the whole value.
    Word,
}

impl ValueSkipper {
    /// Goes on to the end of the value. What has been seen is done with, whether the end was among it or not.
    pub(super) fn skip_value(&mut self, cursor: &mut Cursor<'_>) -> Parse<()> {
        let rest = cursor.remaining();
        for (at, &byte) in rest.iter().enumerate() {
            let ends = self.step(byte).inspect_err(|_| cursor.advance(at))?;
            if let Some(taken) = ends {
                cursor.advance(at + usize::from(taken));
                cursor.mark_consumed();
                return Ok(());
            }
        }
        cursor.advance(rest.len());
        cursor.mark_consumed();
        Err(ParseError::NeedMoreBytes)
    }

    /// Whether the value ends here, and whether this byte is its last or the first after it.
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
                    return Err(ParseError::Expected("the other bracket"));
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
