//! The VPAs that wait for their history so long that they say so.

use std::{collections::HashMap, time::Duration};

use plimsoll_core::types::{ObjectKey, Time};

/// Since when passes have found VPAs waiting. Most histories are there before the next pass, and a word about each
/// would be two writes more at every start.
#[derive(Debug, Default)]
pub struct SlowHistory {
    /// How long a VPA waits before it says so; `None` where nobody does.
    threshold: Option<Duration>,
    since: HashMap<ObjectKey, Time>,
}

impl SlowHistory {
    /// With this patience.
    pub fn with_threshold(patience: Duration) -> Self {
        Self { threshold: Some(patience), since: HashMap::new() }
    }

    /// Whether anybody says so.
    pub const fn is_enabled(&self) -> bool {
        self.threshold.is_some()
    }

    /// A pass found a VPA waiting.
    pub fn record_waiting(&mut self, key: &ObjectKey, now: Time) {
        if self.threshold.is_some() && !self.since.contains_key(key) {
            self.since.insert(key.clone(), now);
        }
    }

    /// Whether it has waited long enough to say so.
    pub fn is_overdue(&self, key: &ObjectKey, now: Time) -> bool {
        let since = self.since.get(key).zip(self.threshold);
        since.is_some_and(|(since, patience)| now >= since.later(patience))
    }

    /// Forgets those that wait no longer.
    pub fn retain(&mut self, waits: impl Fn(&ObjectKey) -> bool) {
        self.since.retain(|key, _| waits(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_longer_than_a_pass_says_so_and_nobody_else() {
        let key = ObjectKey::new("shop", "web");
        let at = Time::from_secs;
        let mut fetching = SlowHistory::with_threshold(Duration::from_mins(1));
        fetching.record_waiting(&key, at(100));
        fetching.record_waiting(&key, at(130));
        assert!(!fetching.is_overdue(&key, at(159)));
        assert!(fetching.is_overdue(&key, at(160)));
        fetching.retain(|_| false);
        assert!(!fetching.is_overdue(&key, at(200)));
        let mut silent = SlowHistory::default();
        silent.record_waiting(&key, at(0));
        assert!(!silent.is_enabled() && !silent.is_overdue(&key, at(9_999)));
    }
}
