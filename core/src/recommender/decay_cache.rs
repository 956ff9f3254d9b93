//! Caches decay factors by age, shared by all histories with samples of the same age.

use super::go_math::exp2;

/// Number of cached ages: more than the steps of a history slice.
const CACHE_SIZE: usize = 4096;
/// Log2 of the nanoseconds per cache slot: half a minute, so consecutive steps of a minute never share a slot.
const GRAIN_BITS: u32 = 35;

/// Caches powers of two by number of half-lives. The `default` caches nothing.
#[derive(Clone, Debug, Default)]
pub struct DecayCache {
    half_life: i64,
    /// The age and its factor, by slot.
    entries: Box<[(i64, f64)]>,
}

impl DecayCache {
    /// Creates a cache for many samples of the same times.
    pub fn with_cache() -> Self {
        Self { half_life: 0, entries: vec![AGE_ZERO; CACHE_SIZE].into() }
    }

    /// Returns the weight of a sample that is `age` younger than a sample of weight 1. Both are in nanoseconds.
    pub fn factor(&mut self, age: i64, half_life: i64) -> f64 {
        if self.half_life != half_life {
            self.half_life = half_life;
            self.entries.fill(AGE_ZERO);
        }
        let compute = || exp2(age as f64 / half_life as f64);
        let Some(entry) = self.entries.get_mut((age >> GRAIN_BITS) as usize % CACHE_SIZE) else {
            return compute();
        };
        if entry.0 != age {
            *entry = (age, compute());
        }
        entry.1
    }
}

/// Valid for every half-life.
const AGE_ZERO: (i64, f64) = (0, 1.0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000_000_000;

    proptest! {
        #[test]
        fn cached_decay_equals_computed_decay(
            queries in prop::collection::vec((-20_000..20_000_i64, 0..3_i64, 1..3_i64), 1..300),
        ) {
            let mut cache = DecayCache::with_cache();
            for (steps, offset, days) in queries {
                let (age, half_life) = (steps * MINUTE + offset, days * 1440 * MINUTE);
                let expected = exp2(age as f64 / half_life as f64);
                for cache in [&mut cache, &mut DecayCache::default()] {
                    prop_assert_eq!(cache.factor(age, half_life).to_bits(), expected.to_bits());
                }
            }
        }
    }
}
