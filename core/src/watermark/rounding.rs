//! Conversions from floats and ratios to whole replicas.

/// Converts a float to replicas as Go does on amd64: NaN and values that do not fit become `i32::MIN`, which loses every
/// later comparison.
pub fn replicas_from_float(value: f64) -> i32 {
    let fits = value > f64::from(i32::MIN) - 1.0 && value < f64::from(i32::MAX) + 1.0;
    if fits { value as i32 } else { i32::MIN }
}

/// Converts a whole number to replicas, saturating.
pub fn saturate_to_replicas(value: i128) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// `dividend / divisor`, rounded up. Returns `None` if the divisor is not positive.
pub fn divide_rounding_up(dividend: i128, divisor: i128) -> Option<i32> {
    (divisor > 0).then(|| saturate_to_replicas(-(-dividend).div_euclid(divisor)))
}

/// `dividend / divisor`, rounded down. Returns `None` if the divisor is not positive.
pub fn divide_rounding_down(dividend: i128, divisor: i128) -> Option<i32> {
    (divisor > 0).then(|| saturate_to_replicas(dividend.div_euclid(divisor)))
}

pub fn round_up_to_multiple(value: i32, multiple: i32) -> i32 {
    let multiple = i64::from(multiple.max(1));
    let (value, remainder) = (i64::from(value), i64::from(value).rem_euclid(multiple));
    saturate_to_replicas(i128::from(if remainder == 0 {
        value
    } else {
        value + multiple - remainder
    }))
}

/// The multiple between `from` and `to` that is nearest to `to`, or `from` if there is none.
pub fn nearest_multiple_towards(from: i32, to: i32, multiple: i32) -> i32 {
    let multiple = multiple.max(1);
    if to >= from {
        (to - to.rem_euclid(multiple)).max(from)
    } else {
        round_up_to_multiple(to, multiple).min(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_that_is_no_replica_count_becomes_the_minimum_integer() {
        for (value, expected) in [
            (2.0, 2),
            (-3.5, -3),
            (2_147_483_647.0, i32::MAX),
            (2_147_483_648.0, i32::MIN),
            (-2_147_483_648.0, i32::MIN),
            (f64::INFINITY, i32::MIN),
            (f64::NAN, i32::MIN),
        ] {
            assert_eq!(replicas_from_float(value), expected, "{value}");
        }
    }

    #[test]
    fn ratios_are_rounded_in_the_requested_direction() {
        assert_eq!((divide_rounding_up(7, 2), divide_rounding_down(7, 2)), (Some(4), Some(3)));
        assert_eq!((divide_rounding_up(8, 2), divide_rounding_down(8, 2)), (Some(4), Some(4)));
        assert_eq!((divide_rounding_up(-7, 2), divide_rounding_down(-7, 2)), (Some(-3), Some(-4)));
        assert_eq!((divide_rounding_up(1, 0), divide_rounding_down(1, -1)), (None, None));
        assert_eq!(divide_rounding_up(i128::from(i64::MAX), 1), Some(i32::MAX));
        assert_eq!(
            (round_up_to_multiple(7, 3), round_up_to_multiple(6, 3), round_up_to_multiple(7, 0)),
            (9, 6, 7)
        );
        assert_eq!(round_up_to_multiple(i32::MAX, 1000), i32::MAX);
    }

    #[test]
    fn a_multiple_is_rounded_towards_the_current_replicas() {
        for (from, to, expected) in [
            (4, 9, 8),
            (4, 6, 4),
            (5, 6, 5),
            (5, 8, 8),
            (9, 5, 8),
            (9, 8, 8),
            (7, 5, 7),
            (3, 0, 0),
            (4, 4, 4),
        ] {
            assert_eq!(nearest_multiple_towards(from, to, 4), expected, "{from} to {to}");
        }
        assert_eq!(nearest_multiple_towards(2, 9, 0), 9);
    }
}
