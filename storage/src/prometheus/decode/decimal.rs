//! A fast parser for simple decimals, which most of a response consists of. It reads eight digits at a time, and leaves
//! all other forms to the standard library.

/// More digits may not fit into 64 bits.
const MOST_DIGITS: usize = 19;
/// Powers of ten: the factor for appending this many digits.
const TENS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Reciprocals that replace a division by a power of ten: the reciprocal, scaled by a power of two to between 2^63 and
/// 2^64 and rounded down, and the exponent of that power minus 63.
const INVERSES: [(u64, i64); MOST_DIGITS + 1] = {
    let mut inverses = [(1 << 63, 0); MOST_DIGITS + 1];
    let (mut power, mut ten) = (1, 10_u128);
    while power <= MOST_DIGITS {
        let width = u128::BITS - ten.leading_zeros();
        inverses[power] = (((1 << (63 + width)) / ten) as u64, width as i64);
        (power, ten) = (power + 1, ten * 10);
    }
    inverses
};

/// Parses the decimal at the start of a text, and returns its length. `None` if there is none, or one that needs the
/// standard library.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    // The integer part of values below one.
    let (number, whole) = if text.starts_with(b"0.") { (0, 1) } else { append_digits(0, text) };
    if whole == 0 || whole > MOST_DIGITS {
        return None;
    }
    if text.get(whole) != Some(&b'.') {
        return Some((divided(number, 0)?, whole));
    }
    let (number, fraction) = append_digits(number, &text[whole + 1..]);
    let is_valid = fraction > 0 && whole + fraction <= MOST_DIGITS;
    is_valid.then(|| divided(number, fraction))?.map(|value| (value, whole + 1 + fraction))
}

/// The float nearest to the number divided by this power of ten. `None` if it is so close to the midpoint of two floats
/// that the rounding of the reciprocal might matter, which happens for one in five hundred.
#[inline]
fn divided(number: u64, power: usize) -> Option<f64> {
    if number == 0 {
        return Some(0.0);
    }
    let (inverse, width) = *INVERSES.get(power)?;
    let shift = number.leading_zeros();
    // The first 64 bits are those of the quotient, or one less.
    let quotient = ((u128::from(number << shift) * u128::from(inverse)) >> 64) as u64;
    let below = 11 - quotient.leading_zeros();
    let (mantissa, rest, half) =
        (quotient >> below, quotient & ((1 << below) - 1), 1 << (below - 1));
    if rest == half || rest + 1 == half {
        return None;
    }
    let nearest = mantissa + u64::from(rest > half);
    // Between 10^-19 and 2^64, so neither overflow nor subnormal.
    let exponent = i64::from(below) + 1 - i64::from(shift) - width;
    Some(nearest as i64 as f64 * f64::from_bits(((1023 + exponent) as u64) << 52))
}

/// Appends the digits at the start of a text to a number, and returns their count. With too many digits the number is
/// wrong.
#[inline]
fn append_digits(mut number: u64, text: &[u8]) -> (u64, usize) {
    let mut rest = text;
    while let Some((eight, after)) = rest.split_first_chunk() {
        let (digits, count) = first_digits(*eight);
        number = number.wrapping_mul(TENS[count]).wrapping_add(digits);
        if count < 8 {
            return (number, text.len() - rest.len() + count);
        }
        rest = after;
    }
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = after;
    }
    (number, text.len() - rest.len())
}

/// The number formed by the leading digits, and their count. Combines digits to pairs, pairs to fours, and fours to one.
#[inline]
fn first_digits(text: [u8; 8]) -> (u64, usize) {
    // The first digit is in the lowest byte.
    let digits = u64::from_le_bytes(text) ^ u64::from_le_bytes([b'0'; 8]);
    // Bytes other than digits carry only into later ones, which do not count.
    let above_nine =
        (digits | digits.wrapping_add(u64::from_le_bytes([6; 8]))) & u64::from_le_bytes([0xf0; 8]);
    let count = above_nine.trailing_zeros() / 8;
    // Replace the trailing bytes by leading zeros.
    let digits = digits.checked_shl(64 - 8 * count).unwrap_or_default();
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff, count as usize)
}

