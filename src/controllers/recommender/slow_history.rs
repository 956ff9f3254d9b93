//! VPAs whose history takes long to load, which is then reported in a condition.

use std::{collections::HashMap, time::Duration};

use plimsoll_core::types::{ObjectKey, Time};

/// Since when VPAs have been waiting for their history. Most histories are loaded before the next pass, and a
/// condition for each would cost two more writes per VPA at every start.
#[derive(Debug, Default)]
pub struct SlowHistory {
    /// How long a VPA waits before it is reported; `None` disables reports.
    threshold: Option<Duration>,
    since: HashMap<ObjectKey, Time>,
}

impl SlowHistory {
    /// Reports VPAs that wait longer than `threshold`.
    pub fn with_threshold(threshold: Duration) -> Self {
        Self { threshold: Some(threshold), since: HashMap::new() }
    }

    pub const fn is_enabled(&self) -> bool {
        self.threshold.is_some()
    }

    /// Records that a pass found a VPA waiting.
    pub fn record_waiting(&mut self, key: &ObjectKey, now: Time) {
        if self.threshold.is_some() && !self.since.contains_key(key) {
            self.since.insert(key.clone(), now);
        }
    }

    /// Whether the VPA has waited longer than the threshold.
    pub fn is_overdue(&self, key: &ObjectKey, now: Time) -> bool {
        let since = self.since.get(key).zip(self.threshold);
        since.is_some_and(|(since, threshold)| now >= since.later(threshold))
    }

    /// Removes VPAs that are not waiting any more.
    pub fn retain(&mut self, is_waiting: impl Fn(&ObjectKey) -> bool) {
        self.since.retain(|key, _| is_waiting(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vpa_without_history_for_longer_than_a_pass_is_overdue() {
        let key = ObjectKey::new("shop", "web");
        let at = Time::from_secs;
        let mut slow = SlowHistory::with_threshold(Duration::from_mins(1));
        slow.record_waiting(&key, at(100));
        slow.record_waiting(&key, at(130));
        assert!(!slow.is_overdue(&key, at(159)));
        assert!(slow.is_overdue(&key, at(160)));
        slow.retain(|_| false);
        assert!(!slow.is_overdue(&key, at(200)));
        let mut disabled = SlowHistory::default();
        disabled.record_waiting(&key, at(0));
        assert!(!disabled.is_enabled() && !disabled.is_overdue(&key, at(9_999)));
    }
}
