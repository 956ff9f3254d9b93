//! Stateless noise: a function of seed, stream and time alone. So two simulations of one seed meet exactly the
//! same load, whatever the recommender does to their pods in between.
//!
//! Uses only integer mixing and the four basic float operations. Both give the same bits on every machine,
//! which libm's `sin` and `exp` do not guarantee.

/// A stream of noise. Streams of different names or numbers are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise(u64);

impl Noise {
    /// The root stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x9E37_79B9_7F4A_7C15))
    }

    /// Derives the stream of a name.
    #[must_use]
    pub fn for_name(self, name: &str) -> Self {
        Self(name.bytes().fold(mix(self.0), |state, byte| mix(state ^ u64::from(byte))))
    }

    /// Derives the stream of a number.
    #[must_use]
    pub const fn for_number(self, number: u64) -> Self {
        Self(mix(mix(self.0).wrapping_add(number)))
    }

    pub const fn bits(self, tick: u64) -> u64 {
        mix(self.0 ^ mix(tick.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// A bell-shaped value in -1..1 around 0 at a tick (the mean of four uniform ones).
    pub fn bell_shaped(self, tick: u64) -> f64 {
        let word = self.bits(tick);
        let sum = (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
        sum as f64 / (2.0 * 65535.0) - 1.0
    }

    /// A slowly drifting value in -1..1: independent bell-shaped values every `period` ticks, smoothly interpolated.
    pub fn drift(self, tick: u64, period: u64) -> f64 {
        let period = period.max(1);
        let (knot, within) = (tick / period, tick % period);
        let (from, to) = (self.bell_shaped(knot), self.bell_shaped(knot + 1));
        from + (to - from) * smooth_step(within as f64 / period as f64)
    }
}

/// Maps 0..1 to 0..1 with zero slope at both ends.
pub(super) fn smooth_step(x: f64) -> f64 {
    x * x * (3.0 - 2.0 * x)
}

/// The finalizer of SplitMix64: every input bit affects every output bit.
const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_stream_and_time_always_give_the_same_bits() {
        // Pinned: a change here changes every published number of the demo and the backtests.
        let noise = Noise::new(42).for_name("web").for_number(3);
        assert_eq!(noise.bits(7), Noise::new(42).for_name("web").for_number(3).bits(7));
        assert_eq!(
            [noise.bits(0), noise.bits(1), noise.bits(1_000_000)],
            [3_678_873_492_726_906_061, 10_301_229_814_257_968_088, 4_680_856_598_047_862_389],
            "the noise function is part of the format of a seed"
        );
    }

    #[test]
    fn streams_with_another_seed_name_or_number_differ() {
        let base = Noise::new(1).for_name("web").for_number(0);
        for other in [
            Noise::new(2).for_name("web").for_number(0),
            Noise::new(1).for_name("wob").for_number(0),
            Noise::new(1).for_name("web").for_number(1),
        ] {
            assert_ne!(base.bits(0), other.bits(0));
        }
    }

    #[test]
    fn values_stay_within_their_range_and_have_their_mean() {
        let noise = Noise::new(9);
        let mut bell = 0.0;
        for tick in 0..100_000 {
            let (b, d) = (noise.bell_shaped(tick), noise.drift(tick, 7));
            assert!((-1.0..=1.0).contains(&b), "{b}");
            assert!((-1.0..=1.0).contains(&d), "{d}");
            bell += b;
        }
        assert!((bell / 1e5).abs() < 0.01, "mean {}", bell / 1e5);
    }

    #[test]
    fn drift_has_no_jumps() {
        let noise = Noise::new(5);
        for tick in 0..10_000 {
            let step = noise.drift(tick + 1, 60) - noise.drift(tick, 60);
            assert!(step.abs() < 0.06, "jumped by {step} at {tick}");
        }
    }
}
