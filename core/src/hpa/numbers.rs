//! Overflow of numbers: as Go on amd64 with `--compat=upstream`, otherwise saturating.

use super::fixes::{Fix, Fixes};
use crate::types::Quantity;

/// Converts a float to replicas. On amd64 a value that does not fit becomes the smallest number.
pub fn to_replicas(value: f64, fixes: Fixes) -> i32 {
    let fits = value > f64::from(i32::MIN) - 1.0 && value < f64::from(i32::MAX) + 1.0;
    if fits || fixes.has(Fix::ProposalsSaturate) { value as i32 } else { i32::MIN }
}

/// Converts a float to milli-units, by the same rule.
pub fn to_milli(value: f64, fixes: Fixes) -> i64 {
    // 2^63 can be represented as a float, `i64::MAX` cannot.
    let fits = value >= i64::MIN as f64 && value < i64::MAX as f64;
    if fits || fixes.has(Fix::ProposalsSaturate) { value as i64 } else { i64::MIN }
}

/// A quantity in milli-units. If it does not fit, upstream uses the lowest 64 bits, or 0 for a quantity with one of the
/// large suffixes.
pub fn milli(quantity: Quantity, fixes: Fixes) -> i64 {
    let (nanos, unit) = (quantity.nanos(), 1_000_000);
    let exact = nanos / unit + (nanos % unit).signum();
    if i64::try_from(exact).is_ok() || fixes.has(Fix::ProposalsSaturate) {
        return quantity.milli_value();
    }
    let text = quantity.to_string();
    let (number, suffix) =
        text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let is_short = number.bytes().filter(u8::is_ascii_digit).count() <= 18;
    let is_scaled = matches!(suffix, "G" | "T" | "P" | "E") || suffix.starts_with('e');
    if is_short && is_scaled { 0 } else { exact as i64 }
}

/// A sum of milli-units.
pub fn sum(values: impl IntoIterator<Item = i64>, fixes: Fixes) -> i64 {
    let add =
        if fixes.has(Fix::ProposalsSaturate) { i64::saturating_add } else { i64::wrapping_add };
    values.into_iter().fold(0, add)
}

/// `100 * used / of`, in whole percent, rounded towards zero.
pub fn percent(used: i64, of: i64, fixes: Fixes) -> i32 {
    if fixes.has(Fix::ProposalsSaturate) {
        let percent = i128::from(used) * 100 / i128::from(of);
        return percent.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    }
    used.wrapping_mul(100).wrapping_div(of) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_saturate() {
        for (value, upstream, ours) in [
            (3.0, 3, 3),
            (2_147_483_647.0, i32::MAX, i32::MAX),
            (2_147_483_648.0, i32::MIN, i32::MAX),
            (f64::INFINITY, i32::MIN, i32::MAX),
            (-1e12, i32::MIN, i32::MIN),
            (f64::NAN, i32::MIN, 0),
        ] {
            assert_eq!(to_replicas(value, Fixes::UPSTREAM), upstream, "{value}");
            assert_eq!(to_replicas(value, Fixes::ALL), ours, "{value}");
        }
        for (value, upstream, ours) in
            [(7.0, 7, 7), (1e19, i64::MIN, i64::MAX), (-1e19, i64::MIN, i64::MIN)]
        {
            assert_eq!(to_milli(value, Fixes::UPSTREAM), upstream, "{value}");
            assert_eq!(to_milli(value, Fixes::ALL), ours, "{value}");
        }
        for (text, upstream, ours) in [
            ("10P", 0, i64::MAX),
            ("9223372036854775807", -1000, i64::MAX),
            ("16Pi", -432_345_564_227_567_616, i64::MAX),
            ("7Ei", i64::MIN, i64::MAX),
            ("9P", 9_000_000_000_000_000_000, 9_000_000_000_000_000_000),
            ("1n", 1, 1),
        ] {
            let quantity = text.parse().expect("a quantity");
            assert_eq!(milli(quantity, Fixes::UPSTREAM), upstream, "{text}");
            assert_eq!(milli(quantity, Fixes::ALL), ours, "{text}");
        }
        assert_eq!(sum([i64::MAX, 1], Fixes::UPSTREAM), i64::MIN);
        assert_eq!(sum([i64::MAX, 1], Fixes::ALL), i64::MAX);
        assert_eq!(percent(i64::MAX / 10, 1000, Fixes::ALL), i32::MAX);
        assert!(percent(i64::MAX / 10, i64::MAX, Fixes::UPSTREAM) <= 0);
        assert_eq!(percent(505, 500, Fixes::UPSTREAM), 101);
    }
}
