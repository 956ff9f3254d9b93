//! Reproducible random numbers, and the seeds of tests.

use std::path::{Path, PathBuf};

/// Replays a run: the seed that the run printed.
pub const SEED: &str = "PLIMSOLL_SEED";

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

// === impl Random ===

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence derived from a seed and numbers, independent of what else is drawn.
    pub fn derive(seed: u64, path: &[u64]) -> Self {
        let mut noise = Self::new(seed);
        for number in path {
            noise.0 ^= number.wrapping_mul(0xd6e8_feb8_6659_fd93);
            noise.0 = noise.number();
        }
        noise
    }

    /// Any number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.number() % below.max(1)
    }

    /// A number in `first..=last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true with this probability in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these values.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// The seed in the environment, or else `usual`, so that runs are reproducible.
pub fn seed(usual: u64) -> u64 {
    let named = std::env::var(SEED).ok();
    named.map_or(usual, |text| text.parse().expect("PLIMSOLL_SEED is a whole number"))
}

/// The seeds of a test: that of [`seed`], followed by those of `tests/regressions/NAME.seed`, which failed before.
pub fn seeds(name: &str, usual: u64) -> Vec<u64> {
    let first = seed(usual);
    let regressions = read_seeds(&regressions_folder().join(format!("{name}.seed")));
    std::iter::once(first).chain(regressions.into_iter().filter(|seed| *seed != first)).collect()
}

fn regressions_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions")
}

/// The seeds of a file: one per line, with the reason after a `#`. A missing file has none.
fn read_seeds(path: &Path) -> Vec<u64> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let numbers = lines.filter(|line| !line.is_empty());
    let seed = |line: &str| {
        line.parse().unwrap_or_else(|_| panic!("{}: {line} is not a seed", path.display()))
    };
    numbers.map(seed).collect()
}

#[test]
fn regression_seeds_are_read_from_a_file_with_comments() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("any.seed");
    assert_eq!(read_seeds(&path), Vec::<u64>::new());
    std::fs::write(&path, "# found in deep\n7\n\n 9 # a carry was lost\n").expect("writable");
    assert_eq!(read_seeds(&path), [7, 9]);
}

#[test]
fn every_seed_file_is_readable() {
    for entry in std::fs::read_dir(regressions_folder()).expect("there is a folder of regressions")
    {
        let path = entry.expect("a readable entry").path();
        if path.extension().is_some_and(|extension| extension == "seed") {
            assert_ne!(read_seeds(&path), Vec::<u64>::new(), "{} has no seeds", path.display());
        }
    }
}
