//! The delay before a retry.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use super::QueryLimits;
use crate::prometheus::query_error::QueryError;

/// The delay after this many consecutive failures: exponential, with up to 50% jitter, and at least the server's
/// `Retry-After`.
pub(super) fn pause(limits: &QueryLimits, failures: u32, failure: &QueryError) -> Duration {
    let QueryLimits { initial_backoff, max_backoff, .. } = *limits;
    let doubled = initial_backoff.saturating_mul(1 << failures.saturating_sub(1).min(20));
    // Every RandomState has its own keys, so many clients do not retry in lockstep.
    let jitter = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    let wait = doubled.min(max_backoff).mul_f64(0.5 + jitter / 2.0);
    match failure {
        QueryError::Busy { retry_after: Some(retry_after), .. } => {
            wait.max(*retry_after).min(max_backoff)
        }
        _ => wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_maximum_and_honor_retry_after() {
        let second = Duration::from_secs(1);
        let limits = QueryLimits {
            initial_backoff: second,
            max_backoff: 30 * second,
            ..QueryLimits::default()
        };
        let failed = QueryError::Unavailable(String::new());
        for (failures, full) in [(1, 1), (2, 2), (4, 8), (9, 30), (u32::MAX, 30)] {
            let wait = pause(&limits, failures, &failed);
            assert!(full * second / 2 <= wait && wait <= full * second, "{failures}: {wait:?}");
        }
        for (seconds, wait) in [(5, 5), (3600, 30)] {
            let retry_after = Some(seconds * second);
            let busy = QueryError::Busy { why: String::new(), retry_after };
            assert_eq!(pause(&limits, 1, &busy), wait * second);
        }
    }
}
