//! When objects have their turns: each at its own place within the period.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};

/// When an object has its next turn: at its own place within each period, so that objects are spread over it and none
/// loses time by how long it takes.
pub(super) fn next_reconcile(key: &ObjectKey, now: Time, period: Duration) -> Time {
    let period = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX).max(1);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    let place = (hash % period.unsigned_abs()) as i64;
    let into = (now.as_nanos() - place).rem_euclid(period);
    Time::from_nanos(now.as_nanos().saturating_add(period - into))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn turns_are_spread_over_the_period_and_none_is_lost() {
        let period = Duration::from_secs(15);
        let mut places = BTreeSet::new();
        for number in 0..100 {
            let key = ObjectKey::new("shop", format!("web-{number}"));
            let first = next_reconcile(&key, NOW, period);
            let second = next_reconcile(&key, first, period);
            assert!(first > NOW && first <= NOW.later(period));
            assert_eq!(second, first.later(period));
            // However long the look took, the place stays.
            assert_eq!(next_reconcile(&key, first.later(Duration::from_secs(4)), period), second);
            places.insert(first.nanos_since(NOW) / 1_500_000_000);
        }
        assert!(places.len() >= 9, "{places:?}");
    }
}
