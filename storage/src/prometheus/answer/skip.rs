//! Passes over a value of JSON of any size without holding it.

use super::cursor::{Cursor, Stop, Take};

/// Deeper than any answer; one bit for each bracket that is open.
const DEEPEST: u32 = u128::BITS;

/// How far a value has been passed over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skip {
    depth: u32,
    /// Whether the brackets that are open are braces; the innermost is the lowest bit.
    braces: u128,
    inside: Inside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Text,
    Escape,
    /// A number or a word that is the whole value.
    Word,
}

impl Skip {
    /// Goes on to the end of the value. What has been seen is done with, whether the end was among it or not.
    pub(super) fn pass(&mut self, cursor: &mut Cursor<'_>) -> Take<()> {
        let rest = cursor.rest();
        for (at, &byte) in rest.iter().enumerate() {
            let ends = self.step(byte).inspect_err(|_| cursor.pass(at))?;
            if let Some(taken) = ends {
                cursor.pass(at + usize::from(taken));
                cursor.settle();
                return Ok(());
            }
        }
        cursor.pass(rest.len());
        cursor.settle();
        Err(Stop::More)
    }

    /// Whether the value ends here, and whether this byte is its last or the first after it.
    #[inline]
    fn step(&mut self, byte: u8) -> Take<Option<bool>> {
        match (self.inside, byte) {
            (Inside::Text, b'"') => {
                self.inside = Inside::Nothing;
                return Ok((self.depth == 0).then_some(true));
            }
            (Inside::Text, b'\\') => self.inside = Inside::Escape,
            (Inside::Text | Inside::Escape, _) | (Inside::Nothing, b'"') => {
                self.inside = Inside::Text;
            }
            (Inside::Word, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') => {
                return Ok(Some(false));
            }
            (Inside::Nothing, b'{' | b'[') => {
                if self.depth == DEEPEST {
                    return Err(Stop::Expected("fewer brackets"));
                }
                self.depth += 1;
                self.braces = self.braces << 1 | u128::from(byte == b'{');
            }
            (Inside::Nothing, b'}' | b']') if self.depth > 0 => {
                if (self.braces & 1 == 1) != (byte == b'}') {
                    return Err(Stop::Expected("the other bracket"));
                }
                self.depth -= 1;
                self.braces >>= 1;
                return Ok((self.depth == 0).then_some(true));
            }
            (Inside::Nothing, b' ' | b'\n' | b'\r' | b'\t') => {}
            (_, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => {
                if self.depth == 0 {
                    self.inside = Inside::Word;
                }
            }
            (Inside::Nothing, b',' | b':') if self.depth > 0 => {}
            _ => return Err(Stop::Expected("a value")),
        }
        Ok(None)
    }
}
