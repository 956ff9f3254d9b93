//! Random jitter in waits, so that processes and keys do not act in lockstep.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// 64 random bits; good enough for jitter, not for secrets.
pub(crate) fn random() -> u64 {
    // Every RandomState has its own keys, which the standard library takes from the system.
    RandomState::new().hash_one(())
}

/// A random duration between `base` and `base * (1 + more)`.
pub(crate) fn jittered(base: Duration, more: f64) -> Duration {
    let share = random() as f64 / u64::MAX as f64;
    base.mul_f64(1.0 + more * share)
}

/// The wait after this many failures in a row: doubles from `first` to `most`, minus up to half at random.
pub(crate) fn backoff(failures: u32, first: Duration, most: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(20));
    jittered(doubled.min(most) / 2, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jittered_waits_stay_within_their_bounds_and_differ() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        for (failures, full) in [(0, 1), (1, 1), (2, 2), (4, 8), (7, 60), (u32::MAX, 60)] {
            let full = Duration::from_secs(full);
            let wait = backoff(failures, second, minute);
            assert!(full / 2 <= wait && wait <= full, "{failures}: {wait:?}");
        }
        let waits: std::collections::HashSet<_> = (0..50).map(|_| jittered(second, 0.5)).collect();
        assert!(waits.len() > 40, "{} of 50 differ", waits.len());
        assert!(waits.iter().all(|wait| second <= *wait && *wait <= second.mul_f64(1.5)));
    }
}
