//! Amounts with their unit in the type: CPU in millicores, memory in bytes.
//!
//! Floats are converted to amounts only here, always by the same rule: truncated, at least zero and at most
//! [`MAX_AMOUNT`]. The recommendations equal upstream's to the digit only because of it.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The largest amount that a float converts to. It means "no bound": an upper bound without any confidence
/// prints as `100G` cores or `97656250000Ki`.
pub const MAX_AMOUNT: i64 = 100_000_000_000_000;

/// CPU in thousandths of a core.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MilliCpu(pub i64);

/// Memory in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub i64);

/// The arithmetic that all amounts share.
macro_rules! amount {
    ($name:ident) => {
        impl $name {
            /// Multiplies, and truncates to a whole amount.
            #[must_use]
            pub fn scale(self, factor: f64) -> Self {
                Self(clamp_to_amount(self.0 as f64 * factor))
            }
        }

        impl Add for $name {
            type Output = Self;
            /// Saturates instead of wrapping.
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Sub for $name {
            type Output = Self;
            /// Saturates instead of wrapping.
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    };
}

amount!(MilliCpu);
amount!(Bytes);

/// Converts a float to an amount. NaN becomes 0: it can only come from an empty histogram times an infinite
/// margin, where the minimum decides anyway.
fn clamp_to_amount(value: f64) -> i64 {
    // `as` saturates and converts NaN to 0, so only the two bounds of the model are left to apply.
    (value as i64).clamp(0, MAX_AMOUNT)
}

/// The multiple to round to is zero or negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot round to multiples of {0}: use a number above 0, or 1 to disable rounding")]
pub struct InvalidMultiple(pub i64);

pub fn round_up_to_multiple(value: i64, multiple: i64) -> Result<i64, InvalidMultiple> {
    if multiple <= 0 {
        return Err(InvalidMultiple(multiple));
    }
    Ok(match value.rem_euclid(multiple) {
        0 => value,
        above => value.saturating_add(multiple - above),
    })
}

impl MilliCpu {
    /// From cores, truncated to millicores.
    pub fn from_cores(cores: f64) -> Self {
        Self(clamp_to_amount(cores * 1000.0))
    }

    /// From measured cores, with the rounding of a metrics API and its clients: to nanocores, then up to
    /// millicores.
    pub fn from_measured(cores: f64) -> Self {
        // A history has millions of them. Integer arithmetic takes half the time and gives the same result, as far
        // as floats can represent nanocores.
        if (0.0..1e6).contains(&cores) {
            let billionths = cores * 1e9;
            // Signed, because processors only convert floats to signed integers natively.
            let whole = billionths as i64;
            let rounded = whole + i64::from(billionths - whole as f64 >= 0.5);
            return Self((rounded as u64).div_ceil(1_000_000) as i64);
        }
        Self::from_any_measured(cores)
    }

    fn from_any_measured(cores: f64) -> Self {
        Self(clamp_to_amount(((cores * 1e9).round() / 1e6).ceil()))
    }

    pub fn as_cores(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl Bytes {
    /// From a float number of bytes, truncated.
    pub fn from_f64(bytes: f64) -> Self {
        Self(clamp_to_amount(bytes))
    }

    /// As a float, for histograms.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integer_rounding_of_measured_cores_equals_float_rounding(
            power in -10.0..7.0_f64,
            billionths in 0..2_000_000_000_000_u64,
            half in 0..2_u64,
            millis in 0..5_000_000_000_u64,
        ) {
            let tenths = billionths as f64 + half as f64 / 2.0;
            for cores in [10_f64.powf(power), tenths / 1e9, millis as f64 / 1e3, billionths as f64] {
                prop_assert_eq!(MilliCpu::from_measured(cores), MilliCpu::from_any_measured(cores));
            }
        }
    }

    /// Golden vectors V106 to V109.
    #[test]
    fn floats_are_truncated() {
        let cores =
            [0.069_946, 0.615_351_12, 0.017_207_1, 0.004_55, 0.012_345_678_9, 0.001_234_567_89];
        let millis = [69, 615, 17, 4, 12, 1];
        for (cores, millis) in cores.into_iter().zip(millis) {
            assert_eq!(MilliCpu::from_cores(cores), MilliCpu(millis), "{cores} cores");
        }
        for (float, whole) in [(69.669, 69), (12.333, 12), (17.357, 17), (4.0, 4)] {
            assert_eq!(Bytes::from_f64(float), Bytes(whole), "{float} bytes");
        }
        for (float, whole) in [(100.5, 100), (-50.5, 0), (1e14 + 100.0, MAX_AMOUNT), (0.125, 0)] {
            assert_eq!(Bytes::from_f64(float), Bytes(whole), "{float} bytes");
        }
    }

    #[test]
    fn measured_cores_are_rounded_up_like_the_metrics_api_does() {
        for (cores, millis) in [
            (0.0, 0),
            (0.25, 250),
            (0.250_123_456, 251),
            (0.250_000_000_2, 250),
            (1.001, 1001),
            (1e-9, 1),
            (-1.0, 0),
        ] {
            assert_eq!(MilliCpu::from_measured(cores), MilliCpu(millis), "{cores} cores");
        }
    }

    #[test]
    fn scaling_truncates_after_the_multiplication() {
        for (amount, factor, expected) in
            [(4, 2.124, 8), (12, 1.1, 13), (1213, 1.2414, 1505), (41208, 1e-6, 0)]
        {
            assert_eq!(Bytes(amount).scale(factor), Bytes(expected), "{amount} x {factor}");
            assert_eq!(MilliCpu(amount).scale(factor), MilliCpu(expected), "{amount} x {factor}");
        }
    }

    /// Golden vectors V110 to V112.
    #[test]
    fn rounding_goes_up_to_the_next_multiple() {
        for (value, multiple, expected) in [
            (100, 7, 105),
            (100, 10, 100),
            (0, 5, 0),
            (1000, 3, 1002),
            (1_231_241, 13, 1_231_243),
            (839_500_000, 128 << 20, 939_524_096),
            (262_144_000, 256 << 20, 256 << 20),
        ] {
            assert_eq!(
                round_up_to_multiple(value, multiple),
                Ok(expected),
                "{value} to {multiple}"
            );
        }
        assert_eq!(round_up_to_multiple(100, -5), Err(InvalidMultiple(-5)));
        assert_eq!(round_up_to_multiple(100, 0), Err(InvalidMultiple(0)));
    }

    #[test]
    fn infinite_and_undefined_floats_are_clamped() {
        assert_eq!(Bytes::from_f64(f64::INFINITY), Bytes(MAX_AMOUNT));
        assert_eq!(Bytes::from_f64(f64::NEG_INFINITY), Bytes(0));
        assert_eq!(Bytes::from_f64(f64::NAN), Bytes(0));
        assert_eq!(Bytes(0).scale(f64::INFINITY), Bytes(0));
        assert_eq!(MilliCpu(1).scale(f64::INFINITY), MilliCpu(MAX_AMOUNT));
    }
}
