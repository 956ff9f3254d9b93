//! When objects are due: each at a fixed offset within the period.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};

/// When an object is due next: at its own offset within each period, so that objects are spread over the period and the
/// duration of a reconcile does not delay the next one.
pub(in crate::controllers) fn next_reconcile(key: &ObjectKey, now: Time, period: Duration) -> Time {
    let period = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    let offset = (hash % period.unsigned_abs()) as i64;
    let elapsed = (now.as_nanos() - offset).rem_euclid(period);
    Time::from_nanos(now.as_nanos().saturating_add(period - elapsed))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn reconciliations_are_spread_over_the_period_and_none_is_skipped() {
        let period = Duration::from_secs(15);
        let mut places = BTreeSet::new();
        for number in 0..100 {
            let key = ObjectKey::new("shop", format!("web-{number}"));
            let first = next_reconcile(&key, NOW, period);
            let second = next_reconcile(&key, first, period);
            assert!(first > NOW && first <= NOW.later(period));
            assert_eq!(second, first.later(period));
            // The offset does not depend on the duration of the reconcile.
            assert_eq!(next_reconcile(&key, first.later(Duration::from_secs(4)), period), second);
            places.insert(first.nanos_since(NOW) / 1_500_000_000);
        }
        assert!(places.len() >= 9, "{places:?}");
    }
}