/// Parses ten digits: times in whole seconds since 2001.
#[inline]
pub(super) fn ten_digits(text: [u8; 10]) -> Option<u64> {
    let [eight @ .., ten @ b'0'..=b'9', one @ b'0'..=b'9'] = text else { return None };
    let (number, 8) = first_digits(eight) else { return None };
    Some(number * 100 + u64::from(ten - b'0') * 10 + u64::from(one - b'0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_decimal_ends_at_the_first_other_character() {
        for (text, read) in [
            ("0\"", Some((0.0, 1))),
            ("0.", None),
            ("0.0\"", Some((0.0, 3))),
            ("17.25]", Some((17.25, 5))),
            ("1e+06", Some((1.0, 1))),
            ("9007199254740992", Some((9_007_199_254_740_992.0, 16))),
            // The midpoint of two floats.
            ("9007199254740993", None),
            ("12345678901234567890", None),
            ("1.2345678901234567890", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), read, "{text}");
        }
        for none in ["", ".", ".5", "1.", "-1", "NaN", "+Inf"] {
            assert_eq!(decimal(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn nearly_all_printed_floats_need_no_fallback_parser() {
        let values = (1..10_000_u32).map(|number| f64::from(number).sqrt() / 250.0);
        let unread = values.filter(|value| decimal(value.to_string().as_bytes()).is_none());
        assert!(unread.count() < 50);
    }

    #[test]
    fn only_ascii_digits_count_as_digits() {
        for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
            for place in 0..8 {
                let mut text = *b"90817263";
                text[place] = other;
                let digits = (90_817_263 / 10_u64.pow(8 - place as u32), place);
                assert_eq!(first_digits(text), digits, "{text:?}");
                let mut text = *b"1790817263";
                text[place + 2] = other;
                assert_eq!(ten_digits(text), None, "{text:?}");
            }
        }
        assert_eq!(first_digits(*b"90817263"), (90_817_263, 8));
        assert_eq!(ten_digits(*b"1790817263"), Some(1_790_817_263));
    }

    fn compare(read: Option<f64>, text: &str) {
        if let Some(read) = read {
            let expected: f64 = text.parse().expect("a number");
            assert_eq!(read.to_bits(), expected.to_bits(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_decimal_equals_what_the_standard_library_parses(
            whole in "[0-9]{1,12}",
            fraction in "[0-9]{0,19}",
            after in "[\",\\]e ]?",
        ) {
            let point = if fraction.is_empty() { "" } else { "." };
            let number = format!("{whole}{point}{fraction}");
            if let Some((value, length)) = decimal(format!("{number}{after}").as_bytes()) {
                prop_assert_eq!(length, number.len());
                compare(Some(value), &number);
            }
        }

        #[test]
        fn any_float_equals_what_the_standard_library_parses(value in 0.0..1e18_f64, power in 0..19) {
            let text = (value / 10_f64.powi(power)).to_string();
            if let Some((value, length)) = decimal(text.as_bytes()) {
                prop_assert_eq!(length, text.len());
                compare(Some(value), &text);
            }
        }

        #[test]
        fn numbers_beyond_53_bits_are_rounded_like_the_standard_library_does(
            number in 1 << 53..=u64::MAX,
            power in 0..=MOST_DIGITS,
            beside in -2..=2_i64,
        ) {
            // Any number, and numbers around the midpoint of two floats.
            let float = number as f64;
            let gap = f64::from_bits(float.to_bits() + 1) - float;
            let middle = (float as u64).saturating_add(gap as u64 / 2).saturating_add_signed(beside);
            for number in [number, middle] {
                compare(divided(number, power), &format!("{number}e-{power}"));
            }
        }
    }
}
