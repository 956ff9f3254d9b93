//! Powers as Go computes them, to the last bit: it decides in which bucket a percentile ends.
//!
//! Two pods whose memory windows start and end together have exactly equal weights, so the last bit of a sum decides
//! their median. Languages differ in that bit: for fractional powers of two in every tenth result.

/// A power by squaring, lowest bit first. A correctly rounded power differs from upstream's in the last bits of almost
/// every bucket, and by a whole byte in one of them.
pub(super) fn powi(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        left >>= 1;
        if left > 0 {
            square *= square;
        }
    }
    result
}

/// Two to an integer power, exactly, saturating at 0 and infinity.
pub(super) fn exp2_integer(exponent: f64) -> f64 {
    // Outside of this range the result is 0 or infinite anyway; within it every step is exact.
    let mut left = exponent.clamp(-2000.0, 2000.0) as i32;
    let mut result = 1.0;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        result *= if step < 0 {
            1.0 / f64::from_bits(((1023 - i64::from(step)) as u64) << 52)
        } else {
            f64::from_bits(((1023 + i64::from(step)) as u64) << 52)
        };
        left -= step;
    }
    result
}

/// ln 2, split into a part whose product with small integers is exact, and the remainder.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// Coefficients of the even function `x (e^x + 1) / (e^x - 1) - 2` in powers of `x^2`: the minimax approximation that
/// Sun published in 1993 and most libraries use, with its first coefficient rounded to 1/6.
const EXP_COEFFICIENTS: [f64; 5] = [
    1.0 / 6.0,
    -2.777_777_777_701_559_3e-3,
    6.613_756_321_437_934e-5,
    -1.653_390_220_546_525_2e-6,
    4.138_136_797_057_238_5e-8,
];

/// Two to any power. The order of all operations is the one that gives upstream's last bit.
#[must_use]
pub fn exp2(exponent: f64) -> f64 {
    if exponent.is_nan() {
        return exponent;
    }
    // Values out of range stay so: integer powers saturate.
    let exponent = exponent.clamp(-2000.0, 2000.0);
    let whole = (exponent + 0.5_f64.copysign(exponent)).trunc();
    let rest = exponent - whole;
    let (high, low) = (rest * LN_2[0], -rest * LN_2[1]);
    let x = high - low;
    let square = x * x;
    let fitted =
        EXP_COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| square * (coefficient + sum));
    let near = x - fitted;
    let mantissa = 1.0 - ((low - (x * near) / (2.0 - near)) - high);
    mantissa * exp2_integer(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact_over_the_whole_range() {
        for exponent in [-1074, -1073, -1022, -100, -1, 0, 1, 64, 1023] {
            let expected = 2f64.powf(f64::from(exponent));
            for power in [exp2_integer, exp2] {
                assert_eq!(power(f64::from(exponent)).to_bits(), expected.to_bits(), "{exponent}");
            }
        }
        for power in [exp2_integer, exp2] {
            assert_eq!(power(-106_752.0), 0.0);
            assert_eq!(power(5000.0), f64::INFINITY);
        }
        assert!(exp2(f64::NAN).is_nan());
        assert_eq!(exp2(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp2(f64::NEG_INFINITY), 0.0);
    }

    /// Minutes, and the bits of two to the power of that many days in Go 1.26.
    #[test]
    fn fractional_powers_of_two_are_bit_identical_to_go() {
        let table: [(i64, u64); 24] = [
            (1, 0x3ff0_01f8_db1a_5615),
            (-1, 0x3fef_fc0e_c62f_ed35),
            (5, 0x3ff0_09de_b614_0dc2),
            (30, 0x3ff0_3b93_e39d_db43),
            (61, 0x3ff0_7a0d_4578_56f2),
            (90, 0x3ff0_b558_6cf9_890f),
            (127, 0x3ff1_0235_1e80_e9f2),
            (333, 0x3ff2_c818_9671_eff3),
            (600, 0x3ff5_5b81_08f0_ec5e),
            (719, 0x3ff6_9dd4_c51b_707a),
            (721, 0x3ff6_a368_5fd8_8f4e),
            (1000, 0x3ff9_e465_cdca_229f),
            (1441, 0x4000_01f8_db1a_5615),
            (2879, 0x400f_fc0e_c62f_ed35),
            (4321, 0x4020_01f8_db1a_5615),
            (7777, 0x4045_1f4e_7d05_452f),
            (11_519, 0x406f_fc0e_c62f_ed37),
            (-61, 0x3fef_12f5_a887_e08c),
            (-333, 0x3feb_42bc_5d57_e661),
            (-1441, 0x3fdf_fc0e_c62f_ed35),
            (-10_079, 0x3f80_01f8_db1a_5614),
            (144_000, 0x4630_0000_0000_0000),
            (-1_440_000, 0x0170_0000_0000_0000),
            (-1_500_000, 0x0000_0001_428a_2f99),
        ];
        for (minutes, bits) in table {
            let exponent = (minutes * 60_000_000_000) as f64 / 86_400_000_000_000_f64;
            assert_eq!(exp2(exponent).to_bits(), bits, "{minutes} minutes");
        }
    }
}
