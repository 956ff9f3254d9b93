//! What samples weigh by their age, worked out once for all histories that have samples of the same age.

use super::go_math::exp2;

/// Ages that are kept: more than a slice of history has steps.
const CACHE_SIZE: usize = 4096;
/// Two to this many nanoseconds, half a minute, is the grain of places: steps of a minute have one each, in their order.
const GRAIN_BITS: u32 = 35;

/// Powers of two to a number of half-lives. Nothing is kept in one that was made by `default`.
#[derive(Clone, Debug, Default)]
pub struct DecayCache {
    half_life: i64,
    /// An age and what samples of it weigh, at the place of the age.
    entries: Box<[(i64, f64)]>,
}

impl DecayCache {
    /// For many samples of the same times.
    pub fn with_cache() -> Self {
        Self { half_life: 0, entries: vec![AGE_ZERO; CACHE_SIZE].into() }
    }

    /// What a sample weighs that is so much younger than another one that weighs 1. Both are in nanoseconds.
    pub fn factor(&mut self, age: i64, half_life: i64) -> f64 {
        if self.half_life != half_life {
            self.half_life = half_life;
            self.entries.fill(AGE_ZERO);
        }
        let work_out = || exp2(age as f64 / half_life as f64);
        let Some(place) = self.entries.get_mut((age >> GRAIN_BITS) as usize % CACHE_SIZE) else {
            return work_out();
        };
        if place.0 != age {
            *place = (age, work_out());
        }
        place.1
    }
}

/// True of every half-life.
const AGE_ZERO: (i64, f64) = (0, 1.0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000_000_000;

    proptest! {
        #[test]
        fn what_is_kept_is_what_would_be_worked_out(
            asked in prop::collection::vec((-20_000..20_000_i64, 0..3_i64, 1..3_i64), 1..300),
        ) {
            let mut fading = DecayCache::with_cache();
            for (steps, beside, days) in asked {
                let (age, half_life) = (steps * MINUTE + beside, days * 1440 * MINUTE);
                let expected = exp2(age as f64 / half_life as f64);
                for fading in [&mut fading, &mut DecayCache::default()] {
                    prop_assert_eq!(fading.factor(age, half_life).to_bits(), expected.to_bits());
                }
            }
        }
    }
}
