//! Parsing of quantities.

use std::str::FromStr;

use super::{Format, MAX_BINARY_NANOS, MAX_NANOS, NANOS_PER_UNIT, Quantity};

/// Why a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: {reason}")]
pub struct ParseError {
    text: String,
    reason: String,
}

struct Suffix {
    power_of_ten: i64,
    power_of_two: u32,
    format: Format,
}

fn suffix(text: &str) -> Option<Suffix> {
    let decimal = |tens| Suffix { power_of_ten: tens, power_of_two: 0, format: Format::DecimalSi };
    let binary = |twos| Suffix { power_of_ten: 0, power_of_two: twos, format: Format::BinarySi };
    Some(match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            // Larger exponents make no difference: the number is zero or exceeds the maximum.
            let tens = exponent.clamp(-1_000_000, 1_000_000);
            Suffix { power_of_ten: tens, power_of_two: 0, format: Format::DecimalExponent }
        }
    })
}

/// The magnitude `digits x 10^tens x 2^twos`, rounded up to an integer; `None` on overflow.
/// `digits` are ASCII digits without a leading zero.
fn magnitude(digits: &[u8], tens: i64, twos: u32) -> Option<i128> {
    let split = (digits.len() as i64).saturating_add(tens.min(0)).max(0);
    let (whole, fraction) = digits.split_at(split as usize);
    let mut value = 0_i128;
    for digit in whole {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    for _ in 0..tens.max(0) {
        if value == 0 {
            break;
        }
        value = value.checked_mul(10)?;
    }
    value = value.checked_mul(1 << twos)?;
    // The fraction times 2^twos, from the last digit to the first; the final carry is the integer part.
    let (mut carry, mut rest) = (0_i128, false);
    let mut shift_in = |digit: i128| {
        carry += digit << twos;
        rest |= carry % 10 != 0;
        carry /= 10;
        carry
    };
    for digit in fraction.iter().rev() {
        shift_in(i128::from(digit - b'0'));
    }
    let leading_zeros = -tens.min(0) - fraction.len() as i64;
    for _ in 0..leading_zeros {
        if shift_in(0) == 0 {
            break;
        }
    }
    value.checked_add(carry)?.checked_add(i128::from(rest))
}

impl FromStr for Quantity {
    type Err = ParseError;

    /// Parses every notation that Kubernetes accepts. Rounds away from zero to a whole nano and clamps to the
    /// largest amount.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = |reason: &str| ParseError {
            text: text.chars().take(64).collect(),
            reason: reason.to_owned(),
        };
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end =
            unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, ending) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(error("it has more than one decimal point"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(error("it does not start with a number, such as 100m, 1.5 or 250Mi"));
        }
        let Suffix { power_of_ten: tens, power_of_two: twos, format } = suffix(ending).ok_or_else(|| {
            error(&format!(
                "invalid suffix {:?}: use n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent such as e3",
                ending.chars().take(16).collect::<String>()
            ))
        })?;
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0').as_bytes();
        let limit = if format == Format::BinarySi { MAX_BINARY_NANOS } else { MAX_NANOS };
        let nanos = if digits.is_empty() {
            0
        } else {
            magnitude(digits, tens + 9 - fraction.len() as i64, twos).unwrap_or(limit).min(limit)
        };
        // As in Kubernetes, a binary quantity below 1 becomes decimal.
        let format = match format {
            Format::BinarySi if nanos > 0 && nanos < NANOS_PER_UNIT => Format::DecimalSi,
            other => other,
        };
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, format })
    }
}
