//! Numbers as they nearly always are: some digits, perhaps with a point among them. Answers consist of little else, so
//! these are read eight digits at a time; whatever is written otherwise is left to the standard library.

use crate::Time;

/// More digits than that may need more than 64 bits.
const MOST_DIGITS: usize = 19;
/// Up to here every whole number is a float.
const EXACT: u64 = 1 << 53;
/// The powers of ten that are floats. What is exact divided by what is exact is rounded once, and so right.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Digits with or without a point, at the beginning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    /// All of them as one number.
    digits: u64,
    /// How many come after the point.
    fraction: usize,
    /// Bytes, the point included.
    pub(super) length: usize,
}

impl Decimal {
    /// The one that a text begins with. `None` if it begins with none, or with one that 64 bits may not hold.
    #[inline]
    pub(super) fn at_the_beginning_of(text: &[u8]) -> Option<Self> {
        let (digits, whole) = append_digits(0, text);
        if whole == 0 || whole > MOST_DIGITS {
            return None;
        }
        if text.get(whole) != Some(&b'.') {
            return Some(Self { digits, fraction: 0, length: whole });
        }
        let (digits, fraction) = append_digits(digits, &text[whole + 1..]);
        let sound = fraction > 0 && whole + fraction <= MOST_DIGITS;
        sound.then_some(Self { digits, fraction, length: whole + 1 + fraction })
    }

    /// Its value, where that takes no more than one division.
    #[inline]
    pub(super) fn value(self) -> Option<f64> {
        let ten = TENS.get(self.fraction)?;
        (self.digits <= EXACT).then(|| self.digits as f64 / ten)
    }

    /// The time that lies so many seconds after the epoch, where nanoseconds tell it exactly.
    #[inline]
    pub(super) fn seconds(self) -> Option<Time> {
        let unit = 10_i64.pow(9_u32.checked_sub(u32::try_from(self.fraction).ok()?)?);
        let nanos = i64::try_from(self.digits).ok()?.checked_mul(unit)?;
        Some(Time::from_nanos(nanos))
    }
}

/// Appends the digits that a text begins with to a number, and says how many there were. Of too many the number is wrong.
#[inline]
fn append_digits(mut number: u64, text: &[u8]) -> (u64, usize) {
    let mut rest = text;
    while let Some((eight, after)) = rest.split_first_chunk() {
        let Some(eight) = eight_digits(*eight) else { break };
        number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        rest = after;
    }
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = after;
    }
    (number, text.len() - rest.len())
}

/// The number that eight digits make: neighbours are joined in pairs, pairs in fours, and these in one.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    // The first digit is in the lowest byte.
    let digits = u64::from_le_bytes(text) ^ u64::from_le_bytes([b'0'; 8]);
    let above_nine = digits | digits.wrapping_add(u64::from_le_bytes([6; 8]));
    if above_nine & u64::from_le_bytes([0xf0; 8]) != 0 {
        return None;
    }
    let join = |number: u64, width: u32, lows: u64| {
        (number & lows) * 10_u64.pow(width / 8) + (number >> width & lows)
    };
    let pairs = join(digits, 8, 0x00ff_00ff_00ff_00ff);
    let fours = join(pairs, 16, 0x0000_ffff_0000_ffff);
    Some(join(fours, 32, 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<(Option<f64>, usize)> {
        Decimal::at_the_beginning_of(text.as_bytes()).map(|it| (it.value(), it.length))
    }

    #[test]
    fn decimals_end_where_something_else_begins() {
        assert_eq!(read("0\""), Some((Some(0.0), 1)));
        assert_eq!(read("17.25]"), Some((Some(17.25), 5)));
        assert_eq!(read("1e+06"), Some((Some(1.0), 1)), "the caller sees that something follows");
        assert_eq!(read("9007199254740992"), Some((Some(9_007_199_254_740_992.0), 16)));
        assert_eq!(read("9007199254740993"), Some((None, 16)));
        for none in ["", ".", ".5", "1.", "-1", "NaN", "+Inf", "12345678901234567890"] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(read("1.2345678901234567890"), None);
    }

    #[test]
    fn only_digits_are_digits() {
        for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
            for place in 0..8 {
                let mut text = *b"90817263";
                text[place] = other;
                assert_eq!(eight_digits(text), None, "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_decimal_is_what_the_standard_library_reads(
            whole in 0..10_u64.pow(9),
            fraction in "[0-9]{0,12}",
            after in "[\",\\]e ]?",
        ) {
            let point = if fraction.is_empty() { "" } else { "." };
            let number = format!("{whole}{point}{fraction}");
            let read = Decimal::at_the_beginning_of(format!("{number}{after}").as_bytes());
            prop_assume!(whole.to_string().len() + fraction.len() <= MOST_DIGITS);
            let read = read.expect("it is one");
            prop_assert_eq!(read.length, number.len());
            if let Some(value) = read.value() {
                let expected: f64 = number.parse().expect("a number");
                prop_assert_eq!(value.to_bits(), expected.to_bits());
            }
        }

        #[test]
        fn any_float_is_what_the_standard_library_reads(value in 0.0..1e18_f64) {
            let text = value.to_string();
            if let Some((Some(read), length)) = read(&text) {
                prop_assert_eq!((read.to_bits(), length), (value.to_bits(), text.len()));
            }
        }
    }
}
