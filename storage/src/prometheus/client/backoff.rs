//! How long to wait before a server is asked again.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use super::QueryLimits;
use crate::prometheus::query_error::QueryError;

/// The pause after so many failures in a row: doubled, less up to a half by chance, and what the server asks for at
/// least.
pub(super) fn pause(limits: &QueryLimits, failures: u32, failure: &QueryError) -> Duration {
    let QueryLimits { initial_backoff: first_pause, max_backoff: longest_pause, .. } = *limits;
    let doubled = first_pause.saturating_mul(1 << failures.saturating_sub(1).min(20));
    // Every RandomState has keys of its own, so many clients do not march in step.
    let chance = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    let wait = doubled.min(longest_pause).mul_f64(0.5 + chance / 2.0);
    match failure {
        QueryError::Busy { retry_after: Some(asked), .. } => wait.max(*asked).min(longest_pause),
        _ => wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_honour_the_server() {
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
        for (asked, wait) in [(5, 5), (3600, 30)] {
            let retry_after = Some(asked * second);
            let busy = QueryError::Busy { why: String::new(), retry_after };
            assert_eq!(pause(&limits, 1, &busy), wait * second);
        }
    }
}
