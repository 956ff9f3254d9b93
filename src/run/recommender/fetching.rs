//! The VPAs that wait for their history so long that they say so.

use std::{collections::HashMap, time::Duration};

use plimsoll_core::types::{Time, VpaKey};

/// Since when passes have found VPAs waiting. Most histories are there before the next pass, and a word about each
/// would be two writes more at every start.
#[derive(Debug, Default)]
pub struct Fetching {
    /// How long a VPA waits before it says so; `None` where nobody does.
    patience: Option<Duration>,
    since: HashMap<VpaKey, Time>,
}

impl Fetching {
    /// With this patience.
    pub fn after(patience: Duration) -> Self {
        Self { patience: Some(patience), since: HashMap::new() }
    }

    /// Whether anybody says so.
    pub const fn is_on(&self) -> bool {
        self.patience.is_some()
    }

    /// A pass found a VPA waiting.
    pub fn note(&mut self, key: &VpaKey, now: Time) {
        if self.patience.is_some() && !self.since.contains_key(key) {
            self.since.insert(key.clone(), now);
        }
    }

    /// Whether it has waited long enough to say so.
    pub fn is_long(&self, key: &VpaKey, now: Time) -> bool {
        let since = self.since.get(key).zip(self.patience);
        since.is_some_and(|(since, patience)| now >= since.later(patience))
    }

    /// Forgets those that wait no longer.
    pub fn retain(&mut self, waits: impl Fn(&VpaKey) -> bool) {
        self.since.retain(|key, _| waits(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_longer_than_a_pass_says_so_and_nobody_else() {
        let key = VpaKey::new("shop", "web");
        let at = Time::from_secs;
        let mut fetching = Fetching::after(Duration::from_mins(1));
        fetching.note(&key, at(100));
        fetching.note(&key, at(130));
        assert!(!fetching.is_long(&key, at(159)));
        assert!(fetching.is_long(&key, at(160)));
        fetching.retain(|_| false);
        assert!(!fetching.is_long(&key, at(200)));
        let mut silent = Fetching::default();
        silent.note(&key, at(0));
        assert!(!silent.is_on() && !silent.is_long(&key, at(9_999)));
    }
}
