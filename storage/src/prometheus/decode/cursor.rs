//! Parses JSON tokens from bytes that may be incomplete: each token is consumed completely or not at all.

use std::iter;

use plimsoll_core::types::Time;

/// Maximum nesting depth of a value that is skipped.
const DEEPEST: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseError {
    /// Valid so far, but incomplete.
    NeedMoreBytes,
    /// Something else was expected.
    Expected(&'static str),
}

pub(super) type Parse<T> = Result<T, ParseError>;

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// Everything before this position is consumed.
    pub(super) consumed: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, consumed: 0 }
    }

    /// Marks everything before the current position as consumed.
    #[inline]
    pub(super) fn mark_consumed(&mut self) {
        self.consumed = self.at;
    }

    pub(super) fn remaining(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next byte that is not whitespace, without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Parse<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(ParseError::NeedMoreBytes)
    }

    #[inline]
    pub(super) fn expect_byte(&mut self, byte: u8, expected: &'static str) -> Parse<()> {
        if self.peek()? != byte {
            return Err(ParseError::Expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes this byte if it is the next one.
    pub(super) fn take_if(&mut self, byte: u8) -> Parse<bool> {
        let matches = self.peek()? == byte;
        self.at += usize::from(matches);
        Ok(matches)
    }

    /// Moves to the next element of a list: past the comma, unless it is the first. `false` at the end of the list.
    #[inline]
    pub(super) fn next_element(&mut self, first: bool, expected: &'static str) -> Parse<bool> {
        if self.take_if(b']')? {
            return Ok(false);
        }
        if !first {
            self.expect_byte(b',', expected)?;
        }
        Ok(true)
    }

    /// Consumes this keyword, such as `null`.
    pub(super) fn expect_word(&mut self, word: &'static str) -> Parse<()> {
        self.peek()?;
        let rest = self.remaining();
        let available = rest.len().min(word.len());
        if rest[..available] != word.as_bytes()[..available] {
            return Err(ParseError::Expected(word));
        }
        if available < word.len() {
            return Err(ParseError::NeedMoreBytes);
        }
        self.at += available;
        Ok(())
    }

    /// Consumes a string and returns the content between its quotes, with escapes.
    pub(super) fn string(&mut self, expected: &'static str) -> Parse<&'a [u8]> {
        self.expect_byte(b'"', expected)?;
        let start = self.at;
        let mut at = start;
        loop {
            match self.bytes.get(at) {
                None => return Err(ParseError::NeedMoreBytes),
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(&self.bytes[start..at])
    }

    /// Skips a value token by token, so that it may be of any size. If it is incomplete, the brackets that are open are kept
    /// for the next call.
    pub(super) fn skip_value(&mut self, open_brackets: &mut Vec<u8>) -> Parse<()> {
        loop {
            match (self.peek()?, open_brackets.last()) {
                (b'"', _) => {
                    self.string("a string")?;
                }
                (bracket @ (b'{' | b'['), _) => {
                    if open_brackets.len() == DEEPEST {
                        return Err(ParseError::Expected("fewer brackets"));
                    }
                    open_brackets.push(bracket);
                    self.at += 1;
                }
                (b'}', Some(b'{')) | (b']', Some(b'[')) => {
                    open_brackets.pop();
                    self.at += 1;
                }
                (b'}' | b']', Some(_)) => {
                    return Err(ParseError::Expected("the matching bracket"));
                }
                (b',' | b':', Some(_)) => self.at += 1,
                (byte, _) if is_in_word(byte) => {
                    let length = self.remaining().iter().position(|byte| !is_in_word(*byte));
                    self.at += length.ok_or(ParseError::NeedMoreBytes)?;
                }
                _ => return Err(ParseError::Expected("a value")),
            }
            self.mark_consumed();
            if open_brackets.is_empty() {
                return Ok(());
            }
        }
    }

    /// Consumes `[TIME,"VALUE"]`.
    #[inline]
    pub(super) fn sample(&mut self) -> Parse<(Time, f64)> {
        if let Some(sample) = self.usual_sample() {
            return Ok(sample);
        }
        self.expect_byte(b'[', "a point")?;
        let time = self.time()?;
        self.expect_byte(b',', "a comma")?;
        let value = self.value()?;
        self.expect_byte(b']', "the end of a point")?;
        Ok((time, value))
    }

    /// Fast path for the usual form of a sample: no whitespace, and a time in whole seconds since 2001.
    #[inline]
    fn usual_sample(&mut self) -> Option<(Time, f64)> {
        let (start, rest) = self.remaining().split_first_chunk::<13>()?;
        let [b'[', seconds @ .., b',', b'"'] = start else { return None };
        if !seconds.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let seconds = seconds.iter().fold(0, |number, digit| number * 10 + i64::from(digit & 0xf));
        let (value, length) = fast_float2::parse_partial(rest).ok()?;
        let [b'"', b']', ..] = rest[length..] else { return None };
        self.at += start.len() + length + 2;
        Some((Time::from_secs(seconds), value))
    }

    /// Consumes a time in seconds.
    pub(super) fn time(&mut self) -> Parse<Time> {
        self.peek()?;
        let rest = self.remaining();
        let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().position(|byte| !digit(byte)).ok_or(ParseError::NeedMoreBytes)?;
        let time = seconds(&rest[..length]).ok_or(ParseError::Expected("a time"))?;
        self.at += length;
        Ok(time)
    }

    fn value(&mut self) -> Parse<f64> {
        self.expect_byte(b'"', "a quoted value")?;
        let rest = self.remaining();
        let length = rest.iter().position(|&byte| byte == b'"').ok_or(ParseError::NeedMoreBytes)?;
        let value = number(&rest[..length]).ok_or(ParseError::Expected("a value"))?;
        self.at += length + 1;
        Ok(value)
    }
}

/// Whether a byte may be part of a number or a keyword.
fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// A value as Prometheus prints it: `0.5`, `1e+06`, `NaN`, `+Inf`, `-Inf`.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    fast_float2::parse(text).ok()
}

/// Seconds since the epoch, with a fraction or without, to the nanosecond.
fn seconds(text: &[u8]) -> Option<Time> {
    const NANOS: i64 = 1_000_000_000;
    let mut whole = 0_i64;
    let mut at = 0;
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        whole = whole.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
        at += 1;
    }
    if at > 0 && at == text.len() {
        return Some(Time::from_nanos(whole.saturating_mul(NANOS)));
    }
    if at > 0 && text[at] == b'.' && text.len() > at + 1 {
        let digits = &text[at + 1..];
        if digits.iter().all(u8::is_ascii_digit) {
            let nine = digits.iter().chain(iter::repeat(&b'0')).take(9);
            let nanos = nine.fold(0, |nanos, digit| nanos * 10 + i64::from(digit - b'0'));
            return Some(Time::from_nanos(whole.saturating_mul(NANOS).saturating_add(nanos)));
        }
    }
    // Before 1970, or with an exponent: rare, so slow is fine.
    let seconds = number(text).filter(|seconds| seconds.is_finite())?;
    Some(Time::from_nanos((seconds * NANOS as f64) as i64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_parsed_to_the_nanosecond() {
        for (text, nanos) in [
            ("0", 0),
            ("1700000000", 1_700_000_000_000_000_000),
            ("1700000000.5", 1_700_000_000_500_000_000),
            ("1700000000.123", 1_700_000_000_123_000_000),
            ("1700000000.1234567891", 1_700_000_000_123_456_789),
            ("1.7e9", 1_700_000_000_000_000_000),
            ("-1.5", -1_500_000_000),
        ] {
            assert_eq!(seconds(text.as_bytes()), Some(Time::from_nanos(nanos)), "{text}");
        }
        for text in ["", ".", "1.", "-", "1-2", "e", "99999999999999999999"] {
            let parsed = seconds(text.as_bytes());
            assert!(parsed.is_none() || text == "1.", "{text:?}: {parsed:?}");
        }
    }

    fn assert_parsed_as_by_std(text: &str) {
        let bits = |value: Option<f64>| value.map(f64::to_bits);
        assert_eq!(bits(number(text.as_bytes())), bits(text.parse().ok()), "{text}");
        let sample = format!("[1700000000,\"{text}\"]");
        let parsed = Cursor::new(sample.as_bytes()).sample().ok();
        let expected = text.parse().ok().map(|value| (Time::from_secs(1_700_000_000), value));
        let bits = |sample: Option<(Time, f64)>| sample.map(|(at, value)| (at, value.to_bits()));
        assert_eq!(bits(parsed), bits(expected), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_as_by_the_standard_library(text in "[0-9+.eEinfatyNI-]{0,12}") {
            assert_parsed_as_by_std(&text);
        }

        #[test]
        fn any_decimal_is_parsed_as_by_the_standard_library(
            text in "-?[0-9]{1,20}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?",
        ) {
            assert_parsed_as_by_std(&text);
        }

        #[test]
        fn any_float_is_parsed_as_it_was_printed(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            assert_parsed_as_by_std(&value.to_string());
            assert_parsed_as_by_std(&format!("{value:e}"));
        }

        #[test]
        fn numbers_of_more_than_53_bits_are_rounded_as_by_the_standard_library(
            number in 1 << 53..=u64::MAX,
            power in 0..20,
            distance in -2..=2_i64,
        ) {
            // Any number, and numbers around the midpoint of two floats.
            let float = number as f64;
            let gap = f64::from_bits(float.to_bits() + 1) - float;
            let middle = (float as u64).saturating_add(gap as u64 / 2).saturating_add_signed(distance);
            for number in [number, middle] {
                assert_parsed_as_by_std(&format!("{number}e-{power}"));
            }
        }
    }
}
