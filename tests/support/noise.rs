//! Owns random numbers that are the same everywhere for the same seed, and where a test's seed comes from.

/// Replays a run: its value is the seed that the run printed.
pub const SEED: &str = "PLIMSOLL_SEED";

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Noise(u64);

// === impl Noise ===

impl Noise {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence of one thing among many of a seed: the same, whatever else is drawn.
    pub fn of(seed: u64, what: &[u64]) -> Self {
        let mut noise = Self::new(seed);
        for number in what {
            noise.0 ^= number.wrapping_mul(0xd6e8_feb8_6659_fd93);
            noise.0 = noise.number();
        }
        noise
    }

    /// Any number. (splitmix64)
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.number() % below.max(1)
    }

    /// From one up to and with the other.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True that often of a hundred times.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// The seed that the environment names; without one, this one, so that a run of the suite can be made again.
pub fn seed(usual: u64) -> u64 {
    let named = std::env::var(SEED).ok();
    named.map_or(usual, |text| text.parse().expect("PLIMSOLL_SEED is a whole number"))
}
