//! Chance in waits, so that many processes or many keys do not march in step.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// Sixty-four bits that nobody can foresee; good for spreading, not for secrets.
pub(crate) fn random() -> u64 {
    // Every RandomState has keys of its own, which the standard library draws from the system.
    RandomState::new().hash_one(())
}

/// A wait between `base` and `base * (1 + more)`.
pub(crate) fn jittered(base: Duration, more: f64) -> Duration {
    let share = random() as f64 / u64::MAX as f64;
    base.mul_f64(1.0 + more * share)
}

/// The wait after so many failures in a row: doubles from `first` to `most`, less up to a half by chance.
pub(crate) fn backoff(failures: u32, first: Duration, most: Duration) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(20));
    jittered(doubled.min(most) / 2, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_within_their_bounds_and_differ() {
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
