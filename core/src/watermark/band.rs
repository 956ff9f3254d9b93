//! The low and high watermark of a metric with their tolerance, and where a value lies relative to them.

use crate::scaling::{MetricBounds, Milli, Position};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// Below this, replicas are removed.
    pub low: Milli,
    /// Above this, replicas are added.
    pub high: Milli,
    /// How far beyond a watermark still counts as inside, in thousandths of the watermark.
    pub tolerance: Milli,
}

impl Band {
    /// Builds a band from the watermarks of the spec. A missing one defaults to the other; if both are missing, returns
    /// `None`.
    pub fn new(low: Option<Milli>, high: Option<Milli>, tolerance: Milli) -> Option<Self> {
        let (low, high) = (low.or(high)?, high.or(low)?);
        Some(Self { low, high, tolerance })
    }

    /// The watermarks with and without their tolerance.
    pub fn bounds(&self) -> MetricBounds {
        MetricBounds {
            low: self.low,
            high: self.high,
            tolerated_low: self.adjusted_low(),
            tolerated_high: self.adjusted_high(),
        }
    }

    /// The high watermark plus its tolerance.
    pub fn adjusted_high(&self) -> Milli {
        self.high.saturating_add(self.margin(self.high))
    }

    /// The low watermark minus its tolerance.
    pub fn adjusted_low(&self) -> Milli {
        self.low.saturating_sub(self.margin(self.low))
    }

    /// The tolerance of a watermark, rounded towards zero, so that small watermarks have none.
    fn margin(&self, watermark: Milli) -> Milli {
        saturate_to_milli(i128::from(watermark) * i128::from(self.tolerance) / 1000)
    }

    /// The position of `sum / shared_by`, compared without division. A value exactly on an adjusted watermark is inside.
    pub fn position(&self, sum: Milli, shared_by: u32) -> Position {
        let by = i128::from(shared_by);
        if i128::from(sum) > i128::from(self.adjusted_high()) * by {
            Position::Above
        } else if i128::from(sum) < i128::from(self.adjusted_low()) * by {
            Position::Below
        } else {
            Position::Inside
        }
    }

    /// Like [`Self::position`], for a value that is a float.
    pub fn position_of(&self, value: f64) -> Position {
        if value > self.adjusted_high() as f64 {
            Position::Above
        } else if value < self.adjusted_low() as f64 {
            Position::Below
        } else {
            Position::Inside
        }
    }
}

fn saturate_to_milli(value: i128) -> Milli {
    Milli::try_from(value).unwrap_or(if value < 0 { Milli::MIN } else { Milli::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(low: Milli, high: Milli, tolerance: Milli) -> Band {
        Band { low, high, tolerance }
    }

    /// Vectors X1 to X4.
    #[test]
    fn a_value_on_an_adjusted_watermark_is_inside() {
        for (band, value, expected) in [
            (band(80, 80, 10), 81, Position::Above),
            (band(2000, 4000, 20), 4080, Position::Inside),
            (band(2000, 4000, 20), 4081, Position::Above),
            (band(2000, 4000, 20), 1960, Position::Inside),
            (band(2000, 4000, 20), 1959, Position::Below),
            (band(2000, 4000, 200), 4800, Position::Inside),
            (band(2000, 4000, 200), 4801, Position::Above),
        ] {
            assert_eq!(band.position(value, 1), expected, "{band:?} {value}");
            assert_eq!(band.position_of(value as f64), expected, "{band:?} {value}");
        }
    }

    /// Vectors M8 to M11.
    #[test]
    fn an_unset_watermark_equals_the_other_one() {
        let both = |low, high| Band::new(low, high, 0).map(|band| (band.low, band.high));
        assert_eq!(both(None, Some(80)), Some((80, 80)));
        assert_eq!(both(Some(50), None), Some((50, 50)));
        assert_eq!(both(Some(50), Some(80)), Some((50, 80)));
        assert_eq!(both(None, None), None);
    }

    #[test]
    fn watermarks_at_the_integer_limits_do_not_overflow() {
        let band = band(i64::MIN, i64::MAX, 1000);
        assert_eq!((band.adjusted_low(), band.adjusted_high()), (0, i64::MAX));
        assert_eq!(band.position(i64::MAX, u32::MAX), Position::Inside);
    }
}
