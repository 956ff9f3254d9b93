//! The two marks of a metric, with the tolerance around them: where a value lies, and how far off that is.

use crate::scaling::Milli;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Above the high mark and its tolerance.
    Above,
    /// Between the marks, or no farther beyond one than is tolerated.
    Inside,
    /// Below the low mark and its tolerance.
    Below,
}

impl Position {
    /// The word for it, in rows and explanations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Above => "above",
            Self::Inside => "inside",
            Self::Below => "below",
        }
    }

    /// That of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Above, Self::Inside, Self::Below].into_iter().find(|one| one.as_str() == word)
    }
}

/// The marks of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// Below this, replicas are removed.
    pub low: Milli,
    /// Above this, replicas are added.
    pub high: Milli,
    /// How far beyond a mark is still inside, as thousandths of the mark.
    pub tolerance: Milli,
}

impl Band {
    /// Of the marks as they are written. One that is left out is the other one; without any there is no band.
    pub fn new(low: Option<Milli>, high: Option<Milli>, tolerance: Milli) -> Option<Self> {
        let (low, high) = (low.or(high)?, high.or(low)?);
        Some(Self { low, high, tolerance })
    }

    /// Above this, replicas are really added.
    pub fn adjusted_high(&self) -> Milli {
        self.high.saturating_add(self.margin(self.high))
    }

    /// Below this, replicas are really removed.
    pub fn adjusted_low(&self) -> Milli {
        self.low.saturating_sub(self.margin(self.low))
    }

    /// Cut off towards zero, so that small marks have none.
    fn margin(&self, mark: Milli) -> Milli {
        saturate_to_milli(i128::from(mark) * i128::from(self.tolerance) / 1000)
    }

    /// Where a value lies that is a sum shared by so many. Whoever is exactly on an adjusted mark is inside.
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

    /// The same, of a value that is a float.
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
    fn whoever_is_on_an_adjusted_mark_is_inside() {
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
    fn a_mark_that_is_left_out_is_the_other_one() {
        let both = |low, high| Band::new(low, high, 0).map(|band| (band.low, band.high));
        assert_eq!(both(None, Some(80)), Some((80, 80)));
        assert_eq!(both(Some(50), None), Some((50, 50)));
        assert_eq!(both(Some(50), Some(80)), Some((50, 80)));
        assert_eq!(both(None, None), None);
    }

    #[test]
    fn marks_at_the_ends_of_what_fits_do_not_wrap() {
        let band = band(i64::MIN, i64::MAX, 1000);
        assert_eq!((band.adjusted_low(), band.adjusted_high()), (0, i64::MAX));
        assert_eq!(band.position(i64::MAX, u32::MAX), Position::Inside);
    }
}
